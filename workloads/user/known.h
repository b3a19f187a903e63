/*
 * What the workloads with known answers share: threads that start together, a critical section of a known length, and a
 * tally of what each thread measured itself, with the clock that lockmeter does not use.
 *
 *     NAME [--threads N] [--rounds N] [--hold-ns N] [--pause-ns N] [--sleep] [--wait] [--die]
 *
 * With --wait the threads start when standard input ends, so that somebody can begin to look before. With --die the program kills
 * itself when it has printed what it knows.
 *
 * Prints one line of JSON.  Exit status: 0 ran, 1 failed, 2 bad arguments.
 */
#ifndef KNOWN_H
#define KNOWN_H

#include <errno.h>
#include <getopt.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "c11.h"

struct tally {
	_Alignas(64) uint64_t acquisitions;
	uint64_t contended;
	uint64_t wait_ns;
	uint64_t seldom_wait_ns; /* of these, at the second of two call sites */
	uint64_t hold_ns;
	uint64_t since_ns;
	void (*worker)(struct tally *tally);
	unsigned int index;
	pthread_t thread;
};

static struct {
	unsigned int threads;
	unsigned int rounds;
	uint64_t hold_ns;
	uint64_t pause_ns;
	bool sleep;
	pthread_barrier_t start;
} known = {.threads = 4, .rounds = 500, .hold_ns = 100000, .pause_ns = 50000};

static inline uint64_t known_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline void known_spend(uint64_t ns)
{
	uint64_t end = known_now_ns() + ns;

	while (known_now_ns() < end)
		;
}

/* Inlined, so that the caller is the site. */
static inline __attribute__((always_inline)) void known_lock(pthread_mutex_t *lock, struct tally *tally)
{
	uint64_t begin = known_now_ns();

	if (pthread_mutex_trylock(lock)) {
		begin = known_now_ns();
		pthread_mutex_lock(lock);
		tally->since_ns = known_now_ns();
		tally->wait_ns += tally->since_ns - begin;
		tally->contended++;
	} else {
		tally->since_ns = known_now_ns();
	}
	tally->acquisitions++;
}

static inline __attribute__((always_inline)) void known_unlock(pthread_mutex_t *lock, struct tally *tally)
{
	tally->hold_ns += known_now_ns() - tally->since_ns;
	pthread_mutex_unlock(lock);
	/* Not a tail call: the caller shall be on the stack. */
	__asm__ volatile("" ::: "memory");
}

static inline void known_sleep(uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / 1000000000ull), .tv_nsec = (long)(ns % 1000000000ull)};

	nanosleep(&time, NULL);
}

static inline void known_hold(struct tally *tally)
{
	(void)tally;
	if (known.sleep)
		known_sleep(known.hold_ns);
	else
		known_spend(known.hold_ns);
}

static inline void known_pause(void)
{
	if (known.pause_ns)
		known_sleep(known.pause_ns);
}

static inline void *known_thread(void *argument)
{
	struct tally *tally = argument;

	pthread_barrier_wait(&known.start);
	tally->worker(tally);
	return NULL;
}

static inline uint64_t known_number(const char *text)
{
	char *end;
	unsigned long long number = strtoull(text, &end, 10);

	if (end == text || *end) {
		fprintf(stderr, "`%s` is not a number\n", text);
		exit(2);
	}
	return number;
}

static inline int known_main(int argc, char **argv, const char *name, void (*worker)(struct tally *tally))
{
	static const struct option options[] = {
		{"threads", required_argument, NULL, 't'}, {"rounds", required_argument, NULL, 'r'},
		{"hold-ns", required_argument, NULL, 'h'}, {"pause-ns", required_argument, NULL, 'p'},
		{"sleep", no_argument, NULL, 's'},	   {"wait", no_argument, NULL, 'w'},
		{"die", no_argument, NULL, 'd'},	   {NULL, 0, NULL, 0},
	};
	struct tally sum = {0}, *tallies;
	bool die = false;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (option) {
		case 't':
			known.threads = (unsigned int)known_number(optarg);
			break;
		case 'r':
			known.rounds = (unsigned int)known_number(optarg);
			break;
		case 'h':
			known.hold_ns = known_number(optarg);
			break;
		case 'p':
			known.pause_ns = known_number(optarg);
			break;
		case 's':
			known.sleep = true;
			break;
		case 'w':
			while (getchar() != EOF)
				;
			break;
		case 'd':
			die = true;
			break;
		default:
			return 2;
		}
	}
	tallies = aligned_alloc(64, known.threads * sizeof(*tallies));
	if (!tallies || !known.threads)
		return 1;
	memset(tallies, 0, known.threads * sizeof(*tallies));
	pthread_barrier_init(&known.start, NULL, known.threads);
	for (unsigned int i = 0; i < known.threads; i++) {
		tallies[i].worker = worker;
		tallies[i].index = i;
		errno = pthread_create(&tallies[i].thread, NULL, known_thread, &tallies[i]);
		if (errno) {
			fprintf(stderr, "%s: cannot start a thread: %s\n", name, strerror(errno));
			return 1;
		}
	}
	for (unsigned int i = 0; i < known.threads; i++) {
		pthread_join(tallies[i].thread, NULL);
		sum.acquisitions += tallies[i].acquisitions;
		sum.contended += tallies[i].contended;
		sum.wait_ns += tallies[i].wait_ns;
		sum.seldom_wait_ns += tallies[i].seldom_wait_ns;
		sum.hold_ns += tallies[i].hold_ns;
	}
	printf("{\"workload\":\"%s\",\"threads\":%u,\"acquisitions\":%llu,\"contended\":%llu,\"wait_ns\":%llu,"
	       "\"seldom_wait_ns\":%llu,\"hold_ns\":%llu}\n",
	       name, known.threads, (unsigned long long)sum.acquisitions, (unsigned long long)sum.contended,
	       (unsigned long long)sum.wait_ns, (unsigned long long)sum.seldom_wait_ns,
	       (unsigned long long)sum.hold_ns);
	free(tallies);
	if (die) {
		fflush(stdout);
		raise(SIGKILL);
	}
	return 0;
}

#endif
