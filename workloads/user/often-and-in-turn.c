/*
 * A lock that one thread takes so often that not every hold can be timed, and a lock that two threads take in turn.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#include "c11.h"

#define OFTEN 4000000
#define TURNS 400

static pthread_mutex_t often_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int turn;

static void *take_in_turn(void *argument)
{
	int mine = argument != NULL;

	for (int i = 0; i < TURNS; i++) {
		while (atomic_load(&turn) != mine)
			sched_yield();
		pthread_mutex_lock(&turn_lock);
		pthread_mutex_unlock(&turn_lock);
		atomic_store(&turn, !mine);
	}
	return NULL;
}

int main(void)
{
	pthread_t other;

	if (pthread_create(&other, NULL, take_in_turn, &turn))
		return 1;
	take_in_turn(NULL);
	pthread_join(other, NULL);
	for (int i = 0; i < OFTEN; i++) {
		pthread_mutex_lock(&often_lock);
		pthread_mutex_unlock(&often_lock);
	}
	printf("{\"often\": %d, \"in_turn\": %d}\n", OFTEN, 2 * TURNS);
	return 0;
}
