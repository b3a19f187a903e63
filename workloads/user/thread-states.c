/*
 * Threads each of which is in one state nearly all the time, named for it, until standard input is closed.
 *
 * Prints "ready" when all of them have come to where they stay.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int descriptors[2], sockets[2], silent[2];
static const char *file;
static volatile unsigned long turns;

static void *burns(void *unused)
{
	prctl(PR_SET_NAME, "running");
	for (;;)
		turns++;
	return unused;
}

static void *waits_for_lock(void *unused)
{
	prctl(PR_SET_NAME, "user-lock");
	pthread_mutex_lock(&lock);
	return unused;
}

static void *waits_for_condition(void *unused)
{
	prctl(PR_SET_NAME, "condition");
	pthread_mutex_lock(&guard);
	for (;;)
		pthread_cond_wait(&never, &guard);
	return unused;
}

static void *waits_for_file(void *unused)
{
	prctl(PR_SET_NAME, "file-lock");
	flock(open(file, O_RDONLY), LOCK_EX);
	return unused;
}

static void *polls(void *unused)
{
	struct pollfd entry = {.fd = silent[0], .events = POLLIN};

	prctl(PR_SET_NAME, "network-or-poll");
	poll(&entry, 1, -1);
	return unused;
}

static void *reads_pipe(void *unused)
{
	char byte;

	prctl(PR_SET_NAME, "pipe-or-socket");
	return read(descriptors[0], &byte, 1) ? unused : NULL;
}

static void *reads_socket(void *unused)
{
	char byte;

	prctl(PR_SET_NAME, "pipe-or-socket");
	return recv(sockets[0], &byte, 1, 0) ? unused : NULL;
}

static void *sleeps(void *unused)
{
	prctl(PR_SET_NAME, "sleep");
	for (;;)
		sleep(1000);
	return unused;
}

static void *waits_for_child(void *unused)
{
	prctl(PR_SET_NAME, "child");
	if (!fork()) {
		char byte;

		prctl(PR_SET_NAME, "pipe-or-socket");
		prctl(PR_SET_PDEATHSIG, 9);
		_exit(read(descriptors[0], &byte, 1) < 0);
	}
	wait(NULL);
	return unused;
}

int main(int argc, char **argv)
{
	void *(*const all[])(void *) = {burns,		waits_for_lock, waits_for_condition,
					waits_for_file, polls,		reads_pipe,
					reads_socket,	sleeps,		waits_for_child};

	if (argc != 2)
		return 2;
	file = argv[1];
	flock(open(file, O_RDWR | O_CREAT, 0600), LOCK_EX);
	if (pipe(descriptors) || pipe(silent) || socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		return 2;
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, all[i], NULL))
			return 2;
	}
	prctl(PR_SET_NAME, "main");
	sleep(1);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
