/*
 * A semaphore that guards something, and one that hands out work, until standard input is closed.
 *
 *   lock   four threads take turns with `guard` and hold it for a millisecond each
 *   work   four threads wait for `work`, which another one hands out a hundred times a second
 *
 * Prints "ready" when the threads run.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static sem_t guard, work;

__attribute__((noinline)) static void *take_turns(void *unused)
{
	for (;;) {
		sem_wait(&guard);
		usleep(1000);
		sem_post(&guard);
	}
	return unused;
}

__attribute__((noinline)) static void *serve(void *unused)
{
	for (;;)
		sem_wait(&work);
	return unused;
}

static void *hand_out(void *unused)
{
	for (;;) {
		usleep(10000);
		sem_post(&work);
	}
	return unused;
}

int main(int argc, char **argv)
{
	int is_lock = argc == 2 && !strcmp(argv[1], "lock");
	pthread_t thread;

	sem_init(&guard, 0, 1);
	sem_init(&work, 0, 0);
	for (int i = 0; i < 4; i++)
		pthread_create(&thread, NULL, is_lock ? take_turns : serve, NULL);
	if (!is_lock)
		pthread_create(&thread, NULL, hand_out, NULL);
	puts("ready");
	fflush(stdout);
	while (getchar() != EOF)
		;
	_exit(0);
}
