/*
 * One lock, taken in one function that is called from two: the stacks differ only in what lies behind the same return address, at
 * the same stack pointer. And looks whether a mutex that was taken is as the C library leaves it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 200
#define HOLD_NS 50000

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

__attribute__((noipa)) static void take_it(void)
{
	struct timespec hold = {.tv_nsec = HOLD_NS};

	pthread_mutex_lock(&shared_lock);
	nanosleep(&hold, NULL);
	pthread_mutex_unlock(&shared_lock);
}

__attribute__((noipa)) static void go_one_way(void)
{
	take_it();
	__asm__ volatile("");
}

__attribute__((noipa)) static void go_other_way(void)
{
	take_it();
	__asm__ volatile("");
}

static void *go_both_ways(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		go_one_way();
		go_other_way();
	}
	return argument;
}

static int differs(pthread_mutex_t *mutex)
{
	int as_taken, as_free;

	pthread_mutex_lock(mutex);
	as_taken = mutex->__data.__lock && mutex->__data.__owner == gettid() && mutex->__data.__nusers == 1 &&
		   pthread_mutex_trylock(mutex) == EBUSY && pthread_mutex_destroy(mutex) == EBUSY;
	as_free = pthread_mutex_unlock(mutex) == 0 && !mutex->__data.__lock && !mutex->__data.__owner &&
		  !mutex->__data.__nusers;
	return !as_taken + !as_free;
}

static void *both_differ(void *unlike)
{
	*(int *)unlike += differs(&normal) + differs(&adaptive);
	return unlike;
}

int main(void)
{
	int unlike = 0, status = 1;
	pthread_t threads[2];
	pid_t child;

	both_differ(&unlike);
	pthread_create(&threads[0], NULL, both_differ, &unlike);
	pthread_join(threads[0], NULL);
	child = fork();
	if (child == 0) {
		both_differ(&unlike);
		_exit(unlike);
	}
	waitpid(child, &status, 0);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, go_both_ways, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	printf("{\"unlike\": %d, \"status\": %d}\n", unlike, status);
	return 0;
}
