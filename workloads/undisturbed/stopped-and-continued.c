/* A child stops and continues its parent, whose threads hold and wait for locks meanwhile. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static atomic_int stop;
static int counted, seen;

static void *work(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		counted++;
		usleep(50);
		pthread_cond_signal(&condition);
		pthread_mutex_unlock(&mutex);
		usleep(10);
	}
	return argument;
}

static void *wait_for_counts(void *argument)
{
	pthread_mutex_lock(&mutex);
	while (!stop) {
		struct timespec until = soon(CLOCK_REALTIME, 5 * MILLISECOND);

		if (!pthread_cond_timedwait(&condition, &mutex, &until))
			seen++;
	}
	pthread_mutex_unlock(&mutex);
	return argument;
}

int main(void)
{
	pthread_t threads[3];
	pid_t parent = getpid(), child;
	int status;

	pthread_create(&threads[0], NULL, work, NULL);
	pthread_create(&threads[1], NULL, work, NULL);
	pthread_create(&threads[2], NULL, wait_for_counts, NULL);
	child = fork();
	if (!child) {
		for (int i = 0; i < 20; i++) {
			kill(parent, SIGSTOP);
			usleep(2000);
			kill(parent, SIGCONT);
			usleep(1000);
		}
		_exit(0);
	}
	while (waitpid(child, &status, 0) == -1 && errno == EINTR)
		;
	stop = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	printf("the child ended with %d, counted %d, seen %d\n", WEXITSTATUS(status), counted > 0, seen > 0);
	return RAN;
}
