/*
 * Uses condition variables and posix_spawn by their oldest versions, as programs and libraries built before 2003 and 2012 do. A variable
 * was one pointer wide then: what lies behind it must stay what it is. The transcript must be the same with and without a meter.
 */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__asm__(".symver pthread_cond_init, pthread_cond_init@GLIBC_2.2.5");
__asm__(".symver pthread_cond_destroy, pthread_cond_destroy@GLIBC_2.2.5");
__asm__(".symver pthread_cond_wait, pthread_cond_wait@GLIBC_2.2.5");
__asm__(".symver pthread_cond_timedwait, pthread_cond_timedwait@GLIBC_2.2.5");
__asm__(".symver pthread_cond_signal, pthread_cond_signal@GLIBC_2.2.5");
__asm__(".symver pthread_cond_broadcast, pthread_cond_broadcast@GLIBC_2.2.5");
__asm__(".symver posix_spawn, posix_spawn@GLIBC_2.2.5");
__asm__(".symver posix_spawnp, posix_spawnp@GLIBC_2.2.5");

enum { THREADS = 3, GUARD = 0x5a };

static struct old_condition {
	void *condition;
	unsigned char guard[56];
} used_at_once, waited_for, signalled;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int ready, waiting, woken;

static pthread_cond_t *of(struct old_condition *old)
{
	return (pthread_cond_t *)&old->condition;
}

static int overwritten(struct old_condition *old)
{
	int bytes = 0;
	for (size_t i = 0; i < sizeof old->guard; i++)
		bytes += old->guard[i] != GUARD;
	return bytes;
}

static void *wait_for_it(void *unused)
{
	pthread_mutex_lock(&mutex);
	waiting++;
	pthread_cond_signal(of(&signalled));
	while (!ready)
		pthread_cond_wait(of(&waited_for), &mutex);
	woken++;
	pthread_mutex_unlock(&mutex);
	return unused;
}

static void conditions(void)
{
	pthread_t threads[THREADS];
	struct timespec past = {1, 0};
	struct old_condition *all[] = {&used_at_once, &waited_for, &signalled};

	for (int i = 0; i < 3; i++)
		memset(all[i]->guard, GUARD, sizeof all[i]->guard);
	/* Zeroes are a static initialiser. */
	printf("signal: %d\n", pthread_cond_signal(of(&used_at_once)));
	printf("init: %d\n", pthread_cond_init(of(&waited_for), NULL));
	pthread_mutex_lock(&mutex);
	printf("timed out: %d\n", pthread_cond_timedwait(of(&used_at_once), &mutex, &past) == ETIMEDOUT);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, wait_for_it, NULL);
	while (waiting < THREADS)
		pthread_cond_wait(of(&signalled), &mutex);
	/* Holding the mutex says that all wait; contended for a moment. */
	ready = 1;
	printf("broadcast: %d\n", pthread_cond_broadcast(of(&waited_for)));
	usleep(20000);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("woken: %d\n", woken);
	for (int i = 0; i < 3; i++) {
		printf("destroy: %d, pointer left: %d\n", pthread_cond_destroy(of(all[i])), all[i]->condition != NULL);
		printf("bytes overwritten behind it: %d\n", overwritten(all[i]));
	}
}

/* The old ones have a file without an interpreter's name run by the shell. */
static void spawns(void)
{
	extern char **environ;
	char path[] = "/tmp/old-versions-XXXXXX";
	char *arguments[] = {path, NULL};
	int status, file = mkstemp(path);
	pid_t child;

	if (write(file, "exit 5\n", 7) != 7 || fchmod(file, 0700))
		return;
	close(file);
	for (int by_name = 0; by_name < 2; by_name++) {
		int (*spawn)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *,
			     char *const[], char *const[]) = by_name ? posix_spawnp : posix_spawn;
		int failed = spawn(&child, path, NULL, NULL, arguments, environ);
		printf("spawn: %d\n", failed);
		if (!failed && waitpid(child, &status, 0) == child)
			printf("exit status: %d\n", WEXITSTATUS(status));
	}
	unlink(path);
}

int main(void)
{
	conditions();
	fflush(stdout);
	spawns();
	return 0;
}
