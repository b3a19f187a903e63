/* Every signal is blocked and taken by sigwaitinfo and signalfd in threads of their own; each signal arrives once. */
#include <signal.h>
#include <sys/signalfd.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int waited, read_of;

static void *wait_for_signals(void *argument)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	for (int i = 0; i < 100; i++) {
		siginfo_t info;

		if (sigwaitinfo(&set, &info) == SIGRTMIN) {
			pthread_mutex_lock(&mutex);
			waited += info.si_value.sival_int;
			pthread_mutex_unlock(&mutex);
		}
	}
	return argument;
}

static void *read_signals(void *argument)
{
	int descriptor = (int)(long)argument;

	for (int i = 0; i < 100; i++) {
		struct signalfd_siginfo info;

		if (read(descriptor, &info, sizeof(info)) == sizeof(info)) {
			pthread_mutex_lock(&mutex);
			read_of += info.ssi_int;
			pthread_mutex_unlock(&mutex);
		}
	}
	return NULL;
}

int main(void)
{
	pthread_t waiter, reader;
	sigset_t all, one, pending;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	sigemptyset(&one);
	sigaddset(&one, SIGRTMIN + 1);
	pthread_create(&waiter, NULL, wait_for_signals, NULL);
	pthread_create(&reader, NULL, read_signals, (void *)(long)signalfd(-1, &one, SFD_CLOEXEC));
	for (int i = 0; i < 100; i++) {
		union sigval value = {.sival_int = i};

		sigqueue(getpid(), SIGRTMIN, value);
		sigqueue(getpid(), SIGRTMIN + 1, value);
	}
	pthread_join(waiter, NULL);
	pthread_join(reader, NULL);
	sigpending(&pending);
	printf("waited %d, read %d, pending %d\n", waited, read_of, !sigisemptyset(&pending));
	return RAN;
}
