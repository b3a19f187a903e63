/*
 * A lock with two kinds of users: threads that hold it rarely and long, asleep, and threads that hold it often and briefly.
 * Runs for a fixed time, and prints one line of JSON: how often each kind held the lock, and how long that took.
 *
 *     two-kinds [--long N] [--short N] [--seconds S]
 *
 * With --long 0 the first kind is not there: what the others then do is what a forecast without it must say.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Long holds last this long, with as much time between them; their waiters wait most of the time. */
#define LONG_HOLD_NS 4000000
#define LONG_PAUSE_NS 400000
/* Short holds, and how long their thread sleeps between them: asleep, it does not depend on who else wants its CPU. */
#define SHORT_HOLD_NS 2000
#define SHORT_PAUSE_NS 100000

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static bool ended;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static void compute(uint64_t ns)
{
	uint64_t end = now_ns() + ns;

	while (now_ns() < end)
		;
}

static void pause_for(long ns)
{
	struct timespec time = {.tv_sec = 0, .tv_nsec = ns};

	nanosleep(&time, NULL);
}

static __attribute__((noinline)) void hold_long(void)
{
	pthread_mutex_lock(&shared_lock);
	pause_for(LONG_HOLD_NS);
	pthread_mutex_unlock(&shared_lock);
	/* Not a tail call: the caller shall be on the stack. */
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void hold_briefly(void)
{
	pthread_mutex_lock(&shared_lock);
	compute(SHORT_HOLD_NS);
	pthread_mutex_unlock(&shared_lock);
	__asm__ volatile("" ::: "memory");
}

static void *long_user(void *count)
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		hold_long();
		++*(uint64_t *)count;
		pause_for(LONG_PAUSE_NS);
	}
	return NULL;
}

static void *short_user(void *count)
{
	while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) {
		hold_briefly();
		++*(uint64_t *)count;
		pause_for(SHORT_PAUSE_NS);
	}
	return NULL;
}

#define MOST_THREADS 64

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"long", required_argument, NULL, 'l'},
		{"short", required_argument, NULL, 's'},
		{"seconds", required_argument, NULL, 't'},
		{0},
	};
	static struct {
		_Alignas(64) uint64_t done;
		pthread_t thread;
	} users[2 * MOST_THREADS];
	int longs = 1, shorts = 1, seconds = 2, option;
	uint64_t held_long = 0, held_briefly = 0, begin_ns;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		int *value = option == 'l' ? &longs : option == 's' ? &shorts : option == 't' ? &seconds : NULL;

		if (!value)
			return 2;
		*value = atoi(optarg);
	}
	if (longs < 0 || longs > MOST_THREADS || shorts < 0 || shorts > MOST_THREADS || seconds < 1)
		return 2;
	begin_ns = now_ns();
	for (int at = 0; at < longs + shorts; at++)
		if (pthread_create(&users[at].thread, NULL, at < longs ? long_user : short_user, &users[at].done))
			return 1;
	while (now_ns() < begin_ns + (uint64_t)seconds * 1000000000ull)
		pause_for(10000000);
	__atomic_store_n(&ended, true, __ATOMIC_RELAXED);
	for (int at = 0; at < longs + shorts; at++) {
		pthread_join(users[at].thread, NULL);
		*(at < longs ? &held_long : &held_briefly) += users[at].done;
	}
	printf("{\"workload\":\"two-kinds\",\"held_long\":%llu,\"held_briefly\":%llu,\"elapsed_ns\":%llu}\n",
	       (unsigned long long)held_long, (unsigned long long)held_briefly,
	       (unsigned long long)(now_ns() - begin_ns));
	return 0;
}
