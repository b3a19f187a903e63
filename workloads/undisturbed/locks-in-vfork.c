/*
 * Children of vfork lock, contended and not, before they end or execute something: they are other tasks with the thread-local storage of
 * the thread that waits for them.
 */
#include <stdatomic.h>

#include "processes.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static volatile int counted;

static void *lock_on(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		usleep(50);
		pthread_mutex_unlock(&mutex);
		usleep(10);
	}
	return argument;
}

int main(void)
{
	pthread_t thread;
	static int ends;

	pthread_create(&thread, NULL, lock_on, NULL);
	for (int i = 0; i < 200; i++) {
		pthread_mutex_lock(&own);
		pid_t child = vfork();

		if (!child) {
			pthread_mutex_lock(&mutex);
			counted++;
			pthread_mutex_unlock(&mutex);
			if (i % 2)
				execl("/bin/sh", "sh", "-c", "exit 3", NULL);
			_exit(3);
		}
		ends += end_of(child);
		pthread_mutex_unlock(&own);
	}
	stop = 1;
	pthread_join(thread, NULL);
	printf("counted %d, ends %d\n", counted, ends);
	return RAN;
}
