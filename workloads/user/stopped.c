/* The program is stopped for a second while one thread waits for a lock and another holds it. Prints how long the thread waited, and
 * for how much of that the program was stopped. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;
static long long waited_ns;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void *wait_for_lock(void *argument)
{
	long long begun = now_ns();

	pthread_mutex_lock(&held_lock);
	waited_ns = now_ns() - begun;
	pthread_mutex_unlock(&held_lock);
	return argument;
}

static long long stop(pid_t process)
{
	long long stopped;

	usleep(100000);
	kill(process, SIGSTOP);
	stopped = now_ns();
	usleep(1000000);
	stopped = now_ns() - stopped;
	kill(process, SIGCONT);
	return stopped;
}

int main(void)
{
	long long stopped_ns;
	pid_t process = getpid();
	pthread_t waiter;
	int result[2];

	if (pipe(result))
		return 1;
	if (!fork()) {
		stopped_ns = stop(process);
		_exit(write(result[1], &stopped_ns, sizeof(stopped_ns)) != sizeof(stopped_ns));
	}
	pthread_mutex_lock(&held_lock);
	pthread_create(&waiter, NULL, wait_for_lock, NULL);
	/* Comes when the stop has ended. */
	if (read(result[0], &stopped_ns, sizeof(stopped_ns)) != sizeof(stopped_ns))
		return 1;
	usleep(10000);
	pthread_mutex_unlock(&held_lock);
	pthread_join(waiter, NULL);
	wait(NULL);
	printf("{\"waited_ns\": %lld, \"stopped_ns\": %lld}\n", waited_ns, stopped_ns);
	return 0;
}
