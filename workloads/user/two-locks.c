/*
 * Two locks, one hot: N threads take the hot lock for a fixed time at two call sites, the cold one for nothing in between.
 * Prints one line of JSON with what it measured itself: acquisitions, the time the hot lock was held, and the time its
 * waiters waited, at both sites and at the second.
 */
#include "known.h"

static pthread_mutex_t hot_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t cold_lock = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void often(struct tally *tally)
{
	known_lock(&hot_lock, tally);
	known_hold(tally);
	known_unlock(&hot_lock, tally);
}

static __attribute__((noinline)) void seldom(struct tally *tally)
{
	uint64_t waited_ns = tally->wait_ns;

	known_lock(&hot_lock, tally);
	tally->seldom_wait_ns += tally->wait_ns - waited_ns;
	known_hold(tally);
	known_hold(tally);
	known_unlock(&hot_lock, tally);
}

static void worker(struct tally *tally)
{
	for (unsigned int round = 0; round < known.rounds; round++) {
		if (round % 4)
			often(tally);
		else
			seldom(tally);
		pthread_mutex_lock(&cold_lock);
		pthread_mutex_unlock(&cold_lock);
		known_pause();
	}
}

int main(int argc, char **argv)
{
	return known_main(argc, argv, "two-locks", worker);
}
