/*
 * Two functions make a mutex at one address in turn, many times. Each time two threads contend for it, and it is destroyed.
 *
 * Prints one line of JSON: how many times each function made it. Exit status: 0 ran.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define TIMES 20

static pthread_mutex_t *lock;

__attribute__((noinline)) static void make_connection_lock(void)
{
	pthread_mutex_init(lock, NULL);
	__asm__ volatile("");
}

__attribute__((noinline)) static void make_cache_lock(void)
{
	pthread_mutex_init(lock, NULL);
	__asm__ volatile("");
}

static void *keep(void *unused)
{
	struct timespec time = {.tv_nsec = 2000000};

	pthread_mutex_lock(lock);
	nanosleep(&time, NULL);
	pthread_mutex_unlock(lock);
	return unused;
}

int main(void)
{
	pthread_t threads[2];

	lock = aligned_alloc(64, 64);
	for (int i = 0; i < 2 * TIMES; i++) {
		if (i % 2)
			make_connection_lock();
		else
			make_cache_lock();
		for (int j = 0; j < 2; j++)
			pthread_create(&threads[j], NULL, keep, NULL);
		for (int j = 0; j < 2; j++)
			pthread_join(threads[j], NULL);
		pthread_mutex_destroy(lock);
	}
	printf("{\"made\": %d}\n", TIMES);
}
