/* RLIMIT_AS leaves one megabyte of address space beyond what is mapped: malloc fails for want of it, and threads lock. */
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

static rlim_t mapped(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	long pages = 0;

	if (!file || fscanf(file, "%ld", &pages) != 1)
		abort();
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

int main(void)
{
	struct rlimit limit = {0, 0};
	pthread_attr_t attributes;
	pthread_t threads[4];
	char *stacks = mmap(NULL, 4 * 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pthread_attr_init(&attributes);
	limit.rlim_max = limit.rlim_cur = mapped() + (1 << 20);
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
