/*
 * end-of-stack BYTES: threads take locks, contended, with so little stack left below them.  Below the end lies a page that may
 * not be touched.
 */
#include <alloca.h>
#include <stdint.h>
#include <sys/mman.h>

#include "transcript.h"

#define THREADS 4
#define STACK 65536

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long left;
static int counted;

static void *work(void *stack)
{
	char *here = __builtin_frame_address(0);
	size_t below = here - (char *)stack - left;

	/* Touched, so that the compiler keeps it. */
	*(volatile char *)alloca(below) = 1;
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&mutex);
		/* The others wait meanwhile. */
		usleep(100);
		counted++;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];

	left = count > 1 ? atol(arguments[1]) : 4096;
	for (int i = 0; i < THREADS; i++) {
		char *stack = mmap(NULL, 4096 + STACK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_attr_t attributes;

		mprotect(stack + 4096, STACK, PROT_READ | PROT_WRITE);
		pthread_attr_init(&attributes);
		pthread_attr_setstack(&attributes, stack + 4096, STACK);
		pthread_create(&threads[i], &attributes, work, stack + 4096);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
