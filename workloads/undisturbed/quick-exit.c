/* quick_exit: its own handlers run and take locks, those of atexit do not. */
#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock_and_say(void)
{
	pthread_mutex_lock(&mutex);
	puts("at_quick_exit");
	fflush(stdout);
	pthread_mutex_unlock(&mutex);
}

static void never(void)
{
	puts("atexit");
}

int main(void)
{
	at_quick_exit(lock_and_say);
	atexit(never);
	quick_exit(34);
}
