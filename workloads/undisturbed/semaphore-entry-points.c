/* Semaphores, private, shared and named, by every function: free, empty, overflown, waited for. */
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>

#include "transcript.h"

static void *wait_for(void *semaphore)
{
	SAY(sem_wait(semaphore));
	return NULL;
}

static void *wait_with_a_deadline(void *semaphore)
{
	struct timespec real = soon(CLOCK_REALTIME, 60000 * MILLISECOND);

	SAY(sem_timedwait(semaphore, &real));
	return NULL;
}

static void *wait_with_a_clock(void *semaphore)
{
	struct timespec monotonic = soon(CLOCK_MONOTONIC, 60000 * MILLISECOND);

	SAY(sem_clockwait(semaphore, CLOCK_MONOTONIC, &monotonic));
	return NULL;
}

static void use(sem_t *semaphore)
{
	void *(*const waits[])(void *) = {wait_for, wait_with_a_deadline, wait_with_a_clock};
	struct timespec real = soon(CLOCK_REALTIME, MILLISECOND), monotonic = soon(CLOCK_MONOTONIC, MILLISECOND);
	struct timespec bad = {.tv_nsec = -1};
	int value;

	SAY(sem_wait(semaphore));
	SAY(sem_trywait(semaphore));
	SAY(sem_trywait(semaphore));
	SAY(sem_timedwait(semaphore, &real));
	SAY(sem_timedwait(semaphore, &bad));
	SAY(sem_clockwait(semaphore, CLOCK_MONOTONIC, &monotonic));
	SAY(sem_clockwait(semaphore, 77, &monotonic));
	for (int way = 0; way < 3; way++) {
		pthread_t thread;

		fflush(stdout);
		pthread_create(&thread, NULL, waits[way], semaphore);
		usleep(2000);
		sem_post(semaphore);
		pthread_join(thread, NULL);
	}
	SAY(sem_post(semaphore));
	SAY(sem_getvalue(semaphore, &value));
	SAY(sem_timedwait(semaphore, &bad));
	printf("value %d\n", value);
}

int main(void)
{
	char name[64];
	sem_t *named;

	for (int shared = 0; shared < 2; shared++) {
		GUARDED(sem_t) semaphore;

		FILL_GUARDS(semaphore);
		SAY(sem_init(&semaphore.lock, shared, UINT_MAX));
		SAY(sem_init(&semaphore.lock, shared, 2));
		use(&semaphore.lock);
		SAY(sem_destroy(&semaphore.lock));
		SAY(sem_init(&semaphore.lock, shared, INT_MAX));
		SAY(sem_post(&semaphore.lock));
		SAY(sem_destroy(&semaphore.lock));
		SAY_GUARDS(semaphore);
	}
	snprintf(name, sizeof(name), "/lockmeter-undisturbed-%d", getpid());
	named = sem_open(name, O_CREAT | O_EXCL, 0600, 2);
	SAY(named == SEM_FAILED);
	SAY(sem_unlink(name));
	use(named);
	SAY(sem_close(named));
	return RAN;
}
