/* gives-up-its-rights setuid|chroot|dumpable|close|limits|lock-memory|no-writable-code: does this, then its threads lock. */
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "transcript.h"

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#endif

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 300; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		if (i % 30 == 0)
			usleep(50);
		pthread_mutex_unlock(&mutex);
		pthread_rwlock_wrlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
	return argument;
}

static void limit(int resource, rlim_t value)
{
	struct rlimit limit = {value, value};

	SAY(setrlimit(resource, &limit));
}

static void give_up(const char *what)
{
	if (!strcmp(what, "setuid")) {
		SAY(setgroups(0, NULL));
		SAY(setresgid(65534, 65534, 65534));
		SAY(setresuid(65534, 65534, 65534));
	} else if (!strcmp(what, "chroot")) {
		SAY(chroot("/proc/self/fdinfo"));
		SAY(chdir("/"));
	} else if (!strcmp(what, "dumpable")) {
		SAY(prctl(PR_SET_DUMPABLE, 0));
		SAY(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	} else if (!strcmp(what, "close")) {
		SAY(close_range(3, ~0U, 0));
		SAY(open("/dev/null", O_RDONLY));
		SAY(close(3));
	} else if (!strcmp(what, "limits")) {
		/* Standard output may be a file. */
		signal(SIGXFSZ, SIG_IGN);
		fflush(stdout);
		limit(RLIMIT_FSIZE, 0);
		limit(RLIMIT_NOFILE, 3);
		limit(RLIMIT_CORE, 0);
		limit(RLIMIT_MEMLOCK, 0);
		limit(RLIMIT_SIGPENDING, 0);
		limit(RLIMIT_MSGQUEUE, 0);
	} else if (!strcmp(what, "lock-memory")) {
		SAY(mlockall(MCL_CURRENT | MCL_FUTURE));
	} else if (!strcmp(what, "no-writable-code")) {
		SAY(prctl(PR_SET_MDWE, 1, 0, 0, 0));
	}
}

int main(int count, char **arguments)
{
	pthread_attr_t attributes;
	pthread_t threads[4];

	if (count > 1)
		give_up(arguments[1]);
	/* All of a stack is locked into memory, so they are small. */
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	for (int i = 0; i < 4; i++)
		SAY(pthread_create(&threads[i], &attributes, work, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
