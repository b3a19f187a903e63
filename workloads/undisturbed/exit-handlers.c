/* exit from a second thread while others contend: handlers of atexit, on_exit and destructors take locks, in order. */
#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, own = PTHREAD_MUTEX_INITIALIZER;

static void lock_and_say(const char *who)
{
	pthread_mutex_lock(&own);
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	pthread_mutex_unlock(&own);
	puts(who);
}

static void first(void)
{
	lock_and_say("registered first");
}

static void second(void)
{
	lock_and_say("registered second");
}

static void with_status(int status, void *argument)
{
	printf("status %d\n", status);
	lock_and_say(argument);
}

__attribute__((constructor)) static void before_main(void)
{
	lock_and_say("constructor");
}

__attribute__((destructor)) static void after_main(void)
{
	lock_and_say("destructor");
}

static void *contend(void *argument)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void *end(void *argument)
{
	(void)argument;
	usleep(1000);
	exit(33);
}

int main(void)
{
	pthread_t thread;

	atexit(first);
	on_exit(with_status, "on_exit");
	atexit(second);
	for (int i = 0; i < 2; i++)
		pthread_create(&thread, NULL, contend, NULL);
	pthread_create(&thread, NULL, end, NULL);
	pause();
	return 1;
}
