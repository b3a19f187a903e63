/*
 * Threads and processes by the thousand, each of which waits for a lock now and then.
 *
 *     storm THREADS FORKS EXECS
 *
 * Prints one line of JSON with the locks taken and the children that ended well.  Exit status: 0 ran, 1 failed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_A_TIME 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long taken;

static void *take(void *argument)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		taken++;
		if (i % 10 == 0)
			sched_yield();
		pthread_mutex_unlock(&lock);
	}
	return argument;
}

static long threads(long count)
{
	pthread_t started[AT_A_TIME];
	long done = 0;

	while (done < count) {
		int now = 0;

		while (now < AT_A_TIME && done + now < count && !pthread_create(&started[now], NULL, take, NULL))
			now++;
		if (!now)
			exit(1);
		for (int i = 0; i < now; i++)
			pthread_join(started[i], NULL);
		done += now;
	}
	return done;
}

static long children(long count, char *program)
{
	long well = 0;

	for (long i = 0; i < count; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			if (program) {
				execl(program, program, "4", "0", "0", (char *)NULL);
				_exit(1);
			}
			threads(2);
			_exit(0);
		}
		waitpid(child, &status, 0);
		well += WIFEXITED(status) && !WEXITSTATUS(status);
	}
	return well;
}

int main(int argc, char **argv)
{
	long wanted[3] = {0};

	for (int i = 1; i < argc && i < 4; i++)
		wanted[i - 1] = atol(argv[i]);
	threads(wanted[0]);
	if (!wanted[1] && !wanted[2])
		return 0;
	long forked = children(wanted[1], NULL), ran = children(wanted[2], "/proc/self/exe");

	printf("{\"workload\":\"storm\",\"taken\":%ld,\"forked\":%ld,\"ran\":%ld}\n", taken, forked, ran);
	return 0;
}
