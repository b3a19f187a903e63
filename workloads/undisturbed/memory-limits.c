/* memory-limits: threads lock while all address space that RLIMIT_AS leaves is taken; malloc fails for want of it, then goes on. */
#include <sys/mman.h>
#include <sys/resource.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 300; i++) {
		pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

		pthread_mutex_lock(&mutex);
		counted++;
		usleep(20);
		pthread_mutex_unlock(&mutex);
		pthread_mutex_lock(&own);
		pthread_mutex_unlock(&own);
	}
	return argument;
}

int main(void)
{
	struct rlimit limit = {0, 0};
	pthread_attr_t attributes;
	pthread_t threads[4];
	char *stacks = mmap(NULL, 4 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pthread_attr_init(&attributes);
	/* No more memory than there is. */
	limit.rlim_max = limit.rlim_cur = 4096;
	SAY(setrlimit(RLIMIT_AS, &limit));
	SAY(malloc(1 << 24) != NULL);
	for (int i = 0; i < 4; i++) {
		pthread_attr_setstack(&attributes, stacks + i * 65536, 65536);
		SAY(pthread_create(&threads[i], &attributes, work, NULL));
	}
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
