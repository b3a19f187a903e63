/* Destructors of thread-specific data that take locks, and set the data again, so that they run in every round there is. */
#include <limits.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_key_t keys[3];
static int calls;

static void destroy(void *argument)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&mutex);
	calls++;
	pthread_mutex_lock(&own);
	pthread_mutex_unlock(&own);
	pthread_mutex_unlock(&mutex);
	pthread_setspecific(keys[(long)argument - 1], argument);
}

static void *work(void *argument)
{
	for (long i = 0; i < 3; i++)
		pthread_setspecific(keys[i], (void *)(i + 1));
	return argument;
}

int main(void)
{
	pthread_t threads[20];

	for (int i = 0; i < 3; i++)
		SAY(pthread_key_create(&keys[i], destroy));
	for (int i = 0; i < 20; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 20; i++)
		pthread_join(threads[i], NULL);
	printf("calls %d of %d\n", calls, 20 * 3 * PTHREAD_DESTRUCTOR_ITERATIONS);
	return RAN;
}
