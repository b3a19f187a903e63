/*
 * spawned-programs [WORD]: programs are started by every call there is, from several threads that lock meanwhile.  With WORD it is one of
 * those programs, and says what it got.
 */
#include <spawn.h>
#include <stdatomic.h>

#include "processes.h"

extern char **environ;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int stop;

static void *lock_on(void *argument)
{
	while (!stop) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static int be_started(int count, char **arguments)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	pthread_mutex_lock(&mutex);
	printf("started with %d arguments, %s; GREETING=%s; USR1 blocked %d\n", count, arguments[1],
	       getenv("GREETING") ? getenv("GREETING") : "", sigismember(&mask, SIGUSR1));
	pthread_mutex_unlock(&mutex);
	return 42;
}

static int spawn(char *word, char **environment)
{
	char *arguments[] = {"spawned-programs", word, NULL};
	posix_spawnattr_t attributes;
	posix_spawn_file_actions_t actions;
	sigset_t usr1;
	pid_t child;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setsigmask(&attributes, &usr1);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, 1, 2);
	errno = 4711;
	int status = posix_spawn(&child, "/proc/self/exe", &actions, &attributes, arguments, environment);
	int its_errno = errno, end = status ? status : end_of(child);
	printf("posix_spawn %d errno %d\n", status, its_errno);
	return end;
}

int main(int count, char **arguments)
{
	char *words[] = {"spawned-programs", "by vfork", NULL};
	char *greeting[] = {"GREETING=hello", NULL}, *none[] = {NULL};
	pthread_t threads[2];
	FILE *pipe;
	char line[200], command[5000], path[4096] = "";
	pid_t child;

	if (count > 1)
		return be_started(count, arguments);
	setvbuf(stdout, NULL, _IONBF, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, lock_on, NULL);
	SAY(spawn("by posix_spawn", environ));
	SAY(spawn("with one variable", greeting));
	SAY(spawn("without environment", none));
	child = vfork();
	if (!child) {
		execv("/proc/self/exe", words);
		_exit(1);
	}
	SAY(end_of(child));
	child = vfork();
	if (!child) {
		execv("/no/such/program", words);
		_exit(errno);
	}
	SAY(end_of(child));
	if (readlink("/proc/self/exe", path, sizeof(path) - 1) < 0)
		return 1;
	snprintf(command, sizeof(command), "%s 'by system'", path);
	SAY(WEXITSTATUS(system(command)));
	snprintf(command, sizeof(command), "%s 'by popen'", path);
	pipe = popen(command, "r");
	if (!pipe || !fgets(line, sizeof(line), pipe))
		return 1;
	printf("read: %s", line);
	SAY(WEXITSTATUS(pclose(pipe)));
	stop = 1;
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return RAN;
}
