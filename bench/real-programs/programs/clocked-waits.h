/* Threads that clock their own waits, and tell how long these were. */
#ifndef CLOCKED_WAITS_H
#define CLOCKED_WAITS_H

#include <stdio.h>
#include <time.h>

/* Of one thread. */
struct sums {
	_Alignas(64) unsigned long long work, waited_ns;
	unsigned long long waits_since_ns; /* 0: it does not wait */
};

static inline unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static inline void wait_begins(struct sums *mine)
{
	__atomic_store_n(&mine->waits_since_ns, now_ns(), __ATOMIC_RELAXED);
}

static inline void wait_ends(struct sums *mine)
{
	unsigned long long waited_ns = now_ns() - mine->waits_since_ns;

	__atomic_store_n(&mine->waits_since_ns, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&mine->waited_ns, waited_ns, __ATOMIC_RELAXED);
}

/* Waits that have ended, and the one that has not. */
static inline unsigned long long waited_until(unsigned long long now, const struct sums *other)
{
	unsigned long long waited_ns = __atomic_load_n(&other->waited_ns, __ATOMIC_RELAXED);
	unsigned long long since_ns = __atomic_load_n(&other->waits_since_ns, __ATOMIC_RELAXED);

	return waited_ns + (since_ns && since_ns < now ? now - since_ns : 0);
}

/* Until there is no more input: each line is answered with the time, the work done and the time waited. */
static inline void answer_lines(const struct sums *sums, int threads)
{
	char line[64];

	while (fgets(line, sizeof line, stdin)) {
		unsigned long long work = 0, waited_ns = 0, now = now_ns();

		for (int i = 0; i < threads; i++) {
			work += __atomic_load_n(&sums[i].work, __ATOMIC_RELAXED);
			waited_ns += waited_until(now, &sums[i]);
		}
		printf("%llu %llu %llu\n", now, work, waited_ns);
		fflush(stdout);
	}
}

#endif
