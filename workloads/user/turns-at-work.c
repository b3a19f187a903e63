/*
 * Workers that take turns at one source of work by a lock, until standard input is closed.
 *
 *   processes   five processes share a semaphore: who has it reads the next job from a pipe. All of them are at rest
 *   threads     the same with five threads and a mutex
 *   connections five processes share a mutex that lends priority: who has it waits for a connection to one of two addresses. Nobody connects
 *   asks        five processes share a semaphore: who has it asks a server by one pipe, and reads the answer from another, which takes
 *               five milliseconds. Those without it wait for a lock
 *
 * Prints "ready" when they run.
 */
#include <pthread.h>
#include <semaphore.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define WORKERS 5

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static sem_t *shared_turn;
static pthread_mutex_t *accept_mutex;
static int jobs[2], questions[2], answers[2];

static void transfer(long done)
{
	if (done != 1)
		_exit(0);
}

__attribute__((noinline)) static void *take_jobs(void *unused)
{
	char job;

	for (;;) {
		pthread_mutex_lock(&turn);
		transfer(read(jobs[0], &job, 1));
		pthread_mutex_unlock(&turn);
	}
	return unused;
}

__attribute__((noinline)) static void take_shared_jobs(int asks)
{
	char job = 0;

	prctl(PR_SET_PDEATHSIG, 9);
	for (;;) {
		sem_wait(shared_turn);
		if (asks)
			transfer(write(questions[1], &job, 1));
		transfer(read(asks ? answers[0] : jobs[0], &job, 1));
		sem_post(shared_turn);
		/* Uses the answer; else it would be back before the next worker is awake. */
		if (asks)
			usleep(1000);
	}
}

/* At an address that nobody else knows. */
static int listening(void)
{
	struct sockaddr_un any = {.sun_family = AF_UNIX};
	int listener = socket(AF_UNIX, SOCK_STREAM, 0);

	if (listener < 0 || bind(listener, (struct sockaddr *)&any, sizeof(any.sun_family)) || listen(listener, 8))
		_exit(2);
	return listener;
}

static void make_accept_mutex(void)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (pthread_mutex_init(accept_mutex, &attributes))
		_exit(2);
}

__attribute__((noinline)) static void accept_connections(int first, int second)
{
	struct pollfd listeners[] = {{.fd = first, .events = POLLIN}, {.fd = second, .events = POLLIN}};

	prctl(PR_SET_PDEATHSIG, 9);
	for (;;) {
		pthread_mutex_lock(accept_mutex);
		poll(listeners, 2, -1);
		pthread_mutex_unlock(accept_mutex);
	}
}

static void answer(void)
{
	char question;

	prctl(PR_SET_PDEATHSIG, 9);
	for (;;) {
		transfer(read(questions[0], &question, 1));
		usleep(5000);
		transfer(write(answers[1], &question, 1));
	}
}

static void *hand_out(void *unused)
{
	for (;;) {
		usleep(20000);
		transfer(write(jobs[1], "", 1));
	}
	return unused;
}

int main(int argc, char **argv)
{
	int asks = argc == 2 && !strcmp(argv[1], "asks");
	int are_threads = argc == 2 && !strcmp(argv[1], "threads");
	int accepts = argc == 2 && !strcmp(argv[1], "connections");
	int first = listening(), second = listening();
	pid_t parent = getpid();
	pthread_t thread;

	shared_turn = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared_turn == MAP_FAILED)
		return 2;
	accept_mutex = (pthread_mutex_t *)((char *)shared_turn + 1024);
	make_accept_mutex();
	if (sem_init(shared_turn, 1, 1) || pipe(jobs) || pipe(questions) || pipe(answers))
		return 2;
	if (asks && !fork())
		answer();
	for (int i = 0; i < WORKERS; i++) {
		if (are_threads)
			pthread_create(&thread, NULL, take_jobs, NULL);
		else if (!fork() && accepts)
			accept_connections(first, second);
		else if (getpid() != parent)
			take_shared_jobs(asks);
	}
	if (!asks && !accepts)
		pthread_create(&thread, NULL, hand_out, NULL);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
