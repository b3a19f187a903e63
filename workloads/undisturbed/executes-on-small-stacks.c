/* Executes others where there is little stack: in a child that has one of a few kilobytes in its parent's memory, and in the handler of a
 * crash, as programs do that report their own. */
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "transcript.h"

#define PAGE 4096
#define UNTOUCHED 0xa5

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int execute(void *path)
{
	execl(path, path, (char *)NULL);
	_exit(errno);
}

static int execute_by_name(void *name)
{
	execlp(name, name, (char *)NULL);
	_exit(errno);
}

static size_t in_child(int (*run)(void *), const char *program, size_t bytes)
{
	unsigned char *memory = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t changed = 0;
	int status = -1;
	pid_t child;

	memset(memory, UNTOUCHED, 16 * PAGE);
	child = clone(run, memory + 16 * PAGE, CLONE_VM | CLONE_VFORK | SIGCHLD, (void *)program);
	waitpid(child, &status, 0);
	for (size_t i = 0; i < 16 * PAGE - bytes; i++)
		changed += memory[i] != UNTOUCHED;
	munmap(memory, 16 * PAGE);
	if (WEXITSTATUS(status))
		printf("%s: status %d\n", program, status);
	return changed;
}

static volatile int goes_on = 1;

static void *execute_all_the_time(void *argument)
{
	char *arguments[] = {"/bin/true", NULL};
	pid_t child;

	while (goes_on)
		if (!posix_spawn(&child, arguments[0], NULL, NULL, arguments, environ))
			waitpid(child, NULL, 0);
	return argument;
}

/* Children that are forked while another thread executes something. */
static void in_forked_children(void)
{
	int changed_in = 0, status;
	pthread_t thread;

	pthread_create(&thread, NULL, execute_all_the_time, NULL);
	for (int i = 0; i < 200; i++) {
		pid_t child = fork();

		if (!child)
			_exit(in_child(execute, "/bin/true", PAGE) > 0);
		waitpid(child, &status, 0);
		changed_in += status != 0;
	}
	goes_on = 0;
	pthread_join(thread, NULL);
	printf("bytes changed below the stack in %d of 200 children\n", changed_in);
}

static void report_crash(int number)
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		execute("/bin/true");
	waitpid(child, &status, 0);
	printf("signal %d: status %d of who reports it\n", number, status);
	fflush(stdout);
	_exit(RAN);
}

int main(void)
{
	struct sigaction action = {.sa_handler = report_crash, .sa_flags = SA_ONSTACK};
	stack_t stack = {.ss_size = 2 * PAGE};
	char *guarded = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	/* Symbols that are used for the first time are looked up, which needs stack, too. */
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 3; i++) {
		SAY((int)in_child(execute, "/bin/true", PAGE));
		SAY((int)in_child(execute, "/bin/no-such-program", PAGE));
		SAY((int)in_child(execute_by_name, "true", PAGE));
	}
	in_forked_children();
	mprotect(guarded, PAGE, PROT_NONE);
	stack.ss_sp = guarded + PAGE;
	sigaltstack(&stack, NULL);
	sigaction(SIGSEGV, &action, NULL);
	fflush(stdout);
	*(volatile int *)NULL = 0;
	return 1;
}
