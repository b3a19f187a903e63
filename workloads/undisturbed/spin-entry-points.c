/* Spinlocks, private and shared between processes: free, held, waited for. */
#include "transcript.h"

static void *try_it(void *lock)
{
	SAY(pthread_spin_trylock(lock));
	return NULL;
}

static void *wait_for(void *lock)
{
	SAY(pthread_spin_lock(lock));
	SAY(pthread_spin_unlock(lock));
	return NULL;
}

int main(void)
{
	for (int shared = 0; shared < 2; shared++) {
		GUARDED(pthread_spinlock_t) lock;
		pthread_t thread;

		FILL_GUARDS(lock);
		SAY(pthread_spin_init(&lock.lock, shared));
		SAY(pthread_spin_lock(&lock.lock));
		in_thread(try_it, (void *)&lock.lock);
		fflush(stdout);
		pthread_create(&thread, NULL, wait_for, (void *)&lock.lock);
		usleep(2000);
		pthread_spin_unlock(&lock.lock);
		pthread_join(thread, NULL);
		SAY(pthread_spin_trylock(&lock.lock));
		SAY(pthread_spin_unlock(&lock.lock));
		SAY(pthread_spin_destroy(&lock.lock));
		SAY_GUARDS(lock);
	}
	return RAN;
}
