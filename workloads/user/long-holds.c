/*
 * Locks of every kind that one thread takes so often that not every hold is timed, and holds for long three times. With each goes what
 * the thread measured itself.
 *
 * Prints one line of JSON: for each kind how long it was held in NAME_long.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define OFTEN 200000
#define LONG_NS 7000000

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
		       checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t inheriting, outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t given_back = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t read_table = PTHREAD_RWLOCK_INITIALIZER, write_table = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spinning;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static uint64_t spend(void)
{
	uint64_t begin = now_ns(), now;

	do
		now = now_ns();
	while (now < begin + LONG_NS);
	return now - begin;
}

#define KIND(NAME, ACQUIRE, RELEASE)                                                                                   \
	static uint64_t NAME##_ns;                                                                                     \
	static __attribute__((noinline)) void NAME##_quick(void)                                                       \
	{                                                                                                              \
		ACQUIRE;                                                                                               \
		RELEASE;                                                                                               \
	}                                                                                                              \
	static __attribute__((noinline)) void NAME##_long(void)                                                        \
	{                                                                                                              \
		ACQUIRE;                                                                                               \
		NAME##_ns += spend();                                                                                  \
		RELEASE;                                                                                               \
	}

KIND(normal, pthread_mutex_lock(&normal), pthread_mutex_unlock(&normal))
KIND(adaptive, pthread_mutex_lock(&adaptive), pthread_mutex_unlock(&adaptive))
KIND(checking, pthread_mutex_lock(&checking), pthread_mutex_unlock(&checking))
KIND(inheriting, pthread_mutex_lock(&inheriting), pthread_mutex_unlock(&inheriting))
KIND(tried, pthread_mutex_trylock(&normal), pthread_mutex_unlock(&normal))
KIND(spinning, pthread_spin_lock(&spinning), pthread_spin_unlock(&spinning))
KIND(reading, pthread_rwlock_rdlock(&read_table), pthread_rwlock_unlock(&read_table))
KIND(writing, pthread_rwlock_wrlock(&write_table), pthread_rwlock_unlock(&write_table))

static void acquire_twice(void)
{
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&recursive);
}

static void release_twice(void)
{
	pthread_mutex_unlock(&recursive);
	pthread_mutex_unlock(&recursive);
}

KIND(recursive, acquire_twice(), release_twice())

/* Others are taken and released all the while. */
static uint64_t outer_ns;
static __attribute__((noinline)) void outer_quick(void)
{
	pthread_mutex_lock(&outer);
	pthread_mutex_lock(&inner);
	pthread_mutex_unlock(&inner);
	pthread_mutex_unlock(&outer);
}

static __attribute__((noinline)) void outer_long(void)
{
	uint64_t begin;

	pthread_mutex_lock(&outer);
	begin = now_ns();
	do {
		pthread_mutex_lock(&inner);
		pthread_mutex_unlock(&inner);
	} while (now_ns() < begin + LONG_NS);
	outer_ns += now_ns() - begin;
	pthread_mutex_unlock(&outer);
}

/* Two holds, before and after a wait that gives the mutex back. */
static uint64_t given_back_ns;
static __attribute__((noinline)) void given_back_quick(void)
{
	pthread_mutex_lock(&given_back);
	pthread_mutex_unlock(&given_back);
}

static __attribute__((noinline)) void given_back_long(void)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec -= 1;
	pthread_mutex_lock(&given_back);
	given_back_ns += spend();
	pthread_cond_timedwait(&never, &given_back, &until);
	given_back_ns += spend();
	pthread_mutex_unlock(&given_back);
}

#define RUN(NAME)                                                                                                      \
	do {                                                                                                           \
		for (int round = 0; round < 3; round++) {                                                              \
			for (int i = 0; i < OFTEN; i++)                                                                \
				NAME##_quick();                                                                        \
			NAME##_long();                                                                                 \
		}                                                                                                      \
		printf("%s\"" #NAME "\": %llu", separator, (unsigned long long)NAME##_ns);                             \
		separator = ", ";                                                                                      \
	} while (0)

int main(void)
{
	const char *separator = "{";
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inheriting, &attributes);
	pthread_spin_init(&spinning, PTHREAD_PROCESS_PRIVATE);
	RUN(normal);
	RUN(adaptive);
	RUN(checking);
	RUN(inheriting);
	RUN(tried);
	RUN(spinning);
	RUN(reading);
	RUN(writing);
	RUN(recursive);
	RUN(outer);
	RUN(given_back);
	printf("}\n");
	return 0;
}
