/*
 * A program that makes it hard to be watched: it closes every descriptor, changes its root, gives up its rights or dies of a
 * signal, and takes a lock 200 times in two threads before or after.
 *
 *     hostile close | closefrom | close_range | chroot DIRECTORY | nobody | signal N | wait | nothing [fork]
 *
 * With `wait` it begins when standard input ends; with `fork` three children do the same as it first.
 *
 * Exit status: 3 ran, 9 could not do what it was told to.
 */
#include <grp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534
#define CHILDREN 3

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int taking;

static void *take(void *argument)
{
	taking++;
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&lock);
		/* They meet, however late the other one gets a CPU. */
		do
			usleep(200);
		while (taking < 2);
		pthread_mutex_unlock(&lock);
		usleep(50);
	}
	return argument;
}

static int be_hostile(const char *how, const char *argument)
{
	if (!strcmp(how, "close"))
		for (int i = 0; i < 1024; i++)
			close(i);
	else if (!strcmp(how, "closefrom"))
		closefrom(0);
	else if (!strcmp(how, "close_range"))
		return close_range(0, ~0U, 0);
	else if (!strcmp(how, "chroot"))
		return chroot(argument) || chdir("/");
	else if (!strcmp(how, "nobody"))
		return setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY);
	else if (!strcmp(how, "wait"))
		while (getchar() != EOF)
			;
	return 0;
}

/* Returns in the children, and in this process when they have ended. */
static void have_children(void)
{
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		if (!child)
			return;
		waitpid(child, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[2];
	const char *how = argc > 1 ? argv[1] : "nothing", *argument = argc > 2 ? argv[2] : "";

	if (be_hostile(how, argument))
		return 9;
	if (!strcmp(argv[argc - 1], "fork"))
		have_children();
	for (int i = 0; i < 2; i++)
		if (pthread_create(&threads[i], NULL, take, NULL))
			return 9;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	if (!strcmp(how, "signal"))
		raise(atoi(argument));
	return 3;
}
