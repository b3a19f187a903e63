/* Threads end by a bare system call, with locks held: nobody is told, and ids are used again. A robust mutex goes to the next one. */
#include <sys/syscall.h>

#include "transcript.h"

#define THREADS 2000

static pthread_mutex_t robust, plain = PTHREAD_MUTEX_INITIALIZER;
static int taken, owners_died;

static void *end_with_lock(void *argument)
{
	if (pthread_mutex_lock(&robust) == EOWNERDEAD) {
		owners_died++;
		pthread_mutex_consistent(&robust);
	}
	taken++;
	pthread_mutex_lock(&plain);
	pthread_mutex_unlock(&plain);
	syscall(SYS_exit, 0);
	return argument;
}

int main(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&robust, &attributes);
	for (int i = 0; i < THREADS; i++)
		in_thread(end_with_lock, NULL);
	printf("taken %d times, the owner had died %d times\n", taken, owners_died);
	return RAN;
}
