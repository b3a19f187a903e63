/*
 * A static lock, taken in turn by three threads in a static function: neither has a name once the program is stripped.
 *
 *     separate-debug [wait]
 *
 * With `wait` it begins when standard input ends.
 *
 * Exit status: 7.
 */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define THREADS 3
#define DEPOSITS 20

static pthread_mutex_t account_lock = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void deposit(void)
{
	pthread_mutex_lock(&account_lock);
	usleep(5000);
	pthread_mutex_unlock(&account_lock);
	/* Not a tail call: this function shall be on the stack. */
	__asm__ volatile("" ::: "memory");
}

static void *deposit_often(void *argument)
{
	for (int i = 0; i < DEPOSITS; i++) {
		deposit();
		usleep(100);
	}
	return argument;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	(void)argv;
	if (argc > 1)
		while (getchar() != EOF)
			;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, deposit_often, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 7;
}
