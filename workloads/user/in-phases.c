/*
 * A lock that is taken a known number of times whenever somebody says so: for each line on standard input. Prints its process
 * ID first, and after each phase how often it took the lock in it.
 *
 * At the line "fork" a child goes on in its place, and prints its process ID; at "end" that ends, and this process goes on and does.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 1000

static pthread_mutex_t phase_lock = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
	char line[80];

	setlinebuf(stdout);
	printf("%d\n", getpid());
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "end\n")) {
		if (!strcmp(line, "fork\n")) {
			if (fork())
				wait(NULL);
			printf("%d\n", getpid());
			continue;
		}
		for (int i = 0; i < ROUNDS; i++) {
			pthread_mutex_lock(&phase_lock);
			pthread_mutex_unlock(&phase_lock);
		}
		printf("%d\n", ROUNDS);
	}
	return 0;
}
