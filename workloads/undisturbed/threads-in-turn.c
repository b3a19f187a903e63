/* 20,000 threads, 50 of them alive at a time, joined and detached: each takes a mutex of its own and one of all. */
#include <semaphore.h>

#include "transcript.h"

#define THREADS 20000
#define ALIVE 50

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static sem_t ended;
static int taken;

static void *work(void *detached)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&own);
	pthread_mutex_lock(&mutex);
	taken++;
	pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&own);
	if (detached)
		sem_post(&ended);
	return NULL;
}

int main(void)
{
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	sem_init(&ended, 0, 0);
	for (int round = 0; round < THREADS / ALIVE; round++) {
		pthread_t threads[ALIVE];
		int detached = round % 2;

		pthread_attr_setdetachstate(&attributes, detached);
		for (long i = 0; i < ALIVE; i++)
			if (pthread_create(&threads[i], &attributes, work, (void *)(long)detached))
				return 1;
		for (int i = 0; i < ALIVE; i++)
			if (detached)
				sem_wait(&ended);
			else
				pthread_join(threads[i], NULL);
	}
	printf("taken %d times\n", taken);
	return RAN;
}
