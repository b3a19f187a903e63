/*
 * A pipeline through one queue: the first thread produces, the others wait for a condition and consume.  The queue's lock
 * is held for nothing but the queue, so nearly all the time is waited for the condition, which is no lock.
 */
#include "known.h"

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_filled = PTHREAD_COND_INITIALIZER;
static unsigned int queued, finished;

static __attribute__((noinline)) void produce(struct tally *tally)
{
	for (unsigned int round = 0; round < known.rounds; round++) {
		known_pause();
		pthread_mutex_lock(&queue_lock);
		tally->acquisitions++;
		queued++;
		pthread_mutex_unlock(&queue_lock);
		/* Now, so that who wakes up finds the lock free. */
		pthread_cond_signal(&queue_filled);
	}
	pthread_mutex_lock(&queue_lock);
	tally->acquisitions++;
	finished = 1;
	pthread_cond_broadcast(&queue_filled);
	pthread_mutex_unlock(&queue_lock);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void consume(struct tally *tally)
{
	pthread_mutex_lock(&queue_lock);
	for (;;) {
		while (!queued && !finished) {
			uint64_t begin = known_now_ns();

			pthread_cond_wait(&queue_filled, &queue_lock);
			tally->wait_ns += known_now_ns() - begin;
		}
		if (!queued)
			break;
		queued--;
		tally->acquisitions++;
	}
	pthread_mutex_unlock(&queue_lock);
	__asm__ volatile("" ::: "memory");
}

static void worker(struct tally *tally)
{
	if (tally->index == 0)
		produce(tally);
	else
		consume(tally);
}

int main(int argc, char **argv)
{
	return known_main(argc, argv, "pipeline", worker);
}
