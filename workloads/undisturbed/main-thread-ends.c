/* The main thread ends first, by pthread_exit while it is not the last; the process goes on and ends with status 0. */
#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t first;
static int taken;

static void *work(void *argument)
{
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&mutex);
		taken++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void *last(void *argument)
{
	pthread_t threads[4];

	pthread_join(first, NULL);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("taken %d times\n", taken);
	return argument;
}

int main(void)
{
	pthread_t thread;

	first = pthread_self();
	pthread_create(&thread, NULL, last, NULL);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	pthread_exit(NULL);
}
