/* longjmp out of functions that hold locks; the locks stay held and are unlocked where the jump ends. */
#include <setjmp.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static __thread jmp_buf back;

static __attribute__((noinline)) void lock_and_jump(int depth)
{
	volatile char frame[256];

	frame[0] = (char)depth;
	pthread_mutex_lock(&recursive);
	if (depth > 0)
		lock_and_jump(depth - 1);
	pthread_mutex_lock(&mutex);
	pthread_rwlock_rdlock(&rwlock);
	longjmp(back, 1 + frame[0]);
}

static void *jump_often(void *argument)
{
	long *jumps = argument;

	for (volatile int i = 0; i < 300; i++)
		if (setjmp(back)) {
			pthread_rwlock_unlock(&rwlock);
			pthread_mutex_unlock(&mutex);
			for (int depth = 0; depth < 11; depth++)
				pthread_mutex_unlock(&recursive);
			(*jumps)++;
		} else {
			lock_and_jump(10);
		}
	return NULL;
}

int main(void)
{
	pthread_t threads[4];
	long jumps[4] = {0};

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, jump_often, &jumps[i]);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("jumps %ld %ld %ld %ld\n", jumps[0], jumps[1], jumps[2], jumps[3]);
	SAY(pthread_mutex_trylock(&mutex));
	SAY(pthread_mutex_trylock(&recursive));
	SAY(pthread_rwlock_trywrlock(&rwlock));
	return RAN;
}
