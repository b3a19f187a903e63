/*
 * What the programs of this folder share: a transcript of results and errno, and guard bytes around locks.  The transcript must
 * be the same with and without a meter, so it holds no address, no id and no time.
 */
#ifndef TRANSCRIPT_H
#define TRANSCRIPT_H

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The exit status of a program that ran to its end. */
#define RAN 7

/* errno must come out as it went in. */
#define SAY(call)                                                                                                      \
	do {                                                                                                           \
		errno = 4711;                                                                                          \
		int status_ = (call);                                                                                  \
		int errno_ = errno;                                                                                    \
		printf("%-60s %d errno %d\n", #call, status_, errno_);                                                 \
	} while (0)

#define GUARD_BYTES 64
#define GUARD_PATTERN 0x5a

/* A lock with guard bytes on both sides. */
#define GUARDED(type)                                                                                                  \
	struct {                                                                                                       \
		unsigned char before[GUARD_BYTES];                                                                     \
		type lock;                                                                                             \
		unsigned char after[GUARD_BYTES];                                                                      \
	}

#define FILL_GUARDS(guarded)                                                                                           \
	do {                                                                                                           \
		memset((guarded).before, GUARD_PATTERN, GUARD_BYTES);                                                  \
		memset((guarded).after, GUARD_PATTERN, GUARD_BYTES);                                                   \
	} while (0)

#define SAY_GUARDS(guarded)                                                                                            \
	printf("guard bytes overwritten: %d before, %d after\n", overwritten((guarded).before),                        \
	       overwritten((guarded).after))

static inline int overwritten(const unsigned char *guard)
{
	int count = 0;

	for (int i = 0; i < GUARD_BYTES; i++)
		count += guard[i] != GUARD_PATTERN;
	return count;
}

/* A moment of a clock, this many nanoseconds from now. */
static inline struct timespec soon(clockid_t clock, long ns)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += ns;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

#define MILLISECOND 1000000L

/* Runs a function in a thread to its end. */
static inline void *in_thread(void *(*function)(void *), void *argument)
{
	pthread_t thread;
	void *result = NULL;

	if (pthread_create(&thread, NULL, function, argument))
		abort();
	pthread_join(thread, &result);
	return result;
}

#endif
