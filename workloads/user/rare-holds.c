/*
 * A lock that two threads take so often that not every hold can be timed, and that one of them seldom holds for a thousand times as
 * long. Both functions release it in a tail call, so that the release returns to their caller.
 *
 *     rare-holds [SEED [MILLISECONDS]]
 *
 * Prints one line of JSON with what it measured itself.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define QUICK_NS 8000
#define SELDOM_NS 3000000
#define BETWEEN_SELDOM_NS 60000000

static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
/* In ticks of the time stamp counter: to ask for the time takes a part of the hold that lies outside of what it measures. */
static uint64_t quick_count, quick_ticks, seldom_count, seldom_ticks, longest_ticks;
static uint64_t seed = 1, until_ns;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void spend(uint64_t ns)
{
	uint64_t until = now_ns() + ns;

	while (now_ns() < until)
		;
}

static __attribute__((noinline)) void quick(uint64_t ns)
{
	uint64_t since;

	pthread_mutex_lock(&big_lock);
	since = __rdtsc();
	spend(ns);
	quick_count++;
	quick_ticks += __rdtsc() - since;
	pthread_mutex_unlock(&big_lock);
}

static __attribute__((noinline)) void seldom(uint64_t ns)
{
	uint64_t since, ticks;

	pthread_mutex_lock(&big_lock);
	since = __rdtsc();
	spend(ns);
	seldom_count++;
	ticks = __rdtsc() - since;
	seldom_ticks += ticks;
	if (ticks > longest_ticks)
		longest_ticks = ticks;
	pthread_mutex_unlock(&big_lock);
}

/* From half of it up to twice as long, most of them short. */
static uint64_t about(uint64_t ns, uint64_t *state)
{
	uint64_t random;

	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	random = *state >> 54;
	return ns / 2 + ns * random * random / (682 * 1024);
}

static void *work(void *is_first)
{
	uint64_t state = seed * 2 + (is_first != NULL), next = now_ns() + about(BETWEEN_SELDOM_NS, &state);

	while (now_ns() < until_ns) {
		for (int i = 0; i < 16; i++)
			quick(about(QUICK_NS, &state));
		if (is_first && now_ns() > next) {
			seldom(about(SELDOM_NS, &state) + SELDOM_NS / 2);
			next = now_ns() + about(BETWEEN_SELDOM_NS, &state);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t milliseconds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
	uint64_t began_ns = now_ns(), began = __rdtsc();
	pthread_t first;
	double ns;

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 10);
	until_ns = began_ns + milliseconds * 1000000;
	if (pthread_create(&first, NULL, work, &first))
		return 1;
	work(NULL);
	pthread_join(first, NULL);
	ns = (double)(now_ns() - began_ns) / (double)(__rdtsc() - began);
	printf("{\"quick_count\": %llu, \"quick_ns\": %.0f, ", (unsigned long long)quick_count,
	       (double)quick_ticks * ns);
	printf("\"seldom_count\": %llu, \"seldom_ns\": %.0f, \"longest_ns\": %.0f}\n", (unsigned long long)seldom_count,
	       (double)seldom_ticks * ns, (double)longest_ticks * ns);
	return 0;
}
