/*
 * When standard input is closed: four waits of 0.1 s for kept_lock, which the main thread has all the while, each with a time limit that
 * comes first. Prints for how many nanoseconds it waited in all. Exits with 1 if one of them got the lock.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t waited_ns;

static int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

__attribute__((noinline)) static void *tries(void *unused)
{
	for (int i = 0; i < 4; i++) {
		struct timespec limit;
		int64_t begun_ns = now_ns();

		clock_gettime(CLOCK_REALTIME, &limit);
		limit.tv_nsec += 100000000;
		if (limit.tv_nsec >= 1000000000) {
			limit.tv_sec++;
			limit.tv_nsec -= 1000000000;
		}
		if (!pthread_mutex_timedlock(&kept_lock, &limit))
			return &kept_lock;
		waited_ns += now_ns() - begun_ns;
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
	printf("%lld\n", (long long)waited_ns);
	return got != NULL;
}
