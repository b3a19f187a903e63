/*
 * What a process can read of itself: descriptors, signals, limits, timers, threads, memory it may lock, scheduling.  Nothing of it may
 * differ.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *contend(void *argument)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&mutex);
		usleep(10);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static int entries(const char *path)
{
	DIR *directory = opendir(path);
	int count = 0;

	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void say_state(void)
{
	struct itimerval timer;
	struct rlimit limit;
	sigset_t mask;
	char name[17] = "";
	int handlers = 0, blocked = 0, fd;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	for (int number = 1; number < NSIG; number++) {
		struct sigaction action;

		if (!sigaction(number, NULL, &action))
			handlers += action.sa_handler != SIG_DFL;
		blocked += sigismember(&mask, number) == 1;
	}
	printf("handlers %d, blocked %d\n", handlers, blocked);
	fd = open("/dev/null", O_RDONLY);
	printf("next descriptor %d; entries in /proc/self/fd %d, threads %d\n", fd, entries("/proc/self/fd"),
	       entries("/proc/self/task"));
	close(fd);
	for (int resource = 0; resource < RLIMIT_NLIMITS; resource++) {
		getrlimit(resource, &limit);
		printf("limit %d: %ld %ld\n", resource, (long)limit.rlim_cur, (long)limit.rlim_max);
	}
	for (int which = 0; which < 3; which++) {
		getitimer(which, &timer);
		printf("timer %d: %d\n", which, timer.it_value.tv_sec || timer.it_value.tv_usec);
	}
	prctl(PR_GET_NAME, name);
	printf("name %s, dumpable %d, no new privileges %d, seccomp %d, subreaper %d, timer slack %d, THP off %d\n",
	       name, prctl(PR_GET_DUMPABLE), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_SECCOMP), 0,
	       prctl(PR_GET_TIMERSLACK), prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	printf("policy %d, nice %d, umask %o, alarm %u\n", sched_getscheduler(0), getpriority(PRIO_PROCESS, 0),
	       umask(0), alarm(0));
}

int main(void)
{
	pthread_t threads[3];

	say_state();
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, contend, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	/* Who joins a thread may be earlier than its end. */
	while (entries("/proc/self/task") > 3)
		usleep(1000);
	say_state();
	return RAN;
}
