/*
 * Threads that wait for a lock which they do not get while standard input is open.
 *
 *   deadlock   two transfers take two locks in the opposite order, a third thread waits for one of them
 *   held       keeper has big_lock and sleeps; four visitors wait for it, one reader for table_lock, which keeper has for writing
 *   lends      the same, and big_lock lends its waiters' priority (PTHREAD_PRIO_INHERIT)
 *   timed      two threads hold what the other waits for with a deadline: they give up, and so are in no deadlock
 *
 * Prints "ready" when all of them wait.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define KEEP_IN_STACK() __asm__ volatile("")

static pthread_mutex_t debit_lock = PTHREAD_MUTEX_INITIALIZER, credit_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t big_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t both_have_one;
static int gives_up;

static void take(pthread_mutex_t *lock)
{
	struct timespec deadline;

	if (!gives_up) {
		pthread_mutex_lock(lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 3600;
	pthread_mutex_timedlock(lock, &deadline);
}

__attribute__((noinline)) static void debit_first(void)
{
	pthread_mutex_lock(&debit_lock);
	pthread_barrier_wait(&both_have_one);
	take(&credit_lock);
	KEEP_IN_STACK();
}

__attribute__((noinline)) static void credit_first(void)
{
	pthread_mutex_lock(&credit_lock);
	pthread_barrier_wait(&both_have_one);
	take(&debit_lock);
	KEEP_IN_STACK();
}

__attribute__((noinline)) static void audit(void)
{
	pthread_mutex_lock(&debit_lock);
	KEEP_IN_STACK();
}

__attribute__((noinline)) static void keeper(void)
{
	pthread_mutex_lock(&big_lock);
	pthread_rwlock_wrlock(&table_lock);
	pthread_barrier_wait(&both_have_one);
	for (;;)
		sleep(1000);
}

__attribute__((noinline)) static void visitor(void)
{
	pthread_mutex_lock(&big_lock);
	KEEP_IN_STACK();
}

__attribute__((noinline)) static void reader(void)
{
	pthread_rwlock_rdlock(&table_lock);
	KEEP_IN_STACK();
}

static void *run(void *function)
{
	((void (*)(void))function)();
	return NULL;
}

static void start(void (*function)(void))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, run, function))
		exit(2);
	pthread_detach(thread);
}

static void lend_priority(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&big_lock, &attributes);
}

/* The state of a thread as the system tells it: S when it sleeps. */
static int all_sleep(void)
{
	FILE *states = popen("cat /proc/$PPID/task/*/stat | sed 's/.*) //' | cut -c1", "r");
	int sleeping = 0, state;

	while ((state = fgetc(states)) != EOF)
		sleeping += state == 'S';
	pclose(states);
	return sleeping;
}

int main(int argc, char **argv)
{
	int threads = 3;

	if (argc != 2)
		return 2;
	gives_up = !strcmp(argv[1], "timed");
	if (!strcmp(argv[1], "lends"))
		lend_priority();
	if (!strcmp(argv[1], "held") || !strcmp(argv[1], "lends")) {
		pthread_barrier_init(&both_have_one, NULL, 2);
		start(keeper);
		pthread_barrier_wait(&both_have_one);
		for (int i = 0; i < 4; i++)
			start(visitor);
		start(reader);
		threads = 6;
	} else {
		pthread_barrier_init(&both_have_one, NULL, 2);
		start(debit_first);
		start(credit_first);
		usleep(50000);
		start(audit);
	}
	/* This thread waits for the pipe's other end. */
	while (all_sleep() < threads + 1)
		usleep(10000);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
