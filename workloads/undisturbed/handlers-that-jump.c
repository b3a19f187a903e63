/* A signal handler jumps out of a wait for a semaphore, for a mutex, for a condition, and out of locking and unlocking. */
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "transcript.h"

static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;
static sem_t never;
static sigjmp_buf back;
static volatile int jump, handled;

static void handler(int number)
{
	(void)number;
	handled++;
	if (jump)
		siglongjmp(back, 1);
}

static void *keep(void *argument)
{
	pthread_mutex_lock(&busy);
	sem_post(argument);
	sem_wait(&never);
	pthread_mutex_unlock(&busy);
	return NULL;
}

static void alarm_soon(long us)
{
	struct itimerval timer = {.it_value.tv_usec = us};

	setitimer(ITIMER_REAL, &timer, NULL);
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler};
	volatile int out_of_semaphore = 0, out_of_mutex = 0, out_of_locking = 0;
	pthread_t thread;
	sigset_t alarm;
	sem_t ready;

	sigaction(SIGALRM, &action, NULL);
	sem_init(&never, 0, 0);
	sem_init(&ready, 0, 0);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	pthread_create(&thread, NULL, keep, &ready);
	pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
	sem_wait(&ready);
	jump = 1;
	for (volatile int i = 0; i < 30; i++) {
		if (sigsetjmp(back, 1)) {
			out_of_semaphore++;
			continue;
		}
		alarm_soon(500);
		sem_wait(&never);
	}
	for (volatile int i = 0; i < 30; i++) {
		if (sigsetjmp(back, 1)) {
			out_of_mutex++;
			continue;
		}
		alarm_soon(500);
		pthread_mutex_lock(&busy);
	}
	for (volatile int i = 0; i < 30; i++) {
		/* What it jumps out of may stay locked, so each round has a mutex of its own. */
		pthread_mutex_t *own = malloc(sizeof(*own));

		pthread_mutex_init(own, NULL);
		if (sigsetjmp(back, 1)) {
			out_of_locking++;
			continue;
		}
		alarm_soon(300);
		for (;;) {
			pthread_mutex_lock(own);
			pthread_mutex_unlock(own);
		}
	}
	jump = 0;
	printf("out of a semaphore %d, a mutex %d, locking %d; handled %d\n", out_of_semaphore, out_of_mutex,
	       out_of_locking, handled);
	sem_post(&never);
	pthread_join(thread, NULL);
	SAY(pthread_mutex_lock(&busy));
	SAY(pthread_mutex_unlock(&busy));
	SAY(sem_trywait(&never));
	return RAN;
}
