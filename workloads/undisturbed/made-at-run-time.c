/*
 * Machine code that the program writes itself, as a just-in-time compiler does, takes a contended lock on a stack of its own, whose upper end
 * is the end of what is mapped. No table says how to unwind it, and the frame pointer is none.
 */
#include <sys/mman.h>

#include "transcript.h"

#define THREADS 4
#define ROUNDS 200
#define STACK 65536

/* push rbx; push rbp; mov rbx, rsp; mov rsp, rsi; mov rbp, -1; call rdx; mov rsp, rbx; pop rbp; pop rbx; ret */
static const unsigned char code[] = {0x53, 0x55, 0x48, 0x89, 0xe3, 0x48, 0x89, 0xf4, 0x48, 0xc7, 0xc5, 0xff,
				     0xff, 0xff, 0xff, 0xff, 0xd2, 0x48, 0x89, 0xdc, 0x5d, 0x5b, 0xc3};

typedef int calls_on_stack(pthread_mutex_t *lock, char *stack_end, int (*function)(pthread_mutex_t *));

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static calls_on_stack *call;
static int counted;

static void *work(void *argument)
{
	char *stack = mmap(NULL, STACK + 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	mprotect(stack + 4096, STACK, PROT_READ | PROT_WRITE);
	for (int i = 0; i < ROUNDS; i++) {
		call(&mutex, stack + 4096 + STACK, pthread_mutex_lock);
		counted++;
		usleep(50);
		call(&mutex, stack + 4096 + STACK, pthread_mutex_unlock);
	}
	return argument;
}

int main(void)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t threads[THREADS];

	memcpy(page, code, sizeof(code));
	SAY(mprotect(page, 4096, PROT_READ | PROT_EXEC));
	call = (calls_on_stack *)page;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
