/*
 * Threads and processes by the thousand, each of which waits for a lock now and then.
 *
 *     storm THREADS FORKS EXECS
 *
 * Prints one line of JSON with the locks taken, the children that ended well, and what this process has grown by from its first
 * hundred threads and children on: open descriptors, mappings, memory of its own, and memory that others have as well.  Exit status:
 * 0 ran, 1 failed.
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define AT_A_TIME 16

/* This many of each are run before memory is looked at for the first time: allocators and tables have their size then. */
#define WARM_UP 100

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long taken;

static void *take(void *argument)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		taken++;
		if (i % 10 == 0)
			sched_yield();
		pthread_mutex_unlock(&lock);
	}
	return argument;
}

static long threads(long count)
{
	pthread_t started[AT_A_TIME];
	long done = 0;

	while (done < count) {
		int now = 0;

		while (now < AT_A_TIME && done + now < count && !pthread_create(&started[now], NULL, take, NULL))
			now++;
		if (!now)
			exit(1);
		for (int i = 0; i < now; i++)
			pthread_join(started[i], NULL);
		done += now;
	}
	return done;
}

static long children(long count, char *program)
{
	long well = 0;

	for (long i = 0; i < count; i++) {
		int status;
		pid_t child = fork();

		if (!child) {
			if (program) {
				execl(program, program, "4", "0", "0", (char *)NULL);
				_exit(1);
			}
			threads(2);
			_exit(0);
		}
		waitpid(child, &status, 0);
		well += WIFEXITED(status) && !WEXITSTATUS(status);
	}
	return well;
}

struct size {
	long descriptors;
	long mappings;
	long own_kib;
	long shared_kib;
};

static long entries(const char *path)
{
	DIR *folder = opendir(path);
	long count = 0;

	if (!folder)
		exit(1);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static struct size size_now(void)
{
	struct size size = {.descriptors = entries("/proc/self/fd"), .mappings = 0};
	FILE *maps = fopen("/proc/self/maps", "r"), *statm = fopen("/proc/self/statm", "r");
	long resident = 0, shared = 0, page_kib = sysconf(_SC_PAGESIZE) / 1024;

	if (!maps || !statm || fscanf(statm, "%*d %ld %ld", &resident, &shared) != 2)
		exit(1);
	for (int letter; (letter = getc(maps)) != EOF;)
		size.mappings += letter == '\n';
	size.own_kib = (resident - shared) * page_kib;
	size.shared_kib = shared * page_kib;
	fclose(maps);
	fclose(statm);
	return size;
}

static long least(long one, long other)
{
	return one < other ? one : other;
}

int main(int argc, char **argv)
{
	long wanted[3] = {0}, warm_up[3];

	for (int i = 1; i < argc && i < 4; i++)
		wanted[i - 1] = atol(argv[i]);
	for (int i = 0; i < 3; i++)
		warm_up[i] = least(wanted[i], WARM_UP);
	threads(warm_up[0]);
	if (!wanted[1] && !wanted[2]) {
		threads(wanted[0] - warm_up[0]);
		return 0;
	}
	long forked = children(warm_up[1], NULL), ran = children(warm_up[2], "/proc/self/exe");
	struct size before = size_now();

	threads(wanted[0] - warm_up[0]);
	forked += children(wanted[1] - warm_up[1], NULL);
	ran += children(wanted[2] - warm_up[2], "/proc/self/exe");
	struct size after = size_now();

	printf("{\"workload\":\"storm\",\"taken\":%ld,\"forked\":%ld,\"ran\":%ld,\"more_descriptors\":%ld,\"more_"
	       "mappings\":%ld,"
	       "\"more_own_kib\":%ld,\"more_shared_kib\":%ld}\n",
	       taken, forked, ran, after.descriptors - before.descriptors, after.mappings - before.mappings,
	       after.own_kib - before.own_kib, after.shared_kib - before.shared_kib);
	return 0;
}
