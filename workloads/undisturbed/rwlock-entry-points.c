/* Reader-writer locks of every preference, private and shared, by every function that takes one, free, read and written. */
#include "transcript.h"

static void *take_in_every_way(void *lock)
{
	struct timespec real = soon(CLOCK_REALTIME, MILLISECOND), monotonic = soon(CLOCK_MONOTONIC, MILLISECOND);
	struct timespec bad = {.tv_nsec = -1};
	int (*const takes[])(pthread_rwlock_t *) = {pthread_rwlock_tryrdlock, pthread_rwlock_trywrlock};
	int (*const timed[])(pthread_rwlock_t *, const struct timespec *) = {pthread_rwlock_timedrdlock,
									     pthread_rwlock_timedwrlock};
	int (*const clocked[])(pthread_rwlock_t *, clockid_t, const struct timespec *) = {pthread_rwlock_clockrdlock,
											  pthread_rwlock_clockwrlock};
	for (int writes = 0; writes < 2; writes++) {
		int results[6];

		errno = 4711;
		for (int way = 0; way < 6; way++) {
			results[way] = way == 0	  ? takes[writes](lock)
				       : way == 1 ? timed[writes](lock, &real)
				       : way == 2 ? timed[writes](lock, &bad)
				       : way == 3 ? clocked[writes](lock, CLOCK_MONOTONIC, &monotonic)
				       : way == 4 ? clocked[writes](lock, CLOCK_REALTIME, &real)
						  : clocked[writes](lock, 77, &real);
			if (!results[way])
				pthread_rwlock_unlock(lock);
		}
		printf("%s: try %d timed %d, badly %d clock %d and %d, badly %d errno %d\n", writes ? "write" : "read",
		       results[0], results[1], results[2], results[3], results[4], results[5], errno);
	}
	return NULL;
}

static void *read_once(void *lock)
{
	SAY(pthread_rwlock_rdlock(lock));
	SAY(pthread_rwlock_unlock(lock));
	return NULL;
}

static void *write_once(void *lock)
{
	SAY(pthread_rwlock_wrlock(lock));
	SAY(pthread_rwlock_unlock(lock));
	return NULL;
}

static void wait_and_take(pthread_rwlock_t *lock, void *(*function)(void *))
{
	pthread_t thread;

	fflush(stdout);
	pthread_create(&thread, NULL, function, lock);
	usleep(2000);
	pthread_rwlock_unlock(lock);
	pthread_join(thread, NULL);
}

int main(void)
{
	for (int preference = 0; preference < 3; preference++)
		for (int shared = 0; shared < 2; shared++) {
			GUARDED(pthread_rwlock_t) lock;
			pthread_rwlockattr_t attributes;

			printf("-- preference %d, shared %d\n", preference, shared);
			FILL_GUARDS(lock);
			pthread_rwlockattr_init(&attributes);
			pthread_rwlockattr_setkind_np(&attributes, preference);
			pthread_rwlockattr_setpshared(&attributes, shared);
			SAY(pthread_rwlock_init(&lock.lock, &attributes));
			in_thread(take_in_every_way, &lock.lock);
			SAY(pthread_rwlock_rdlock(&lock.lock));
			SAY(pthread_rwlock_rdlock(&lock.lock));
			SAY(pthread_rwlock_unlock(&lock.lock));
			in_thread(take_in_every_way, &lock.lock);
			wait_and_take(&lock.lock, write_once);
			SAY(pthread_rwlock_wrlock(&lock.lock));
			SAY(pthread_rwlock_wrlock(&lock.lock));
			SAY(pthread_rwlock_rdlock(&lock.lock));
			in_thread(take_in_every_way, &lock.lock);
			wait_and_take(&lock.lock, read_once);
			SAY(pthread_rwlock_wrlock(&lock.lock));
			wait_and_take(&lock.lock, write_once);
			SAY(pthread_rwlock_destroy(&lock.lock));
			SAY_GUARDS(lock);
		}
	return RAN;
}
