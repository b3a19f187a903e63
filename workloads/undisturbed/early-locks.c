/* Locks taken before any library is initialized, by constructors, and by what is resolved while the program is loaded. */
#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, late = PTHREAD_MUTEX_INITIALIZER;
static int before_libraries, before_main;

static void before_all(void)
{
	before_libraries = pthread_mutex_lock(&mutex) + pthread_mutex_unlock(&mutex) + pthread_mutex_trylock(&mutex) +
			   pthread_mutex_unlock(&mutex);
}

__attribute__((section(".preinit_array"), used)) static void (*const first)(void) = before_all;

static void *lock_once(void *argument)
{
	pthread_mutex_lock(&mutex);
	before_main++;
	pthread_mutex_unlock(&mutex);
	return argument;
}

__attribute__((constructor(101))) static void early_constructor(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, lock_once, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static int chosen(void)
{
	return 5;
}

static int (*choose(void))(void)
{
	return chosen;
}

int resolved(void) __attribute__((ifunc("choose")));

int main(void)
{
	SAY(pthread_mutex_lock(&late));
	SAY(pthread_mutex_unlock(&late));
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
	printf("before libraries %d, before main %d, resolved %d\n", before_libraries, before_main, resolved());
	return RAN;
}
