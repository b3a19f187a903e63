/*
 * Process-shared locks in a file that another program maps, too: one with another environment, which no meter is in.  Both take
 * turns and count.
 */
#include <fcntl.h>
#include <semaphore.h>
#include <sys/mman.h>

#include "processes.h"

#define ROUNDS 500

struct shared {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	pthread_cond_t condition;
	sem_t semaphore;
	int counted, written, turns, posts;
};

static void use(struct shared *shared, int self)
{
	for (int i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&shared->mutex);
		shared->counted++;
		while (shared->turns % 2 != self)
			pthread_cond_wait(&shared->condition, &shared->mutex);
		shared->turns++;
		pthread_cond_signal(&shared->condition);
		pthread_mutex_unlock(&shared->mutex);
		pthread_rwlock_wrlock(&shared->rwlock);
		shared->written++;
		pthread_rwlock_unlock(&shared->rwlock);
		sem_wait(&shared->semaphore);
		shared->posts++;
		sem_post(&shared->semaphore);
	}
}

static void make(struct shared *shared)
{
	pthread_mutexattr_t mutex;
	pthread_rwlockattr_t rwlock;
	pthread_condattr_t condition;

	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &mutex);
	pthread_rwlockattr_init(&rwlock);
	pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&shared->rwlock, &rwlock);
	pthread_condattr_init(&condition);
	pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&shared->condition, &condition);
	sem_init(&shared->semaphore, 1, 1);
}

int main(int count, char **arguments)
{
	int file = count > 1 ? atoi(arguments[1]) : memfd_create("locks", 0);
	struct shared *shared;

	if (ftruncate(file, sizeof(*shared)))
		return 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (count > 1) {
		use(shared, 1);
		return 42;
	}
	make(shared);
	pid_t child = fork_clean();
	if (!child) {
		char number[20];
		char *words[] = {"another", number, NULL}, *none[] = {NULL};

		snprintf(number, sizeof(number), "%d", file);
		execve("/proc/self/exe", words, none);
		_exit(1);
	}
	use(shared, 0);
	SAY(end_of(child));
	printf("counted %d, written %d, turns %d, posts %d\n", shared->counted, shared->written, shared->turns,
	       shared->posts);
	return RAN;
}
