/* A library to be preloaded, whose constructor starts threads that lock while the program begins, and whose destructor joins them. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t threads[2];
static atomic_int stop;

static void *contend(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		usleep(50);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

__attribute__((constructor)) static void start(void)
{
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, contend, NULL);
}

__attribute__((destructor)) static void end(void)
{
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
}
