/*
 * executed-by-a-thread [ROUNDS]: executes itself again and again from a second thread, while others hold and wait for locks and end
 * with it.
 */
#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *program;

static void *contend(void *argument)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		usleep(50);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void *execute(void *round)
{
	char left[20];
	char *arguments[] = {program, left, NULL};

	snprintf(left, sizeof(left), "%ld", (long)round - 1);
	pthread_mutex_lock(&mutex);
	execv("/proc/self/exe", arguments);
	return NULL;
}

int main(int count, char **arguments)
{
	long round = count > 1 ? atol(arguments[1]) : 10;
	pthread_t thread;

	program = arguments[0];
	printf("round %ld\n", round);
	fflush(stdout);
	if (!round)
		return RAN;
	for (int i = 0; i < 3; i++)
		pthread_create(&thread, NULL, contend, NULL);
	pthread_create(&thread, NULL, execute, (void *)round);
	pthread_join(thread, NULL);
	return 1;
}
