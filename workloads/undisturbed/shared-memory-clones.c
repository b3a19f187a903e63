/* Tasks by clone(CLONE_VM) on stacks of the program's own: without thread-local storage, as sandboxes and runtimes make them. */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include "processes.h"

#define TASKS 4
#define STACK 65536

static GUARDED(pthread_mutex_t) mutex;
static int counted;

static int work(void *argument)
{
	for (int i = 0; i < 500; i++) {
		pthread_mutex_lock(&mutex.lock);
		counted++;
		pthread_mutex_unlock(&mutex.lock);
	}
	return (int)(long)argument;
}

static void *rest(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

int main(void)
{
	pid_t tasks[TASKS];
	pthread_t resting;

	/* In a process without a second thread glibc takes locks without atomic instructions: the tasks would break them. */
	pthread_create(&resting, NULL, rest, NULL);
	FILL_GUARDS(mutex);
	pthread_mutex_init(&mutex.lock, NULL);
	for (long i = 0; i < TASKS; i++) {
		char *stack = malloc(STACK);

		tasks[i] = clone(work, stack + STACK, CLONE_VM | SIGCHLD, (void *)i);
	}
	for (int i = 0; i < TASKS; i++)
		printf("task ended: %d\n", end_of(tasks[i]));
	printf("counted %d\n", counted);
	SAY_GUARDS(mutex);
	return RAN;
}
