/*
 * system-calls uncontended|contended: threads use locks between two marks, which are writes to no descriptor.  A write to none
 * also says where each futex word of the program's may lie: its locks, and each thread's descriptor.
 */
#include <semaphore.h>
#include <stdatomic.h>

#include "transcript.h"

#define THREADS 4
/* Larger than glibc's struct pthread. */
#define DESCRIPTOR_BYTES 4096

static struct {
	pthread_mutex_t mutex, recursive;
	pthread_rwlock_t rwlock;
	pthread_cond_t condition;
	pthread_spinlock_t spin;
	pthread_barrier_t barrier;
	sem_t semaphore;
} locks = {.mutex = PTHREAD_MUTEX_INITIALIZER,
	   .recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
	   .rwlock = PTHREAD_RWLOCK_INITIALIZER,
	   .condition = PTHREAD_COND_INITIALIZER};
static int contended, counted;

static void mark(const char *text)
{
	if (write(-1, text, strlen(text)) != -1)
		abort();
}

static void mark_range(const void *begin, size_t bytes)
{
	char text[100];

	snprintf(text, sizeof(text), "own %#lx %#lx", (unsigned long)begin, (unsigned long)begin + bytes);
	mark(text);
}

static void pause_when_contended(int round)
{
	struct timespec time = {0, 500000};

	if (contended && round % 10 == 0)
		nanosleep(&time, NULL);
}

static void *work(void *argument)
{
	mark_range((void *)pthread_self(), DESCRIPTOR_BYTES);
	if (contended)
		pthread_barrier_wait(&locks.barrier);
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&locks.mutex);
		counted++;
		pause_when_contended(i);
		pthread_cond_broadcast(&locks.condition);
		pthread_mutex_unlock(&locks.mutex);
		pthread_mutex_lock(&locks.recursive);
		pthread_mutex_lock(&locks.recursive);
		pause_when_contended(i);
		pthread_mutex_unlock(&locks.recursive);
		pthread_mutex_unlock(&locks.recursive);
		pthread_rwlock_wrlock(&locks.rwlock);
		pause_when_contended(i);
		pthread_rwlock_unlock(&locks.rwlock);
		pthread_rwlock_rdlock(&locks.rwlock);
		pause_when_contended(i);
		pthread_rwlock_unlock(&locks.rwlock);
		sem_wait(&locks.semaphore);
		pause_when_contended(i);
		sem_post(&locks.semaphore);
		pthread_spin_lock(&locks.spin);
		pthread_spin_unlock(&locks.spin);
	}
	return argument;
}

static void use_new_locks(void)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_t mutex;
		pthread_cond_t condition;
		pthread_rwlock_t rwlock;
		sem_t semaphore;

		pthread_mutex_init(&mutex, NULL);
		pthread_cond_init(&condition, NULL);
		pthread_rwlock_init(&rwlock, NULL);
		sem_init(&semaphore, 0, 1);
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		sem_wait(&semaphore);
		sem_destroy(&semaphore);
		pthread_rwlock_destroy(&rwlock);
		pthread_cond_destroy(&condition);
		pthread_mutex_destroy(&mutex);
	}
}

int main(int count, char **arguments)
{
	pthread_t threads[THREADS];

	contended = count > 1 && !strcmp(arguments[1], "contended");
	pthread_spin_init(&locks.spin, 0);
	pthread_barrier_init(&locks.barrier, NULL, THREADS);
	sem_init(&locks.semaphore, 0, 1);
	mark_range(&locks, sizeof(locks));
	mark("begin");
	if (contended) {
		for (int i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, work, NULL);
		pthread_mutex_lock(&locks.mutex);
		while (counted < 100 * THREADS)
			pthread_cond_wait(&locks.condition, &locks.mutex);
		pthread_mutex_unlock(&locks.mutex);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
	} else {
		work(NULL);
		in_thread(work, NULL);
	}
	use_new_locks();
	mark("end");
	printf("counted %d\n", counted);
	return RAN;
}
