/*
 * The same memory is one kind of lock after another, with and without being destroyed: made by a call, by a static initializer, by
 * zeros.
 */
#include <semaphore.h>

#include "transcript.h"

static GUARDED(union {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spin;
	pthread_cond_t condition;
	pthread_barrier_t barrier;
	sem_t semaphore;
}) memory;

static void *hold_mutex(void *argument)
{
	SAY(pthread_mutex_trylock(&memory.lock.mutex));
	return argument;
}

static void be_mutex(const pthread_mutex_t *initial)
{
	if (initial)
		memory.lock.mutex = *initial;
	else
		memset(&memory.lock, 0, sizeof(memory.lock));
	SAY(pthread_mutex_lock(&memory.lock.mutex));
	SAY(pthread_mutex_trylock(&memory.lock.mutex));
	in_thread(hold_mutex, NULL);
	SAY(pthread_mutex_unlock(&memory.lock.mutex));
}

static void be_rwlock(const pthread_rwlock_t *initial)
{
	if (initial)
		memory.lock.rwlock = *initial;
	else
		SAY(pthread_rwlock_init(&memory.lock.rwlock, NULL));
	SAY(pthread_rwlock_rdlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_tryrdlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_trywrlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_unlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_unlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_trywrlock(&memory.lock.rwlock));
	SAY(pthread_rwlock_unlock(&memory.lock.rwlock));
}

static void be_others(void)
{
	SAY(pthread_spin_init(&memory.lock.spin, 0));
	SAY(pthread_spin_lock(&memory.lock.spin));
	SAY(pthread_spin_trylock(&memory.lock.spin));
	SAY(pthread_spin_unlock(&memory.lock.spin));
	SAY(sem_init(&memory.lock.semaphore, 0, 1));
	SAY(sem_wait(&memory.lock.semaphore));
	SAY(sem_trywait(&memory.lock.semaphore));
	SAY(pthread_barrier_init(&memory.lock.barrier, NULL, 1));
	SAY(pthread_barrier_wait(&memory.lock.barrier));
	SAY(pthread_cond_init(&memory.lock.condition, NULL));
	SAY(pthread_cond_signal(&memory.lock.condition));
}

int main(void)
{
	static const pthread_mutex_t mutexes[] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
						  PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
						  PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP};
	static const pthread_rwlock_t rwlocks[] = {PTHREAD_RWLOCK_INITIALIZER,
						   PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};

	FILL_GUARDS(memory);
	for (int round = 0; round < 3; round++) {
		for (int type = 0; type < 4; type++) {
			be_mutex(&mutexes[type]);
			be_rwlock(&rwlocks[type % 2]);
			be_others();
			be_mutex(NULL);
			be_rwlock(NULL);
			SAY(pthread_rwlock_destroy(&memory.lock.rwlock));
		}
		SAY(pthread_mutex_init(&memory.lock.mutex, NULL));
		SAY(pthread_mutex_lock(&memory.lock.mutex));
		SAY(pthread_mutex_unlock(&memory.lock.mutex));
		SAY(pthread_mutex_destroy(&memory.lock.mutex));
	}
	SAY_GUARDS(memory);
	return RAN;
}
