/*
 * Signal handlers fork while their threads wait for a lock or hold it. The children lock, fork again, and end before their own children,
 * which lock, too.
 */
#include <stdatomic.h>

#include "processes.h"

#define THREADS 3
#define ROUNDS 60
#define SIGNALS 30

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int children;
static int counted, words[2];

static void lock_once(void)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&own);
	pthread_mutex_unlock(&own);
}

static void say(const char *word)
{
	if (write(words[1], word, 1) != 1)
		_exit(1);
}

static void fork_twice(int number)
{
	int before = errno;
	pid_t child = fork();

	(void)number;
	if (!child) {
		lock_once();
		if (!fork()) {
			usleep(3000);
			lock_once();
			say("g");
			_exit(0);
		}
		say("c");
		_exit(0);
	}
	children += child > 0;
	errno = before;
}

static void *work(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		usleep(200);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

int main(void)
{
	struct sigaction action = {.sa_handler = fork_twice, .sa_flags = SA_RESTART};
	pthread_t threads[THREADS];
	int status, ended = 0, failed = 0, of_children = 0, of_grandchildren = 0;
	char word;

	if (pipe(words))
		return 1;
	sigaction(SIGUSR1, &action, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < SIGNALS; i++) {
		pthread_kill(threads[i % THREADS], SIGUSR1);
		usleep(300);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	for (; wait(&status) > 0; ended++)
		failed += status != 0;
	close(words[1]);
	while (read(words[0], &word, 1) == 1)
		*(word == 'c' ? &of_children : &of_grandchildren) += 1;
	printf("counted %d; all children ended %d, failed %d; all said so %d, and theirs %d\n", counted,
	       ended == children, failed, of_children == ended, of_grandchildren == ended);
	return RAN;
}
