/*
 * A program that executes itself by each of libc's functions for that, in children that may change their root first.
 *
 *     executes PROGRAM [DIRECTORY]
 *
 * PROGRAM is where the program is found under that root. Each child first tries one that is missing, and that costs it nothing.
 * What is executed takes a lock once and prints how it was, the libraries that it was told to preload, and how many variables of
 * lockmeter's it has. Between the children this program takes its lock, too.
 *
 * Exit status: 0 ran, 9 could not do what it was told to.
 */
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXECUTED "executed"

extern char **environ;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char **environment_at_start;

static void take(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static int tell(const char *how)
{
	const char *preloaded = getenv("LD_PRELOAD");
	int ours = 0;

	for (char **variable = environ; *variable; variable++)
		ours += !strncmp(*variable, "LOCKMETER_DIR=", 14) || !strncmp(*variable, "LOCKMETER_SESSION=", 18);
	take();
	printf("%s %d %s\n", how, ours, preloaded ? preloaded : "nothing");
	return 0;
}

static void do_execve(const char *program, char **arguments)
{
	execve(program, arguments, environment_at_start);
}

static void do_execv(const char *program, char **arguments)
{
	execv(program, arguments);
}

static void do_execvp(const char *program, char **arguments)
{
	execvp(program, arguments);
}

static void do_execvpe(const char *program, char **arguments)
{
	execvpe(program, arguments, environ);
}

static void do_execl(const char *program, char **arguments)
{
	execl(program, arguments[0], arguments[1], NULL);
}

static void do_execlp(const char *program, char **arguments)
{
	execlp(program, arguments[0], arguments[1], NULL);
}

/* More arguments than registers. */
static void do_execle(const char *program, char **arguments)
{
	execle(program, arguments[0], arguments[1], "3", "4", "5", "6", "7", "8", NULL, environ);
}

static void do_fexecve(const char *program, char **arguments)
{
	int file = open(program, O_PATH | O_CLOEXEC);

	if (file >= 0)
		fexecve(file, arguments, environ);
}

static void do_execveat(const char *program, char **arguments)
{
	execveat(AT_FDCWD, program, arguments, environ, 0);
}

static void wait_for(pid_t child)
{
	int status;

	if (child < 0 || waitpid(child, &status, 0) != child || status)
		exit(9);
}

static void do_posix_spawn(const char *program, char **arguments)
{
	pid_t child;

	if (!posix_spawn(&child, program, NULL, NULL, arguments, environ))
		wait_for(child), _exit(0);
}

static void do_posix_spawnp(const char *program, char **arguments)
{
	pid_t child;

	if (!posix_spawnp(&child, program, NULL, NULL, arguments, environ))
		wait_for(child), _exit(0);
}

static const struct {
	const char *name;
	void (*execute)(const char *program, char **arguments);
	int in_vfork;
} ways[] = {
	{"execve", do_execve, 0},
	{"execv", do_execv, 0},
	{"execvp", do_execvp, 0},
	{"execvpe", do_execvpe, 0},
	{"execl", do_execl, 0},
	{"execlp", do_execlp, 0},
	{"execle", do_execle, 0},
	{"fexecve", do_fexecve, 0},
	{"execveat", do_execveat, 0},
	{"posix_spawn", do_posix_spawn, 0},
	{"posix_spawnp", do_posix_spawnp, 0},
	{"execve-in-vfork", do_execve, 1},
};

int main(int argc, char **argv, char **environment)
{
	environment_at_start = environment;
	if (argc < 2)
		return 9;
	if (!strcmp(argv[0], EXECUTED))
		return tell(argv[1]);
	for (size_t i = 0; i < sizeof(ways) / sizeof(*ways); i++) {
		char *arguments[] = {EXECUTED, (char *)ways[i].name, NULL};
		pid_t child;

		take();
		child = ways[i].in_vfork ? vfork() : fork();
		if (!child) {
			if (argc > 2 && (chroot(argv[2]) || chdir("/")))
				_exit(9);
			ways[i].execute("/missing/program", arguments);
			ways[i].execute(argv[1], arguments);
			_exit(9);
		}
		wait_for(child);
	}
	take();
	return 0;
}
