/*
 * A child made by a bare `clone` system call, which runs no fork handlers, takes a lock on and on after its parent has ended, while
 * many other processes begin, take another lock, and end.
 *
 *     outlives-parent ROUNDS PROCESSES
 *
 * `child_lock` is taken ROUNDS times, and once by the parent; `others_lock` ten times by each of the processes.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t child_lock = PTHREAD_MUTEX_INITIALIZER, others_lock = PTHREAD_MUTEX_INITIALIZER;

static void take(pthread_mutex_t *lock, int times, int pause_us)
{
	for (int i = 0; i < times; i++) {
		pthread_mutex_lock(lock);
		pthread_mutex_unlock(lock);
		if (pause_us)
			usleep(pause_us);
	}
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 1000, processes = count > 2 ? atoi(arguments[2]) : 300;
	int ended[2];
	char byte;

	if (pipe(ended))
		return 9;
	if (!fork()) {
		take(&child_lock, 1, 0);
		if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) {
			take(&child_lock, rounds, 2000);
			_exit(0);
		}
		_exit(0);
	}
	close(ended[1]);
	wait(NULL);
	for (int i = 0; i < processes; i++) {
		if (!fork()) {
			take(&others_lock, 10, 0);
			_exit(0);
		}
		wait(NULL);
		usleep(5000);
	}
	/* Until nobody has the other end: the child has ended. */
	return read(ended[0], &byte, 1) != 0;
}
