/* Signal handlers post a semaphore and take a mutex of their own while their threads lock, wait and are interrupted. */
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, of_handlers = PTHREAD_MUTEX_INITIALIZER;
static sem_t posted, empty;
static atomic_int handled, stop;
static int counted;

static void handler(int number)
{
	int before = errno;

	(void)number;
	sem_post(&posted);
	/* Taken by handlers alone, which do not interrupt one another. */
	if (!pthread_mutex_trylock(&of_handlers))
		pthread_mutex_unlock(&of_handlers);
	handled++;
	errno = before;
}

static void *send_all(void *argument)
{
	pthread_t *target = argument;

	while (!stop) {
		pthread_kill(*target, SIGUSR1);
		usleep(20);
	}
	return NULL;
}

static void *contend(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		usleep(10);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t sender, contender, self = pthread_self();
	int interrupted = 0, ended = 0, value;

	sem_init(&posted, 0, 0);
	sem_init(&empty, 0, 0);
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&sender, NULL, send_all, &self);
	pthread_create(&contender, NULL, contend, NULL);
	for (int i = 0; i < 20000; i++) {
		errno = 4711;
		pthread_mutex_lock(&mutex);
		counted += errno == 4711;
		pthread_mutex_unlock(&mutex);
	}
	for (int i = 0; i < 20; i++)
		interrupted += sem_wait(&empty) == -1 && errno == EINTR;
	/* Started anew by the kernel after a handler, but not if the time was up by then. */
	action.sa_flags = SA_RESTART;
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < 20; i++) {
		struct timespec until = soon(CLOCK_REALTIME, MILLISECOND);

		ended += sem_timedwait(&empty, &until) == -1 && (errno == ETIMEDOUT || errno == EINTR);
	}
	stop = 1;
	pthread_join(sender, NULL);
	pthread_join(contender, NULL);
	sem_getvalue(&posted, &value);
	printf("counted %d, interrupted %d, ended without %d, posted as handled %d\n", counted, interrupted, ended,
	       value == handled);
	return RAN;
}
