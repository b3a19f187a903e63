/* Owners of robust mutexes that die: a thread and a process, found by every function that takes a mutex, mended or not. */
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "transcript.h"

struct shared {
	GUARDED(pthread_mutex_t) mutex;
};

static int lock_in_way(pthread_mutex_t *mutex, int way, long patience)
{
	struct timespec real = soon(CLOCK_REALTIME, patience);
	struct timespec monotonic = soon(CLOCK_MONOTONIC, patience);

	switch (way) {
	case 0:
		return pthread_mutex_lock(mutex);
	case 1:
		return pthread_mutex_trylock(mutex);
	case 2:
		return pthread_mutex_timedlock(mutex, &real);
	default:
		return pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &monotonic);
	}
}

static void *die_holding(void *mutex)
{
	pthread_mutex_lock(mutex);
	return NULL;
}

static void *wait_for(void *mutex)
{
	SAY(pthread_mutex_lock(mutex));
	SAY(pthread_mutex_consistent(mutex));
	SAY(pthread_mutex_unlock(mutex));
	return NULL;
}

static void *die_while_another_waits(void *mutex)
{
	pthread_t *thread = malloc(sizeof(*thread));

	pthread_mutex_lock(mutex);
	pthread_create(thread, NULL, wait_for, mutex);
	usleep(2000);
	return thread;
}

static void let_owners_die(struct shared *shared, int protocol)
{
	pthread_mutexattr_t attributes;
	pthread_t *waiter;

	printf("-- protocol %d\n", protocol);
	FILL_GUARDS(shared->mutex);
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setprotocol(&attributes, protocol);
	SAY(pthread_mutex_init(&shared->mutex.lock, &attributes));
	for (int way = 0; way < 4; way++) {
		in_thread(die_holding, &shared->mutex.lock);
		SAY(lock_in_way(&shared->mutex.lock, way, 60000 * MILLISECOND));
		SAY(pthread_mutex_consistent(&shared->mutex.lock));
		SAY(pthread_mutex_unlock(&shared->mutex.lock));
		fflush(stdout);
		pid_t child = fork();
		if (!child) {
			pthread_mutex_lock(&shared->mutex.lock);
			kill(getpid(), SIGKILL);
		}
		waitpid(child, NULL, 0);
		SAY(lock_in_way(&shared->mutex.lock, way, 60000 * MILLISECOND));
		SAY(pthread_mutex_consistent(&shared->mutex.lock));
		SAY(pthread_mutex_unlock(&shared->mutex.lock));
	}
	waiter = in_thread(die_while_another_waits, &shared->mutex.lock);
	pthread_join(*waiter, NULL);
	free(waiter);
	/* Left as it is, it can never be taken again. */
	in_thread(die_holding, &shared->mutex.lock);
	SAY(pthread_mutex_lock(&shared->mutex.lock));
	SAY(pthread_mutex_unlock(&shared->mutex.lock));
	for (int way = 0; way < 4; way++)
		SAY(lock_in_way(&shared->mutex.lock, way, MILLISECOND));
	SAY(pthread_mutex_destroy(&shared->mutex.lock));
	SAY_GUARDS(shared->mutex);
}

int main(void)
{
	struct shared *shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	let_owners_die(shared, PTHREAD_PRIO_NONE);
	let_owners_die(shared, PTHREAD_PRIO_INHERIT);
	return RAN;
}
