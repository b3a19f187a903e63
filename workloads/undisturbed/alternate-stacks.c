/* Handlers on small alternate stacks take locks, contended: also after the thread's own stack has overflown. */
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#include "transcript.h"

#define ALTERNATE 16384

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static __thread sigjmp_buf back;
static int counted;

static void handler(int number)
{
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		for (volatile int spin = 0; spin < 500; spin++)
			;
		pthread_mutex_unlock(&mutex);
	}
	if (number == SIGSEGV)
		siglongjmp(back, 1);
}

static __attribute__((noinline)) int overflow(int depth)
{
	volatile char frame[1024];

	frame[0] = (char)depth;
	return overflow(depth + 1) + frame[0];
}

static void *work(void *argument)
{
	stack_t stack = {.ss_size = ALTERNATE};

	stack.ss_sp = mmap(NULL, ALTERNATE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigaltstack(&stack, NULL);
	for (int i = 0; i < 20; i++)
		raise(SIGUSR1);
	if (!sigsetjmp(back, 1))
		overflow(0);
	return argument;
}

int main(void)
{
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	pthread_t threads[4];
	pthread_attr_t attributes;

	sigaction(SIGUSR1, &action, NULL);
	sigaction(SIGSEGV, &action, NULL);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 65536);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], &attributes, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
	return RAN;
}
