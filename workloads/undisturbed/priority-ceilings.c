/* Mutexes with a priority ceiling: the ceiling is read and changed, held or free, and a real-time thread below it takes one. */
#include <sched.h>

#include "transcript.h"

static GUARDED(pthread_mutex_t) mutex;

static void *lock_with_priority(void *argument)
{
	struct sched_param priority = {.sched_priority = (int)(long)argument};
	int now, policy;

	SAY(pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority));
	SAY(pthread_mutex_lock(&mutex.lock));
	SAY(pthread_mutex_trylock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	pthread_getschedparam(pthread_self(), &policy, &priority);
	now = priority.sched_priority;
	printf("policy %d, priority %d\n", policy, now);
	return NULL;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	int ceiling = -1;

	FILL_GUARDS(mutex);
	SAY(pthread_mutexattr_init(&attributes));
	SAY(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_PROTECT));
	SAY(pthread_mutexattr_setprioceiling(&attributes, 10));
	SAY(pthread_mutex_init(&mutex.lock, &attributes));
	SAY(pthread_mutex_getprioceiling(&mutex.lock, &ceiling));
	printf("ceiling %d\n", ceiling);
	in_thread(lock_with_priority, (void *)5L);
	in_thread(lock_with_priority, (void *)10L);
	in_thread(lock_with_priority, (void *)11L);
	SAY(pthread_mutex_setprioceiling(&mutex.lock, 20, &ceiling));
	printf("it was %d\n", ceiling);
	in_thread(lock_with_priority, (void *)11L);
	SAY(pthread_mutex_lock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY(pthread_mutex_destroy(&mutex.lock));
	SAY_GUARDS(mutex);
	return RAN;
}
