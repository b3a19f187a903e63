/*
 * A lock for each of many objects, all made at one site: more than any table of samples tells apart.  Four threads take each
 * of them in turn.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCKS 8192
#define THREADS 4
#define ROUNDS 8

static pthread_mutex_t *locks;

__attribute__((noinline)) static void make_locks(void)
{
	locks = calloc(LOCKS, sizeof(*locks));
	if (!locks)
		exit(1);
	for (int i = 0; i < LOCKS; i++)
		pthread_mutex_init(&locks[i], NULL);
}

static void *take_all(void *argument)
{
	long first = (long)argument * (LOCKS / THREADS);

	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < LOCKS; i++) {
			pthread_mutex_lock(&locks[(first + i) % LOCKS]);
			pthread_mutex_unlock(&locks[(first + i) % LOCKS]);
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	make_locks();
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, take_all, (void *)i))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("{\"acquisitions\": %d}\n", LOCKS * THREADS * ROUNDS);
	return 0;
}
