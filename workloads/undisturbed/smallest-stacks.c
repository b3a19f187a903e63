/* Threads on the smallest stacks that pthread allows contend for a mutex, a reader-writer lock and a semaphore. */
#include <limits.h>
#include <semaphore.h>

#include "transcript.h"

#define THREADS 8

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static sem_t semaphore;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mutex);
		pthread_rwlock_wrlock(&rwlock);
		sem_wait(&semaphore);
		counted++;
		sem_post(&semaphore);
		pthread_rwlock_unlock(&rwlock);
		pthread_mutex_unlock(&mutex);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attributes;

	sem_init(&semaphore, 0, 1);
	pthread_attr_init(&attributes);
	SAY(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
	for (int i = 0; i < THREADS; i++)
		SAY(pthread_create(&threads[i], &attributes, work, NULL));
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
