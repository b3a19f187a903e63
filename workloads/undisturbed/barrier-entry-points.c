/* Barriers, private and shared: refused counts, rounds of several threads, one serial thread a round. */
#include <stdatomic.h>

#include "transcript.h"

static GUARDED(pthread_barrier_t) barrier;
static atomic_int serial;

static void *meet(void *argument)
{
	for (int round = 0; round < 50; round++)
		serial += pthread_barrier_wait(&barrier.lock) == PTHREAD_BARRIER_SERIAL_THREAD;
	return argument;
}

int main(void)
{
	for (int shared = 0; shared < 2; shared++) {
		pthread_barrierattr_t attributes;
		pthread_t threads[5];

		FILL_GUARDS(barrier);
		pthread_barrierattr_init(&attributes);
		pthread_barrierattr_setpshared(&attributes, shared);
		SAY(pthread_barrier_init(&barrier.lock, &attributes, 0));
		SAY(pthread_barrier_init(&barrier.lock, &attributes, 1));
		SAY(pthread_barrier_wait(&barrier.lock));
		SAY(pthread_barrier_destroy(&barrier.lock));
		SAY(pthread_barrier_init(&barrier.lock, &attributes, 5));
		for (int i = 0; i < 5; i++)
			pthread_create(&threads[i], NULL, meet, NULL);
		for (int i = 0; i < 5; i++)
			pthread_join(threads[i], NULL);
		SAY(pthread_barrier_destroy(&barrier.lock));
		printf("serial threads: %d\n", serial);
		SAY_GUARDS(barrier);
	}
	return RAN;
}
