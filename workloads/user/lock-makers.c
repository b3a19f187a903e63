/*
 * lock-makers init N | fork N: makes N mutexes in an array at one place; or N children one after another, each of which takes a mutex once.
 *
 * Prints one line of JSON with the page faults of all children.  Exit status: 0 ran, 1 failed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void make(pthread_mutex_t *locks, int count)
{
	for (int i = 0; i < count; i++)
		pthread_mutex_init(&locks[i], NULL);
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 0;
	struct rusage children;

	if (!count)
		return 1;
	if (!strcmp(argv[1], "init")) {
		pthread_mutex_t *locks = malloc(count * sizeof(*locks));

		/* The pages are there before. */
		memset(locks, 1, count * sizeof(*locks));
		make(locks, count);
		count = 0;
	}
	for (int i = 0; i < count; i++) {
		pid_t child = fork();

		if (!child) {
			pthread_mutex_lock(&lock);
			pthread_mutex_unlock(&lock);
			_exit(0);
		}
		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	getrusage(RUSAGE_CHILDREN, &children);
	printf("{\"faults\": %ld}\n", children.ru_minflt);
	return 0;
}
