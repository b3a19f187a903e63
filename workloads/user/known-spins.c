/*
 * Threads that spin for a lock, and know for how much CPU time they do: by the clock of their own CPU time before and after each wait.
 *
 *     known-spins LOCK SECONDS [THREADS [HOLD_US [WORK_US]]]
 *
 *   spin      pthread_spin_lock
 *   adaptive  a mutex that spins before it sleeps (PTHREAD_MUTEX_ADAPTIVE_NP)
 *   pause     a lock of the program's own, taken in a function that nothing is inlined into, which spins with `pause`
 *   bare      the same without `pause`: nothing tells that from work
 *   yield     the same, which calls sched_yield
 *   alone     pthread_spin_lock, a lock for each thread: nobody waits
 *
 * All begin when standard input ends, so that somebody can begin to look before. A thread works for WORK_US, takes the lock, and has it for HOLD_US, all in CPU time or nearly so. All threads run on two CPUs, so that with
 * more than two of them those that spin are preempted.
 *
 * Prints one line of JSON when the time is up.  Exit status: 0 ran, 2 bad arguments.
 */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_THREADS 64

enum kind { SPIN, ADAPTIVE, PAUSE, BARE, YIELD, ALONE, KINDS };

static const char *const names[KINDS] = {"spin", "adaptive", "pause", "bare", "yield", "alone"};

pthread_spinlock_t known_spinlock;
pthread_mutex_t known_mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
volatile int own_lock;

static enum kind kind;
static uint64_t end_ns, hold_ns = 100000, work_ns = 100000;

struct tally {
	_Alignas(64) uint64_t spun_ns;
	uint64_t waits;
	uint64_t waited_ns;
	uint64_t acquisitions;
	uint64_t cpu_ns;
	pthread_spinlock_t own;
	pthread_t thread;
};

static struct tally tallies[MOST_THREADS];

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

/* By the clock of the wall: a thread that is preempted meanwhile does less. */
static void spend(uint64_t ns)
{
	uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;

	while (clock_ns(CLOCK_MONOTONIC) < end)
		;
}

static bool try_own(void)
{
	return !__atomic_exchange_n(&own_lock, 1, __ATOMIC_ACQUIRE);
}

__attribute__((noinline)) void take_with_pause(void)
{
	while (own_lock || !try_own())
		__builtin_ia32_pause();
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void take_bare(void)
{
	while (own_lock || !try_own())
		;
	__asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void take_with_yield(void)
{
	while (own_lock || !try_own())
		sched_yield();
	__asm__ volatile("" ::: "memory");
}

static bool try_lock(struct tally *tally)
{
	switch (kind) {
	case SPIN:
		return !pthread_spin_trylock(&known_spinlock);
	case ALONE:
		return !pthread_spin_lock(&tally->own);
	case ADAPTIVE:
		return !pthread_mutex_trylock(&known_mutex);
	default:
		return try_own();
	}
}

static void wait_for_lock(void)
{
	switch (kind) {
	case SPIN:
		pthread_spin_lock(&known_spinlock);
		break;
	case ADAPTIVE:
		pthread_mutex_lock(&known_mutex);
		break;
	case PAUSE:
		take_with_pause();
		break;
	case BARE:
		take_bare();
		break;
	default:
		take_with_yield();
		break;
	}
}

static void unlock(struct tally *tally)
{
	switch (kind) {
	case SPIN:
		pthread_spin_unlock(&known_spinlock);
		break;
	case ALONE:
		pthread_spin_unlock(&tally->own);
		break;
	case ADAPTIVE:
		pthread_mutex_unlock(&known_mutex);
		break;
	default:
		__atomic_store_n(&own_lock, 0, __ATOMIC_RELEASE);
		break;
	}
}

__attribute__((noinline)) void spinner_round(struct tally *tally)
{
	spend(work_ns);
	if (!try_lock(tally)) {
		uint64_t begin = clock_ns(CLOCK_MONOTONIC), ran = clock_ns(CLOCK_THREAD_CPUTIME_ID);

		wait_for_lock();
		tally->spun_ns += clock_ns(CLOCK_THREAD_CPUTIME_ID) - ran;
		tally->waited_ns += clock_ns(CLOCK_MONOTONIC) - begin;
		tally->waits++;
	}
	spend(hold_ns);
	unlock(tally);
	tally->acquisitions++;
}

static void *spinner(void *argument)
{
	struct tally *tally = argument;

	pthread_spin_init(&tally->own, PTHREAD_PROCESS_PRIVATE);
	while (clock_ns(CLOCK_MONOTONIC) < end_ns)
		spinner_round(tally);
	tally->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

static void stay_on_two_cpus(void)
{
	cpu_set_t allowed, two;
	int left = 2;

	CPU_ZERO(&two);
	sched_getaffinity(0, sizeof(allowed), &allowed);
	for (int cpu = 0; cpu < CPU_SETSIZE && left; cpu++) {
		if (CPU_ISSET(cpu, &allowed)) {
			CPU_SET(cpu, &two);
			left--;
		}
	}
	sched_setaffinity(0, sizeof(two), &two);
}

int main(int argc, char **argv)
{
	int threads = argc > 3 ? atoi(argv[3]) : 2;
	struct tally sum = {0};

	for (kind = 0; kind < KINDS && (argc < 3 || strcmp(argv[1], names[kind])); kind++)
		;
	if (kind == KINDS || threads < 1 || threads > MOST_THREADS) {
		fprintf(stderr, "usage: known-spins spin|adaptive|pause|bare|yield|alone SECONDS [THREADS [HOLD_US "
				"[WORK_US]]]\n");
		return 2;
	}
	if (argc > 4)
		hold_ns = strtoull(argv[4], NULL, 10) * 1000;
	if (argc > 5)
		work_ns = strtoull(argv[5], NULL, 10) * 1000;
	stay_on_two_cpus();
	pthread_spin_init(&known_spinlock, PTHREAD_PROCESS_PRIVATE);
	while (getchar() != EOF)
		;
	end_ns = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(atof(argv[2]) * 1e9);
	for (int i = 0; i < threads; i++)
		pthread_create(&tallies[i].thread, NULL, spinner, &tallies[i]);
	for (int i = 0; i < threads; i++) {
		pthread_join(tallies[i].thread, NULL);
		sum.spun_ns += tallies[i].spun_ns;
		sum.waited_ns += tallies[i].waited_ns;
		sum.waits += tallies[i].waits;
		sum.acquisitions += tallies[i].acquisitions;
		sum.cpu_ns += tallies[i].cpu_ns;
	}
	printf("{\"lock\":\"%s\",\"spun_ns\":%llu,\"waited_ns\":%llu,\"waits\":%llu,\"acquisitions\":%llu,\"cpu_ns\":%"
	       "llu}\n",
	       names[kind], (unsigned long long)sum.spun_ns, (unsigned long long)sum.waited_ns,
	       (unsigned long long)sum.waits, (unsigned long long)sum.acquisitions, (unsigned long long)sum.cpu_ns);
	return 0;
}
