/* Conditions of both clocks, private and shared, with mutexes of several types: signalled, timed out, asked for badly. */
#include "transcript.h"

struct pair {
	GUARDED(pthread_cond_t) condition;
	GUARDED(pthread_mutex_t) mutex;
	int turn;
};

static void *answer(void *argument)
{
	struct pair *pair = argument;

	for (int i = 0; i < 30; i++) {
		struct timespec real = soon(CLOCK_REALTIME, 60000 * MILLISECOND);

		pthread_mutex_lock(&pair->mutex.lock);
		while (pair->turn != 2 * i + 1)
			pthread_cond_clockwait(&pair->condition.lock, &pair->mutex.lock, CLOCK_REALTIME, &real);
		pair->turn++;
		pthread_cond_broadcast(&pair->condition.lock);
		pthread_mutex_unlock(&pair->mutex.lock);
	}
	return NULL;
}

static void take_turns(struct pair *pair, clockid_t clock)
{
	pthread_t thread;

	pair->turn = 0;
	pthread_create(&thread, NULL, answer, pair);
	for (int i = 0; i < 30; i++) {
		struct timespec until = soon(clock, 60000 * MILLISECOND);

		pthread_mutex_lock(&pair->mutex.lock);
		pair->turn++;
		pthread_cond_signal(&pair->condition.lock);
		while (pair->turn != 2 * i + 2)
			if (i % 2)
				pthread_cond_wait(&pair->condition.lock, &pair->mutex.lock);
			else
				pthread_cond_timedwait(&pair->condition.lock, &pair->mutex.lock, &until);
		pthread_mutex_unlock(&pair->mutex.lock);
	}
	pthread_join(thread, NULL);
	printf("turns %d\n", pair->turn);
}

static void use(struct pair *pair, clockid_t clock)
{
	struct timespec until = soon(clock, MILLISECOND), monotonic = soon(CLOCK_MONOTONIC, MILLISECOND);
	struct timespec bad = {.tv_nsec = -1};

	SAY(pthread_cond_signal(&pair->condition.lock));
	SAY(pthread_cond_broadcast(&pair->condition.lock));
	SAY(pthread_mutex_lock(&pair->mutex.lock));
	SAY(pthread_cond_timedwait(&pair->condition.lock, &pair->mutex.lock, &until));
	SAY(pthread_cond_timedwait(&pair->condition.lock, &pair->mutex.lock, &bad));
	SAY(pthread_cond_clockwait(&pair->condition.lock, &pair->mutex.lock, CLOCK_MONOTONIC, &monotonic));
	SAY(pthread_cond_clockwait(&pair->condition.lock, &pair->mutex.lock, 77, &monotonic));
	SAY(pthread_mutex_unlock(&pair->mutex.lock));
	take_turns(pair, clock);
}

int main(void)
{
	static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
				    PTHREAD_MUTEX_ADAPTIVE_NP};

	for (int type = 0; type < 4; type++)
		for (int protocol = 0; protocol < 2; protocol++)
			for (int shared = 0; shared < 2; shared++) {
				clockid_t clock = (type + protocol) % 2 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
				pthread_condattr_t condition;
				pthread_mutexattr_t mutex;
				struct pair pair;

				printf("-- mutex of type %d, protocol %d; shared %d\n", type, protocol, shared);
				FILL_GUARDS(pair.condition);
				FILL_GUARDS(pair.mutex);
				pthread_condattr_init(&condition);
				pthread_condattr_setclock(&condition, clock);
				pthread_condattr_setpshared(&condition, shared);
				pthread_mutexattr_init(&mutex);
				pthread_mutexattr_settype(&mutex, types[type]);
				pthread_mutexattr_setprotocol(&mutex, protocol);
				pthread_mutexattr_setpshared(&mutex, shared);
				SAY(pthread_mutex_init(&pair.mutex.lock, &mutex));
				SAY(pthread_cond_init(&pair.condition.lock, &condition));
				use(&pair, clock);
				SAY(pthread_cond_destroy(&pair.condition.lock));
				SAY(pthread_mutex_destroy(&pair.mutex.lock));
				SAY_GUARDS(pair.condition);
				SAY_GUARDS(pair.mutex);
			}
	return RAN;
}
