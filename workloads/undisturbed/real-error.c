/* real-error race|overflow|leak|undefined|uninitialized: an error that a sanitizer must find, with a meter as without. */
#include <stdint.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static int raced;

static void *race(void *lock)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(lock);
		raced++;
		pthread_mutex_unlock(lock);
		usleep(10);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	const char *error = count > 1 ? arguments[1] : "race";
	volatile int index = 10;
	char *volatile bytes = malloc(10);
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, race, i && !strcmp(error, "race") ? &other : &mutex);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (!strcmp(error, "overflow"))
		bytes[index] = 1;
	if (!strcmp(error, "uninitialized") && bytes[3] == 5)
		puts("it was 5");
	if (!strcmp(error, "undefined"))
		index = INT32_MAX - 9 + index;
	if (strcmp(error, "leak"))
		free(bytes);
	else
		bytes = NULL;
	puts("ended");
	return RAN;
}
