/*
 * posts-on-small-stacks BYTES: handlers on alternate stacks of this size post semaphores that threads wait for.  8,192 bytes are what
 * SIGSTKSZ was for 20 years; the kernel takes up to 3,500 of them.
 */
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

#include "transcript.h"

#define POSTS 200

static sem_t posted, answered;
static int woken;

static void post(int number)
{
	(void)number;
	sem_post(&posted);
}

static void *wait_for_posts(void *argument)
{
	for (int i = 0; i < POSTS; i++) {
		sem_wait(&posted);
		woken++;
		sem_post(&answered);
	}
	return argument;
}

int main(int count, char **arguments)
{
	size_t bytes = count > 1 ? (size_t)atoi(arguments[1]) : 8192;
	struct sigaction action = {.sa_handler = post, .sa_flags = SA_ONSTACK};
	char *memory = mmap(NULL, 4096 + bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t stack = {.ss_sp = memory + 4096, .ss_size = bytes};
	pthread_t thread;

	mprotect(memory + 4096, bytes, PROT_READ | PROT_WRITE);
	sem_init(&posted, 0, 0);
	sem_init(&answered, 0, 0);
	SAY(sigaltstack(&stack, NULL));
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, wait_for_posts, NULL);
	for (int i = 0; i < POSTS; i++) {
		raise(SIGUSR1);
		sem_wait(&answered);
	}
	pthread_join(thread, NULL);
	printf("woken %d times\n", woken);
	return RAN;
}
