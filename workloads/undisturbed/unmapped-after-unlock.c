/*
 * Locks whose memory the next owner unmaps as soon as it has unlocked: a function that unlocks may not touch the lock once another thread
 * can have it.
 */
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "transcript.h"

#define ROUNDS 600

union lock {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_spinlock_t spin;
	sem_t semaphore;
};

static union lock *_Atomic handed_over;
static atomic_int kind;
static pthread_barrier_t barrier;
static int unmapped;

static void make(union lock *lock)
{
	switch (kind) {
	case 0:
		pthread_mutex_init(&lock->mutex, NULL);
		pthread_mutex_lock(&lock->mutex);
		break;
	case 1:
		pthread_rwlock_init(&lock->rwlock, NULL);
		pthread_rwlock_wrlock(&lock->rwlock);
		break;
	case 2:
		pthread_spin_init(&lock->spin, 0);
		pthread_spin_lock(&lock->spin);
		break;
	default:
		sem_init(&lock->semaphore, 0, 0);
	}
}

static void acquire(union lock *lock)
{
	switch (kind) {
	case 0:
		pthread_mutex_lock(&lock->mutex);
		break;
	case 1:
		pthread_rwlock_rdlock(&lock->rwlock);
		break;
	case 2:
		pthread_spin_lock(&lock->spin);
		break;
	default:
		sem_wait(&lock->semaphore);
	}
}

static void release(union lock *lock)
{
	switch (kind) {
	case 0:
		pthread_mutex_unlock(&lock->mutex);
		break;
	case 1:
		pthread_rwlock_unlock(&lock->rwlock);
		break;
	case 2:
		pthread_spin_unlock(&lock->spin);
		break;
	default:
		sem_post(&lock->semaphore);
	}
}

static int try_it(union lock *lock)
{
	switch (kind) {
	case 0:
		return pthread_mutex_trylock(&lock->mutex);
	case 1:
		return pthread_rwlock_trywrlock(&lock->rwlock);
	case 2:
		return pthread_spin_trylock(&lock->spin);
	default:
		return sem_trywait(&lock->semaphore);
	}
}

/* It waits in the lock, or tries without end, which has it sooner. */
static void *unmap(void *argument)
{
	for (int round = 0; round < ROUNDS; round++) {
		union lock *lock;

		while (!(lock = atomic_exchange(&handed_over, NULL)))
			sched_yield();
		if (round % 2)
			acquire(lock);
		else
			for (int tries = 1; try_it(lock); tries++)
				if (tries % 100 == 0)
					sched_yield();
		if (kind != 3)
			release(lock);
		unmapped += !munmap(lock, 4096);
		pthread_barrier_wait(&barrier);
	}
	return argument;
}

int main(void)
{
	pthread_barrier_init(&barrier, NULL, 2);
	for (kind = 0; kind < 4; kind++) {
		pthread_t thread;

		pthread_create(&thread, NULL, unmap, NULL);
		for (int round = 0; round < ROUNDS; round++) {
			union lock *lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			make(lock);
			handed_over = lock;
			if (round % 3)
				sched_yield();
			release(lock);
			pthread_barrier_wait(&barrier);
		}
		pthread_join(thread, NULL);
		printf("kind %d, unmapped %d\n", kind, unmapped);
	}
	return RAN;
}
