/* contends [THREADS]: threads contend for a mutex, a reader-writer lock, a semaphore and a condition.  What other tests run in odd places. */
#include <semaphore.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static int counted, written;

static void *work(void *argument)
{
	for (int i = 0; i < 200; i++) {
		pthread_mutex_t *own = malloc(sizeof(*own));

		pthread_mutex_init(own, NULL);
		pthread_mutex_lock(own);
		pthread_mutex_lock(&mutex);
		counted++;
		if (i % 20 == 0)
			usleep(50);
		pthread_cond_signal(&condition);
		pthread_mutex_unlock(&mutex);
		pthread_mutex_unlock(own);
		pthread_mutex_destroy(own);
		free(own);
		pthread_rwlock_wrlock(&rwlock);
		written++;
		pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		sem_wait(&semaphore);
		sem_post(&semaphore);
	}
	return argument;
}

int main(int count, char **arguments)
{
	int threads = count > 1 ? atoi(arguments[1]) : 4;
	pthread_t ids[64];

	sem_init(&semaphore, 0, 1);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, work, NULL))
			return 1;
	pthread_mutex_lock(&mutex);
	while (counted < 200 * threads)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("counted %d, written %d\n", counted, written);
	fprintf(stderr, "said on standard error\n");
	return RAN;
}
