/* A program whose own lock is contended: threads sleep with a pthread mutex held. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 50, HOLD_US = 1000 };

static pthread_mutex_t accounts = PTHREAD_MUTEX_INITIALIZER;

static void *hold(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		pthread_mutex_lock(&accounts);
		usleep(HOLD_US);
		pthread_mutex_unlock(&accounts);
	}
	return unused;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, hold, NULL))
			return EXIT_FAILURE;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return EXIT_SUCCESS;
}
