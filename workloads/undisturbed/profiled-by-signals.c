/* A profiler in the program: SIGPROF handlers walk the stack of whatever they interrupt, locks included. */
#include <execinfo.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>

#include "transcript.h"

#define ENOUGH 40

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int handled, short_stacks;

static void handler(int number)
{
	void *frames[64];

	(void)number;
	/* Handler, its return, and at least one of the program. */
	short_stacks += backtrace(frames, 64) < 3;
	handled++;
}

static void *work(void *argument)
{
	while (handled < ENOUGH) {
		for (int i = 0; i < 100; i++) {
			pthread_mutex_lock(&mutex);
			pthread_mutex_unlock(&mutex);
			pthread_rwlock_wrlock(&rwlock);
			pthread_rwlock_unlock(&rwlock);
		}
	}
	return argument;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
	pthread_t threads[2];
	void *frame;

	/* It loads the unwinder, which is not for handlers. */
	backtrace(&frame, 1);
	sigaction(SIGPROF, &action, NULL);
	setitimer(ITIMER_PROF, &timer, NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	setitimer(ITIMER_PROF, &off, NULL);
	printf("handled enough: %d, short stacks: %d\n", handled >= ENOUGH, short_stacks);
	return RAN;
}
