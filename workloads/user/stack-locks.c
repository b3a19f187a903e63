/*
 * Mutexes on the stack of a thread that is not the process's first, and of two functions that have them at one address, one after the other.
 *
 *     stack-locks [made]
 *
 * Each function shares its mutex with a helper for TURNS turns of each. With `made` a call initialises the mutexes, else nothing does.
 *
 * Prints one line of JSON: whether they had one address.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TURNS 20
#define HOLD_US 2000

static bool is_made;
static const void *first_place, *second_place;
static pthread_mutex_t cleared = PTHREAD_MUTEX_INITIALIZER;

static void *take_turns(void *mutex)
{
	for (int turn = 0; turn < TURNS; turn++) {
		pthread_mutex_lock(mutex);
		usleep(HOLD_US);
		pthread_mutex_unlock(mutex);
	}
	return NULL;
}

static inline __attribute__((always_inline)) void share(pthread_mutex_t *mutex)
{
	pthread_t helper;

	if (is_made)
		pthread_mutex_init(mutex, NULL);
	else
		memcpy(mutex, &cleared, sizeof(*mutex));
	/* It is this thread that is first to wait for the mutex, or to release it. */
	pthread_mutex_lock(mutex);
	pthread_create(&helper, NULL, take_turns, mutex);
	usleep(HOLD_US);
	pthread_mutex_unlock(mutex);
	take_turns(mutex);
	pthread_join(helper, NULL);
	if (is_made)
		pthread_mutex_destroy(mutex);
}

static __attribute__((noinline)) void sum_orders(void)
{
	pthread_mutex_t mutex;

	first_place = &mutex;
	share(&mutex);
}

static __attribute__((noinline)) void print_invoice(void)
{
	pthread_mutex_t mutex;

	second_place = &mutex;
	share(&mutex);
}

static void *work(void *unused)
{
	sum_orders();
	print_invoice();
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t worker;

	is_made = argc > 1 && !strcmp(argv[1], "made");
	if (pthread_create(&worker, NULL, work, NULL) || pthread_join(worker, NULL))
		return 1;
	printf("{\"one_address\":%s}\n", first_place == second_place ? "true" : "false");
	return 0;
}
