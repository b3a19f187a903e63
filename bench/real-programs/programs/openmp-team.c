/*
 * A team of OpenMP threads, twice as many as CPUs, and how long they waited for each other.
 *
 *   critical   all of them add to one ledger in a critical section with a name; each clocks the way into it
 *   barrier    their shares of a loop differ, so that most wait for the slowest; each clocks the barrier. There is no lock
 *
 * Answers each line with the time, the work done and the time waited.
 */
#include "clocked-waits.h"
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MOST_THREADS 16

static struct sums sums[MOST_THREADS];

static double ledger[1024];

/* Some 10 microseconds a round. */
static double simulate(double seed, int rounds)
{
	for (int i = 0; i < rounds * 2500; i++)
		seed = seed * 0.999999 + 0.5 / (1.0 + seed * seed);
	return seed;
}

static void *answer(void *unused)
{
	answer_lines(sums, MOST_THREADS);
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
