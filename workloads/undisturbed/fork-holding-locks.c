/* fork while the forking thread holds locks of every kind, and while others wait for them: both processes unlock their own. */
#include <semaphore.h>

#include "processes.h"

static GUARDED(pthread_mutex_t) mutex, recursive, checking;
static GUARDED(pthread_rwlock_t) rwlock;
static pthread_spinlock_t spin;
static sem_t semaphore;
static int taken;

static void *wait_for(void *argument)
{
	pthread_mutex_lock(&mutex.lock);
	taken++;
	pthread_mutex_unlock(&mutex.lock);
	return argument;
}

static void lock_all(void)
{
	pthread_mutex_lock(&mutex.lock);
	/* Not for writing: a writer is known by its thread id, which the child does not have. */
	pthread_rwlock_rdlock(&rwlock.lock);
	pthread_spin_lock(&spin);
	sem_wait(&semaphore);
}

static int unlock_all(void)
{
	return pthread_mutex_unlock(&mutex.lock) + pthread_rwlock_unlock(&rwlock.lock) + pthread_spin_unlock(&spin) +
	       sem_post(&semaphore);
}

/* These know their owner, who is not in the child. */
static int unlock_owned(void)
{
	return pthread_mutex_unlock(&recursive.lock) * 100 + pthread_mutex_unlock(&checking.lock);
}

int main(void)
{
	pthread_mutexattr_t attributes;
	pthread_t waiters[2];

	FILL_GUARDS(mutex);
	FILL_GUARDS(recursive);
	FILL_GUARDS(checking);
	FILL_GUARDS(rwlock);
	pthread_mutex_init(&mutex.lock, NULL);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&recursive.lock, &attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(&checking.lock, &attributes);
	pthread_rwlock_init(&rwlock.lock, NULL);
	pthread_spin_init(&spin, 0);
	sem_init(&semaphore, 0, 1);
	for (int round = 0; round < 10; round++) {
		lock_all();
		pthread_mutex_lock(&recursive.lock);
		pthread_mutex_lock(&checking.lock);
		for (int i = 0; i < 2; i++)
			pthread_create(&waiters[i], NULL, wait_for, NULL);
		usleep(500);
		pid_t child = fork_clean();
		if (!child) {
			SAY(unlock_owned());
			SAY(unlock_all());
			lock_all();
			SAY(unlock_all());
			fflush(stdout);
			_exit(42);
		}
		SAY(end_of(child));
		SAY(unlock_all());
		SAY(unlock_owned());
		for (int i = 0; i < 2; i++)
			pthread_join(waiters[i], NULL);
	}
	printf("taken %d times\n", taken);
	SAY_GUARDS(mutex);
	SAY_GUARDS(recursive);
	SAY_GUARDS(checking);
	SAY_GUARDS(rwlock);
	return RAN;
}
