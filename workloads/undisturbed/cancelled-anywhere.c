/* Threads are cancelled asynchronously: at any instruction of a loop that locks. A robust mutex says whether its owner died. */
#include "transcript.h"

#define TURNS 300

static pthread_mutex_t robust, plain = PTHREAD_MUTEX_INITIALIZER;

static void *lock_on(void *argument)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;) {
		pthread_mutex_lock(&own);
		pthread_mutex_unlock(&own);
		if (pthread_mutex_lock(&robust) == EOWNERDEAD)
			pthread_mutex_consistent(&robust);
		pthread_mutex_unlock(&robust);
	}
	return argument;
}

int main(void)
{
	pthread_mutexattr_t attributes;
	int cancelled = 0, status;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	for (int i = 0; i < TURNS; i++) {
		pthread_t threads[2];

		for (int k = 0; k < 2; k++)
			pthread_create(&threads[k], NULL, lock_on, NULL);
		usleep(200 + i % 7 * 30);
		for (int k = 0; k < 2; k++)
			pthread_cancel(threads[k]);
		for (int k = 0; k < 2; k++) {
			void *result;

			pthread_join(threads[k], &result);
			cancelled += result == PTHREAD_CANCELED;
		}
	}
	status = pthread_mutex_lock(&robust);
	if (status == EOWNERDEAD)
		status = pthread_mutex_consistent(&robust);
	pthread_mutex_unlock(&robust);
	pthread_mutex_lock(&plain);
	pthread_mutex_unlock(&plain);
	printf("cancelled %d, the robust mutex %d\n", cancelled, status);
	return RAN;
}
