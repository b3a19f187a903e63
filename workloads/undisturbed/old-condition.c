/*
 * Conditions as libraries that were built before 2003 have them (GLIBC_2.2.5): one pointer wide.  The bytes behind the pointer are
 * the program's.
 */
#include "transcript.h"

#define OLD(function) __asm__(".symver " #function "," #function "@GLIBC_2.2.5")
OLD(pthread_cond_init);
OLD(pthread_cond_wait);
OLD(pthread_cond_timedwait);
OLD(pthread_cond_signal);
OLD(pthread_cond_broadcast);
OLD(pthread_cond_destroy);

static GUARDED(void *) condition;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int waiting, woken;

static pthread_cond_t *old(void)
{
	return (pthread_cond_t *)&condition.lock;
}

static void *wait_for_it(void *argument)
{
	struct timespec late = soon(CLOCK_REALTIME, 60000 * MILLISECOND);

	pthread_mutex_lock(&mutex);
	waiting++;
	while (!woken)
		if (argument)
			pthread_cond_timedwait(old(), &mutex, &late);
		else
			pthread_cond_wait(old(), &mutex);
	woken--;
	pthread_mutex_unlock(&mutex);
	return NULL;
}

int main(void)
{
	struct timespec until = soon(CLOCK_REALTIME, MILLISECOND);
	pthread_t threads[4];

	FILL_GUARDS(condition);
	SAY(pthread_cond_init(old(), NULL));
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_cond_timedwait(old(), &mutex, &until));
	SAY(pthread_mutex_unlock(&mutex));
	for (long i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, wait_for_it, (void *)(i % 2));
	for (int all = 0; !all; usleep(100)) {
		pthread_mutex_lock(&mutex);
		all = waiting == 4;
		pthread_mutex_unlock(&mutex);
	}
	SAY(pthread_cond_signal(old()));
	pthread_mutex_lock(&mutex);
	woken = 4;
	pthread_cond_broadcast(old());
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	SAY(pthread_cond_destroy(old()));
	SAY_GUARDS(condition);
	return RAN;
}
