/*
 * One lock, taken in one function that is called from two: the stacks differ only in what lies behind the same return address, at
 * the same stack pointer. Another thread holds it until it sees that it is waited for, so that each acquisition of either way waits.
 * And looks whether a mutex that was taken is as the C library leaves it.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 200
#define WAITED_FOR 2

static pthread_mutex_t shared_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t is_held;
static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

__attribute__((noipa)) static void take_it(void)
{
	pthread_barrier_wait(&is_held);
	pthread_mutex_lock(&shared_lock);
	pthread_mutex_unlock(&shared_lock);
	pthread_barrier_wait(&is_held);
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

static void hold_until_waited_for(void)
{
	pthread_mutex_lock(&shared_lock);
	pthread_barrier_wait(&is_held);
	while (__atomic_load_n(&shared_lock.__data.__lock, __ATOMIC_RELAXED) != WAITED_FOR)
		sched_yield();
	pthread_mutex_unlock(&shared_lock);
	pthread_barrier_wait(&is_held);
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
	pthread_t thread;
	pid_t child;

	both_differ(&unlike);
	pthread_create(&thread, NULL, both_differ, &unlike);
	pthread_join(thread, NULL);
	child = fork();
	if (child == 0) {
		both_differ(&unlike);
		_exit(unlike);
	}
	waitpid(child, &status, 0);
	pthread_barrier_init(&is_held, NULL, 2);
	pthread_create(&thread, NULL, go_both_ways, NULL);
	for (int i = 0; i < 2 * ROUNDS; i++)
		hold_until_waited_for();
	pthread_join(thread, NULL);
	printf("{\"unlike\": %d, \"status\": %d, \"rounds\": %d}\n", unlike, status, ROUNDS);
	return 0;
}
