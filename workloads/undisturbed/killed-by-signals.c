/* killed-by-signals abort|segv|kill|term|exit: ends in this way while threads hold and wait for locks. */
#include <signal.h>
#include <sys/resource.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* Not constant, so that compilers do not warn of what it is for. */
static volatile long nowhere = 8;

static void *contend(void *argument)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		usleep(100);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(int count, char **arguments)
{
	struct rlimit none = {0, 0};
	const char *how = count > 1 ? arguments[1] : "exit";
	pthread_t thread;

	setrlimit(RLIMIT_CORE, &none);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, contend, NULL);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	usleep(3000);
	printf("ends: %s\n", how);
	fprintf(stderr, "said on standard error\n");
	fflush(stdout);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		*(volatile int *)nowhere = 1;
	if (!strcmp(how, "kill"))
		kill(getpid(), SIGKILL);
	if (!strcmp(how, "term"))
		raise(SIGTERM);
	exit(99);
}
