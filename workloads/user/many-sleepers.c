/*
 * A thousand threads that sleep for a tenth of a second again and again, and once a line comes in five more that wait for a lock until
 * standard input is closed.
 *
 * Prints "ready" when the thousand run, and "waiting" when the five are asleep.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define SLEEPERS 1000
#define WAITERS 5

static pthread_mutex_t late_lock = PTHREAD_MUTEX_INITIALIZER;

static void *sleeps(void *unused)
{
	for (;;)
		usleep(100000);
	return unused;
}

__attribute__((noinline)) static void *waits(void *unused)
{
	pthread_mutex_lock(&late_lock);
	return unused;
}

static void start(void *(*run)(void *), int threads)
{
	pthread_attr_t small;
	pthread_t thread;

	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, &small, run, NULL))
			_exit(2);
}

static void say(const char *what)
{
	puts(what);
	fflush(stdout);
}

int main(void)
{
	pthread_mutex_lock(&late_lock);
	start(sleeps, SLEEPERS);
	say("ready");
	if (getchar() != EOF) {
		start(waits, WAITERS);
		usleep(100000);
		say("waiting");
	}
	while (getchar() != EOF)
		;
	_exit(0);
}
