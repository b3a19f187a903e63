/*
 * Threads that wait for a lock which they do not get while standard input is open, or, of one kind, get after a while.
 *
 *   deadlock   two transfers take two locks in the opposite order, a third thread waits for one of them
 *   held       keeper has big_lock and sleeps; four visitors wait for it, one reader for table_lock, which keeper has for writing
 *   lends      the same, and big_lock lends its waiters' priority (PTHREAD_PRIO_INHERIT)
 *   in-turn    forty threads have big_lock for some milliseconds, one after another, again and again: each waits long, none for ever
 *   files      as deadlock, but two processes, and locks on two files in the working folder (flock); nobody is behind them
 *   one-file   a thread has a lock on a file and sleeps; another of the same process waits for it
 *   processes  as files, with two mutexes in memory that they share, the first at its very begin
 *   ended      a thread has ended with big_lock; two visitors wait for it
 *   timed      two threads hold what the other waits for with a deadline: they give up, and so are in no deadlock
 *
 * Prints "ready" when all of them wait. Two kinds end by themselves:
 *
 *   given      a thread that has waited for big_lock gets it, and ends the process at once
 *   gives-up   it does not get it in time, works for some milliseconds, and ends the process
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
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

/* Each has opened it for itself: a lock belongs to what was opened. */
static void lock_file(const char *name)
{
	int file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (file < 0 || flock(file, LOCK_EX))
		exit(2);
}

__attribute__((noinline)) static void file_keeper(void)
{
	lock_file("one-file");
	pthread_barrier_wait(&both_have_one);
	for (;;)
		sleep(1000);
}

__attribute__((noinline)) static void file_visitor(void)
{
	lock_file("one-file");
	KEEP_IN_STACK();
}

__attribute__((noinline)) static void visitor(void)
{
	pthread_mutex_lock(&big_lock);
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

__attribute__((noinline)) static void last_visitor(void)
{
	pthread_mutex_lock(&big_lock);
	_exit(0);
}

__attribute__((noinline)) static void impatient_visitor(void)
{
	struct timespec deadline, ran;

	clock_gettime(CLOCK_REALTIME, &deadline);
	deadline.tv_sec += 1;
	pthread_mutex_timedlock(&big_lock, &deadline);
	do
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
	while (ran.tv_nsec < 20000000);
	_exit(0);
}

static void let_them_end(void (*visitor)(void))
{
	pthread_mutex_lock(&big_lock);
	start(visitor);
	usleep(1200000);
	pthread_mutex_unlock(&big_lock);
	for (;;)
		pause();
}

static void *end_with_it(void *nothing)
{
	pthread_mutex_lock(&big_lock);
	return nothing;
}

__attribute__((noinline)) static void take_turns(void)
{
	for (;;) {
		pthread_mutex_lock(&big_lock);
		usleep(6000);
		pthread_mutex_unlock(&big_lock);
	}
}

static pthread_barrier_t *barrier_of_processes(void)
{
	pthread_barrier_t *both = mmap(NULL, sizeof(*both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t shared;

	pthread_barrierattr_init(&shared);
	pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(both, &shared, 2);
	return both;
}

static struct between_processes {
	pthread_mutex_t locks[2];
	/* Processes that wait for their second lock, or are about to. */
	int waiting;
} * between_processes;

static void start_process_that_takes(pthread_barrier_t *both, int first)
{
	if (fork())
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_mutex_lock(&between_processes->locks[first]);
	pthread_barrier_wait(both);
	__atomic_fetch_add(&between_processes->waiting, 1, __ATOMIC_SEQ_CST);
	pthread_mutex_lock(&between_processes->locks[!first]);
	_exit(0);
}

static void take_locks_of_processes(void)
{
	pthread_barrier_t *both = barrier_of_processes();
	pthread_mutexattr_t shared;

	between_processes =
		mmap(NULL, sizeof(*between_processes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	for (int i = 0; i < 2; i++)
		pthread_mutex_init(&between_processes->locks[i], &shared);
	for (int i = 0; i < 2; i++)
		start_process_that_takes(both, i);
	while (__atomic_load_n(&between_processes->waiting, __ATOMIC_SEQ_CST) < 2)
		usleep(10000);
}

static pid_t start_process_that_locks_files(pthread_barrier_t *both, const char *first, const char *second)
{
	pid_t child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	lock_file(first);
	pthread_barrier_wait(both);
	lock_file(second);
	_exit(0);
}

/* Whether the kernel lists a process among those that wait for a lock on a file. */
static int waits_for_file(pid_t process)
{
	char command[128];

	snprintf(command, sizeof(command), "grep -q -- '-> FLOCK .* %d ' /proc/locks", process);
	return !system(command);
}

static void lock_files(void)
{
	pthread_barrier_t *both = barrier_of_processes();
	pid_t one, other;

	one = start_process_that_locks_files(both, "one-file", "other-file");
	other = start_process_that_locks_files(both, "other-file", "one-file");
	while (!waits_for_file(one) || !waits_for_file(other))
		usleep(10000);
}

__attribute__((noinline)) static void reader(void)
{
	pthread_rwlock_rdlock(&table_lock);
	KEEP_IN_STACK();
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
	if (!strcmp(argv[1], "given"))
		let_them_end(last_visitor);
	if (!strcmp(argv[1], "gives-up"))
		let_them_end(impatient_visitor);
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
	} else if (!strcmp(argv[1], "in-turn")) {
		threads = 40;
		for (int i = 0; i < threads; i++)
			start(take_turns);
	} else if (!strcmp(argv[1], "one-file")) {
		pthread_barrier_init(&both_have_one, NULL, 2);
		start(file_keeper);
		pthread_barrier_wait(&both_have_one);
		start(file_visitor);
		threads = 2;
	} else if (!strcmp(argv[1], "files")) {
		lock_files();
		threads = 0;
	} else if (!strcmp(argv[1], "processes")) {
		take_locks_of_processes();
		threads = 0;
	} else if (!strcmp(argv[1], "ended")) {
		pthread_t ends;

		if (pthread_create(&ends, NULL, end_with_it, NULL) || pthread_join(ends, NULL))
			return 2;
		threads = 2;
		for (int i = 0; i < threads; i++)
			start(visitor);
	} else {
		pthread_barrier_init(&both_have_one, NULL, 2);
		start(debit_first);
		start(credit_first);
		usleep(50000);
		start(audit);
	}
	/* This thread waits for the pipe's other end. Of those that take turns some may be on their way. */
	while (all_sleep() < threads + 1 - threads / 10)
		usleep(10000);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
