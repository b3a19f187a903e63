/* Threads cancelled in every wait there is, at once and deferred; cleanup handlers unlock what was locked. */
#include <semaphore.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore, ready;
static int cleaned;

static void unlock(void *lock)
{
	cleaned += pthread_mutex_unlock(lock) == 0;
}

static void *in_condition(void *argument)
{
	struct timespec late = soon(CLOCK_REALTIME, 600000 * MILLISECOND);
	long way = (long)argument;

	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	sem_post(&ready);
	if (way == 0)
		pthread_cond_wait(&condition, &mutex);
	else if (way == 1)
		pthread_cond_timedwait(&condition, &mutex, &late);
	else {
		late = soon(CLOCK_MONOTONIC, 600000 * MILLISECOND);
		pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &late);
	}
	pthread_cleanup_pop(1);
	return NULL;
}

static void *in_semaphore(void *argument)
{
	struct timespec late = soon(CLOCK_REALTIME, 600000 * MILLISECOND);
	long way = (long)argument;

	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	sem_post(&ready);
	if (way == 0)
		sem_wait(&semaphore);
	else if (way == 1)
		sem_timedwait(&semaphore, &late);
	else {
		late = soon(CLOCK_MONOTONIC, 600000 * MILLISECOND);
		sem_clockwait(&semaphore, CLOCK_MONOTONIC, &late);
	}
	pthread_cleanup_pop(1);
	return NULL;
}

/* No cancellation points: the thread ends by itself at the next one. */
static void *in_lock(void *argument)
{
	long way = (long)argument;

	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(unlock, &mutex);
	sem_post(&ready);
	if (way == 0) {
		pthread_mutex_lock(&held);
		pthread_mutex_unlock(&held);
	} else {
		way == 1 ? pthread_rwlock_rdlock(&rwlock) : pthread_rwlock_wrlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
	cleaned += 100;
	pthread_testcancel();
	pthread_cleanup_pop(1);
	return NULL;
}

static void *asynchronously(void *argument)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	sem_post(&ready);
	for (;;)
		;
	return argument;
}

static void cancel(const char *what, void *(*function)(void *), long way)
{
	pthread_t thread;
	void *result;

	cleaned = 0;
	pthread_mutex_lock(&held);
	pthread_rwlock_wrlock(&rwlock);
	pthread_create(&thread, NULL, function, (void *)way);
	sem_wait(&ready);
	usleep(2000);
	pthread_cancel(thread);
	usleep(2000);
	pthread_mutex_unlock(&held);
	pthread_rwlock_unlock(&rwlock);
	pthread_join(thread, &result);
	printf("%s, way %ld: cancelled %d, cleaned %d, mutex free %d\n", what, way, result == PTHREAD_CANCELED, cleaned,
	       pthread_mutex_trylock(&mutex) == 0);
	pthread_mutex_unlock(&mutex);
}

int main(void)
{
	sem_init(&semaphore, 0, 0);
	sem_init(&ready, 0, 0);
	for (long way = 0; way < 3; way++) {
		cancel("condition", in_condition, way);
		cancel("semaphore", in_semaphore, way);
		cancel("lock", in_lock, way);
	}
	cancel("asynchronously", asynchronously, 0);
	SAY(sem_trywait(&semaphore));
	return RAN;
}
