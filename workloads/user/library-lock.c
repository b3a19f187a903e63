/*
 * A library with a static lock of its own, which three threads take in turn, 20 times each. Built with -DLOCK=… -DWORK=…, so that
 * several differ by nothing but these names; with -DOF_PROGRAM the lock is one of the program's.
 */
#include <pthread.h>
#include <unistd.h>

#define THREADS 3
#define ROUNDS 20

#ifdef OF_PROGRAM
extern pthread_mutex_t LOCK;
#else
static pthread_mutex_t LOCK = PTHREAD_MUTEX_INITIALIZER;
#endif

static __attribute__((noinline)) void WORK(void)
{
	pthread_mutex_lock(&LOCK);
	usleep(5000);
	pthread_mutex_unlock(&LOCK);
	/* Not a tail call: this function shall be on the stack. */
	__asm__ volatile("" ::: "memory");
}

static void *work_often(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		WORK();
		usleep(50);
	}
	return argument;
}

void run_library(void)
{
	pthread_t threads[THREADS];

	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work_often, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}
