/* Threads on the smallest stacks that pthread allows start programs: by posix_spawn, by fork and exec, by vfork and exec. */
#include <limits.h>
#include <spawn.h>

#include "processes.h"

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *words[] = {"sh", "-c", "exit 42", NULL};
static int ended_well;

static void *start(void *argument)
{
	for (int i = 0; i < 4; i++) {
		pid_t spawned, forked, vforked;

		if (posix_spawnp(&spawned, "sh", NULL, NULL, words, environ))
			return argument;
		forked = fork();
		if (!forked) {
			execv("/bin/sh", words);
			_exit(1);
		}
		vforked = vfork();
		if (!vforked) {
			execvp("sh", words);
			_exit(1);
		}
		pthread_mutex_lock(&mutex);
		ended_well += (end_of(spawned) == 42) + (end_of(forked) == 42) + (end_of(vforked) == 42);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[2];
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
	for (int i = 0; i < 2; i++)
		SAY(pthread_create(&threads[i], &attributes, start, NULL));
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("ended well %d\n", ended_well);
	return RAN;
}
