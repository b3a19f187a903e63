/* Every type, protocol and attribute of mutexes, by every function that takes one: held by the caller and by another thread. */
#include "transcript.h"

static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
			    PTHREAD_MUTEX_ADAPTIVE_NP};
static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT, PTHREAD_PRIO_PROTECT};

static void *fail_to_take(void *mutex)
{
	struct timespec real = soon(CLOCK_REALTIME, MILLISECOND), monotonic = soon(CLOCK_MONOTONIC, MILLISECOND);
	struct timespec past = {.tv_sec = 1}, bad = {.tv_nsec = -1};

	SAY(pthread_mutex_trylock(mutex));
	SAY(pthread_mutex_timedlock(mutex, &real));
	SAY(pthread_mutex_timedlock(mutex, &past));
	SAY(pthread_mutex_timedlock(mutex, &bad));
	SAY(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &monotonic));
	SAY(pthread_mutex_clocklock(mutex, CLOCK_BOOTTIME, &monotonic));
	return NULL;
}

static void *wait_for(void *mutex)
{
	SAY(pthread_mutex_lock(mutex));
	SAY(pthread_mutex_unlock(mutex));
	return NULL;
}

static void take_in_every_way(pthread_mutex_t *mutex, int type)
{
	struct timespec real = soon(CLOCK_REALTIME, 1000 * MILLISECOND);
	struct timespec monotonic = soon(CLOCK_MONOTONIC, 1000 * MILLISECOND);
	pthread_t thread;

	SAY(pthread_mutex_lock(mutex));
	SAY(pthread_mutex_trylock(mutex));
	if (type == PTHREAD_MUTEX_RECURSIVE)
		SAY(pthread_mutex_unlock(mutex));
	if (type == PTHREAD_MUTEX_ERRORCHECK)
		SAY(pthread_mutex_lock(mutex));
	in_thread(fail_to_take, mutex);
	fflush(stdout);
	pthread_create(&thread, NULL, wait_for, mutex);
	usleep(300);
	pthread_mutex_unlock(mutex);
	pthread_join(thread, NULL);
	SAY(pthread_mutex_trylock(mutex));
	SAY(pthread_mutex_unlock(mutex));
	SAY(pthread_mutex_timedlock(mutex, &real));
	SAY(pthread_mutex_unlock(mutex));
	SAY(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &monotonic));
	SAY(pthread_mutex_unlock(mutex));
	/* It is free, and not taken by a clock that there is none of. */
	SAY(pthread_mutex_clocklock(mutex, CLOCK_BOOTTIME, &monotonic));
	SAY(pthread_mutex_clocklock(mutex, 99, &monotonic));
	SAY(pthread_mutex_destroy(mutex));
}

int main(void)
{
	for (int type = 0; type < 4; type++)
		for (int protocol = 0; protocol < 3; protocol++)
			for (int robust = 0; robust < 2; robust++)
				for (int shared = 0; shared < 2; shared++) {
					GUARDED(pthread_mutex_t) mutex;
					pthread_mutexattr_t attributes;

					FILL_GUARDS(mutex);
					printf("-- type %d, protocol %d, robust %d, shared %d\n", type, protocol,
					       robust, shared);
					pthread_mutexattr_init(&attributes);
					pthread_mutexattr_settype(&attributes, types[type]);
					pthread_mutexattr_setprotocol(&attributes, protocols[protocol]);
					pthread_mutexattr_setrobust(&attributes, robust);
					pthread_mutexattr_setpshared(&attributes, shared);
					errno = 4711;
					int status = pthread_mutex_init(&mutex.lock, &attributes);
					printf("init %d errno %d\n", status, errno);
					if (!status)
						take_in_every_way(&mutex.lock, types[type]);
					SAY_GUARDS(mutex);
				}
	return RAN;
}
