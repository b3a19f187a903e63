/*
 * lock-makers init N | fork N: makes N mutexes in an array at one place; or N children one after another, each of which takes a mutex once.
 *
 * Prints one line of JSON: the page faults of all children, and nanoseconds for each mutex (of CPU time) or child (of the clock's, from
 * the fork until it has ended).  Exit status: 0 ran, 1 failed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void make(pthread_mutex_t *locks, int count)
{
	for (int i = 0; i < count; i++)
		pthread_mutex_init(&locks[i], NULL);
}

/* A function of its own, so that its instructions can be counted, those of the child as well. */
__attribute__((noinline)) static pid_t fork_and_lock(void)
{
	pid_t child = fork();

	if (!child) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		_exit(0);
	}
	return child;
}

static double now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int argc, char **argv)
{
	int count = argc > 2 ? atoi(argv[2]) : 0;
	struct rusage children;
	double each_ns = 0, begun;

	if (!count)
		return 1;
	if (!strcmp(argv[1], "init")) {
		pthread_mutex_t *locks = malloc(count * sizeof(*locks));

		/* The pages are there before. */
		memset(locks, 1, count * sizeof(*locks));
		begun = now_ns(CLOCK_PROCESS_CPUTIME_ID);
		make(locks, count);
		each_ns = (now_ns(CLOCK_PROCESS_CPUTIME_ID) - begun) / count;
		count = 0;
	}
	begun = now_ns(CLOCK_MONOTONIC);
	for (int i = 0; i < count; i++) {
		pid_t child = fork_and_lock();

		if (child < 0 || waitpid(child, NULL, 0) != child)
			return 1;
	}
	if (count)
		each_ns = (now_ns(CLOCK_MONOTONIC) - begun) / count;
	getrusage(RUSAGE_CHILDREN, &children);
	printf("{\"faults\": %ld, \"each_ns\": %.1f}\n", children.ru_minflt, each_ns);
	return 0;
}
