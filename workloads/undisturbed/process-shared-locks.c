/* Mutex, reader-writer lock, condition, semaphore and barrier in shared memory, used by four processes at once. */
#include <semaphore.h>
#include <sys/mman.h>

#include "processes.h"

#define CHILDREN 4
#define ROUNDS 200

struct shared {
	GUARDED(pthread_mutex_t) mutex;
	GUARDED(pthread_rwlock_t) rwlock;
	GUARDED(pthread_cond_t) condition;
	GUARDED(sem_t) semaphore;
	GUARDED(pthread_barrier_t) barrier;
	int counted, written, turn, serial;
};

static void use(struct shared *shared, int self)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&shared->mutex.lock);
		shared->counted++;
		while (shared->turn % CHILDREN != self)
			pthread_cond_wait(&shared->condition.lock, &shared->mutex.lock);
		shared->turn++;
		pthread_cond_broadcast(&shared->condition.lock);
		pthread_mutex_unlock(&shared->mutex.lock);
		pthread_rwlock_wrlock(&shared->rwlock.lock);
		shared->written++;
		pthread_rwlock_unlock(&shared->rwlock.lock);
		sem_wait(&shared->semaphore.lock);
		sem_post(&shared->semaphore.lock);
		if (pthread_barrier_wait(&shared->barrier.lock) == PTHREAD_BARRIER_SERIAL_THREAD)
			shared->serial++;
	}
}

int main(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t mutex;
	pthread_rwlockattr_t rwlock;
	pthread_condattr_t condition;
	pthread_barrierattr_t barrier;
	pid_t children[CHILDREN];

	FILL_GUARDS(shared->mutex);
	FILL_GUARDS(shared->rwlock);
	FILL_GUARDS(shared->condition);
	FILL_GUARDS(shared->semaphore);
	FILL_GUARDS(shared->barrier);
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_rwlockattr_init(&rwlock);
	pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
	pthread_condattr_init(&condition);
	pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
	pthread_barrierattr_init(&barrier);
	pthread_barrierattr_setpshared(&barrier, PTHREAD_PROCESS_SHARED);
	SAY(pthread_mutex_init(&shared->mutex.lock, &mutex));
	SAY(pthread_rwlock_init(&shared->rwlock.lock, &rwlock));
	SAY(pthread_cond_init(&shared->condition.lock, &condition));
	SAY(sem_init(&shared->semaphore.lock, 1, 1));
	SAY(pthread_barrier_init(&shared->barrier.lock, &barrier, CHILDREN));
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork_clean();
		if (!children[i]) {
			use(shared, i);
			_exit(i);
		}
	}
	for (int i = 0; i < CHILDREN; i++)
		printf("child ended: %d\n", end_of(children[i]));
	printf("counted %d, written %d, turns %d, serial %d\n", shared->counted, shared->written, shared->turn,
	       shared->serial);
	SAY_GUARDS(shared->mutex);
	SAY_GUARDS(shared->rwlock);
	SAY_GUARDS(shared->condition);
	SAY_GUARDS(shared->semaphore);
	SAY_GUARDS(shared->barrier);
	return RAN;
}
