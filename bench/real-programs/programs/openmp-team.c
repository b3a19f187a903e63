/*
 * A team of OpenMP threads, twice as many as CPUs, and how long they waited for each other.
 *
 *   critical   all of them add to one ledger in a critical section with a name; each clocks the way into it
 *   barrier    their shares of a loop differ, so that most wait for the slowest; each clocks the barrier. There is no lock
 *
 * Answers each line with the time, the work done and the time waited.
 */
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST_THREADS 16

static struct sums {
	_Alignas(64) unsigned long long work, waited_ns;
	unsigned long long waits_since_ns; /* 0: it does not wait */
} sums[MOST_THREADS];

static double ledger[1024];

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void wait_begins(struct sums *mine)
{
	__atomic_store_n(&mine->waits_since_ns, now_ns(), __ATOMIC_RELAXED);
}

static void wait_ends(struct sums *mine)
{
	unsigned long long waited_ns = now_ns() - mine->waits_since_ns;

	__atomic_store_n(&mine->waits_since_ns, 0, __ATOMIC_RELAXED);
	__atomic_fetch_add(&mine->waited_ns, waited_ns, __ATOMIC_RELAXED);
}

/* Waits that have ended, and the one that has not. */
static unsigned long long waited_until(unsigned long long now, const struct sums *other)
{
	unsigned long long waited_ns = __atomic_load_n(&other->waited_ns, __ATOMIC_RELAXED);
	unsigned long long since_ns = __atomic_load_n(&other->waits_since_ns, __ATOMIC_RELAXED);

	return waited_ns + (since_ns && since_ns < now ? now - since_ns : 0);
}

/* Some 10 microseconds a round. */
static double simulate(double seed, int rounds)
{
	for (int i = 0; i < rounds * 2500; i++)
		seed = seed * 0.999999 + 0.5 / (1.0 + seed * seed);
	return seed;
}

static void *answer(void *unused)
{
	char line[64];

	while (fgets(line, sizeof line, stdin)) {
		unsigned long long work = 0, waited_ns = 0, now = now_ns();

		for (int i = 0; i < MOST_THREADS; i++) {
			work += __atomic_load_n(&sums[i].work, __ATOMIC_RELAXED);
			waited_ns += waited_until(now, &sums[i]);
		}
		printf("%llu %llu %llu\n", now, work, waited_ns);
		fflush(stdout);
	}
	_exit(0);
	return unused;
}

static void book(struct sums *mine, int thread)
{
	double result = simulate(thread, 10);

	wait_begins(mine);
#pragma omp critical(ledger)
	{
		wait_ends(mine);
		ledger[thread] += simulate(result, 50);
	}
}

static void simulate_share(struct sums *mine, int thread)
{
	ledger[thread] = simulate(ledger[thread], thread == 0 ? 1000 : 100);
	wait_begins(mine);
#pragma omp barrier
	wait_ends(mine);
}

int main(int argc, char **argv)
{
	int threads = 2 * omp_get_num_procs();
	pthread_t answers;
	int is_critical;

	if (argc != 2)
		return 2;
	is_critical = !strcmp(argv[1], "critical");
	threads = threads < 4 ? 4 : threads > MOST_THREADS ? MOST_THREADS : threads;
	if (pthread_create(&answers, NULL, answer, NULL))
		return 2;
	printf("ready\n");
	fflush(stdout);
#pragma omp parallel num_threads(threads)
	for (;;) {
		int thread = omp_get_thread_num();

		if (is_critical)
			book(&sums[thread], thread);
		else
			simulate_share(&sums[thread], thread);
		__atomic_fetch_add(&sums[thread].work, 1, __ATOMIC_RELAXED);
	}
}
