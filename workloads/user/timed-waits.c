/*
 * When standard input is closed: four waits of 0.1 s for kept_lock, which the main thread has all the while, each with a time limit that
 * comes first. Exits with 1 if one of them got the lock.
 */
#include <pthread.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void *tries(void *unused)
{
	for (int i = 0; i < 4; i++) {
		struct timespec limit;

		clock_gettime(CLOCK_REALTIME, &limit);
		limit.tv_nsec += 100000000;
		if (limit.tv_nsec >= 1000000000) {
			limit.tv_sec++;
			limit.tv_nsec -= 1000000000;
		}
		if (!pthread_mutex_timedlock(&kept_lock, &limit))
			return &kept_lock;
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	void *got;

	pthread_mutex_lock(&kept_lock);
	while (getchar() != EOF)
		;
	pthread_create(&thread, NULL, tries, NULL);
	pthread_join(thread, &got);
	return got != NULL;
}
