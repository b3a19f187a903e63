/* Misuse that glibc answers with an error or lets pass: destroyed while held, unlocked when free or by another thread, copied. */
#include "transcript.h"

static GUARDED(pthread_mutex_t) mutex, copy;

static void *unlock(void *lock)
{
	SAY(pthread_mutex_unlock(lock));
	return NULL;
}

static void misuse(int type)
{
	pthread_mutexattr_t attributes;

	printf("-- type %d\n", type);
	FILL_GUARDS(mutex);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, type);
	pthread_mutex_init(&mutex.lock, &attributes);
	SAY(pthread_mutex_lock(&mutex.lock));
	SAY(pthread_mutex_destroy(&mutex.lock));
	in_thread(unlock, &mutex.lock);
	SAY(pthread_mutex_trylock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	pthread_mutex_init(&mutex.lock, &attributes);
	copy = mutex;
	SAY(pthread_mutex_lock(&copy.lock));
	SAY(pthread_mutex_trylock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY(pthread_mutex_unlock(&copy.lock));
	SAY(pthread_mutex_destroy(&mutex.lock));
	/* Destroyed, and made anew in the same place. */
	SAY(pthread_mutex_init(&mutex.lock, NULL));
	SAY(pthread_mutex_lock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY_GUARDS(mutex);
	SAY_GUARDS(copy);
}

int main(void)
{
	pthread_mutexattr_t attributes;
	pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
	pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	int depth = 0;

	for (int type = 0; type < 4; type++)
		misuse(type);
	SAY(pthread_cond_wait(&condition, &checking));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&mutex.lock, &attributes);
	while (depth < 100000 && !pthread_mutex_lock(&mutex.lock))
		depth++;
	for (int i = 0; i < depth - 1; i++)
		pthread_mutex_unlock(&mutex.lock);
	SAY(pthread_mutex_unlock(&mutex.lock));
	SAY(pthread_mutex_unlock(&mutex.lock));
	printf("depth %d\n", depth);
	return RAN;
}
