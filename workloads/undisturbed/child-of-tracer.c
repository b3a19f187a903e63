/* A child is traced by its parent: it runs some thousand single steps through locks, and is continued. */
#include <sys/ptrace.h>

#include "processes.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 500; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static int be_traced(void)
{
	pthread_t threads[2];

	ptrace(PTRACE_TRACEME, 0, NULL, NULL);
	raise(SIGSTOP);
	work(NULL);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return counted == 1500 ? 42 : 1;
}

int main(void)
{
	int status, steps = 0;
	pid_t child = fork_clean();

	if (!child)
		_exit(be_traced());
	waitpid(child, &status, 0);
	for (; steps < 3000 && WIFSTOPPED(status); steps++) {
		ptrace(PTRACE_SINGLESTEP, child, NULL, NULL);
		waitpid(child, &status, 0);
	}
	ptrace(PTRACE_CONT, child, NULL, NULL);
	SAY(end_of(child));
	printf("steps %d\n", steps);
	return RAN;
}
