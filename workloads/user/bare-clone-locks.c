/*
 * A child made by a bare `clone` system call, which runs no fork handlers, takes many locks once each; when it has ended, threads of its
 * parent, all alive at once, each take as many others. Before, the parent takes one.
 *
 *     bare-clone-locks LOCKS
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_LOCKS = 1000, THREADS = 16 };

static pthread_mutex_t locks_of_child[MOST_LOCKS], locks_of_parent[MOST_LOCKS], first_lock;

static void take(pthread_mutex_t *locks, int count)
{
	for (int i = 0; i < count; i++) {
		pthread_mutex_lock(&locks[i]);
		pthread_mutex_unlock(&locks[i]);
	}
}

static pthread_barrier_t all_have;
static int locks = MOST_LOCKS;

static void *take_all(void *argument)
{
	take(locks_of_parent, locks);
	pthread_barrier_wait(&all_have);
	return argument;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];
	int status;

	if (count > 1)
		locks = atoi(arguments[1]);
	if (locks > MOST_LOCKS || pthread_barrier_init(&all_have, NULL, THREADS))
		return 9;
	take(&first_lock, 1);
	if (!syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)) {
		take(locks_of_child, locks);
		_exit(0);
	}
	wait(&status);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, take_all, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return status != 0;
}
