/*
 * The program takes the place of pthread_mutex_lock itself, and calls the next one; the same source as a library to be preloaded
 * counts the program's calls.
 */
#include <dlfcn.h>
#include <stdatomic.h>

#include "transcript.h"

static atomic_int calls;

#define NEXT(name)                                                                                                     \
	static int (*next)(pthread_mutex_t *);                                                                         \
	if (!next)                                                                                                     \
	next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, name)

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
	NEXT("pthread_mutex_lock");
	calls++;
	return next(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	NEXT("pthread_mutex_unlock");
	calls++;
	return next(mutex);
}

#ifdef PRELOADED
__attribute__((destructor)) static void say_calls(void)
{
	/* What runs the program has it preloaded, too. */
	if (!strcmp(program_invocation_short_name, "contends"))
		fprintf(stderr, "calls seen: %d\n", calls > 0);
}
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d, calls %d\n", counted, calls);
	return RAN;
}
#endif
