/* Forks twice, leads a session of its own and closes every descriptor but a pipe, through which it says how its locks went. */
#include <fcntl.h>
#include <sys/stat.h>

#include "processes.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void be_daemon(int pipe)
{
	pthread_t threads[3];

	umask(0);
	if (chdir("/"))
		_exit(1);
	for (int i = 0; i < 256; i++)
		if (i != pipe)
			close(i);
	if (open("/dev/null", O_RDWR) != 0 || dup(0) != 1 || dup(0) != 2)
		_exit(2);
	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	dprintf(pipe, "the daemon counted %d\n", counted);
	_exit(0);
}

int main(void)
{
	char said[100];
	int ends[2], end;
	ssize_t length;

	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	if (pipe(ends))
		return 1;
	pid_t child = fork_clean();
	if (!child) {
		setsid();
		if (!fork())
			be_daemon(ends[1]);
		_exit(5);
	}
	end = end_of(child);
	printf("child ended: %d\n", end);
	close(ends[1]);
	while ((length = read(ends[0], said, sizeof(said))) > 0)
		printf("%.*s", (int)length, said);
	return RAN;
}
