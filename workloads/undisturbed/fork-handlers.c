/*
 * Handlers of fork hold a mutex across it while three threads fight for that mutex; the child takes it.  How many children hung is
 * printed.
 */
#include <stdatomic.h>

#include "processes.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;
static long counted;

static void before(void)
{
	pthread_mutex_lock(&mutex);
	usleep(1000);
}

static void after(void)
{
	pthread_mutex_unlock(&mutex);
}

static void *fight(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		counted++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[3];
	int ended_well = 0, hung = 0;

	pthread_atfork(before, after, after);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, fight, NULL);
	for (int round = 0; round < 20 && !hung; round++) {
		pid_t child = fork_clean();

		if (!child) {
			alarm(3);
			for (int i = 0; i < 20; i++) {
				pthread_mutex_lock(&mutex);
				pthread_mutex_unlock(&mutex);
			}
			_exit(42);
		}
		int end = end_of(child);
		ended_well += end == 42;
		hung += end == -SIGALRM;
	}
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("ended well %d, hung %d\n", ended_well, hung);
	return RAN;
}
