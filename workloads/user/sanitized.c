/*
 * Uses every kind of lock in two threads, without a race: to be built with sanitizers, or run by valgrind's tools, none of which finds
 * anything. Mutexes are contended.
 *
 *     sanitized [STATUS]
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ROUNDS = 20, HOLD_US = 1000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t semaphore;
static int by_mutex, by_rwlock, by_semaphore, by_barrier, turn;

static void *use(void *number)
{
	int own = number != NULL;

	for (int round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&mutex);
		by_mutex++;
		usleep(HOLD_US);
		pthread_mutex_unlock(&mutex);

		pthread_rwlock_wrlock(&rwlock);
		by_rwlock++;
		pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_rdlock(&rwlock);
		int seen = by_rwlock;
		pthread_rwlock_unlock(&rwlock);
		if (!seen)
			abort();

		sem_wait(&semaphore);
		by_semaphore++;
		sem_post(&semaphore);

		pthread_mutex_lock(&mutex);
		while (turn != own)
			pthread_cond_wait(&turn_changed, &mutex);
		turn = !own;
		pthread_cond_signal(&turn_changed);
		pthread_mutex_unlock(&mutex);

		pthread_barrier_wait(&barrier);
		if (!own)
			by_barrier++;
		pthread_barrier_wait(&barrier);
		if (by_barrier != round + 1)
			abort();
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t other;

	pthread_barrier_init(&barrier, NULL, 2);
	sem_init(&semaphore, 0, 1);
	pthread_create(&other, NULL, use, &other);
	use(NULL);
	pthread_join(other, NULL);
	printf("%d %d %d %d\n", by_mutex, by_rwlock, by_semaphore, by_barrier);
	return argc > 1 ? atoi(argv[1]) : 0;
}
