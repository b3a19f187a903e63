/* Threads count under one of liblmlocks' mutexes: what anybody's first program with it looks like. */
#include <lockmeter/locks.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 100000 };

static lm_mutex_t lock = LM_MUTEX_INIT;
static long count;

static void *add(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		lm_mutex_lock(&lock);
		count++;
		lm_mutex_unlock(&lock);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, add, NULL))
			return EXIT_FAILURE;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("%ld\n", count);
	return count == (long)THREADS * ROUNDS ? EXIT_SUCCESS : EXIT_FAILURE;
}
