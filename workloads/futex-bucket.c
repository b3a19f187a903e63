/*
 * futex_hash_bucket.lock: threads that make the kernel search one futex hash bucket under its spinlock.
 *
 * A crowd of threads sleeps on one futex word with bit 0 of the bitset.  The workers wake "one sleeper of bit 1" on the same
 * word: there is none, so futex_wake() takes the bucket's lock, walks all the sleepers and lets go, and nobody ever wakes.
 * The crowd is what makes the hold long; it also keeps futex_wake() from skipping the lock, as it does for an empty bucket.
 *
 * Since Linux 6.16 a private futex hashes into a table that belongs to the process (futex_private_hash); --shared asks for
 * the global table, as all futexes did before.
 */
#include <linux/futex.h>

#include "workload.h"

#define CROWD 64
#define CROWD_STACK_BYTES (64ul << 10)
#define CROWD_BIT 1u
#define WORKER_BIT 2u

static atomic_uint word;
static pthread_t crowd[CROWD];
static unsigned int crowd_size;

static long futex(int operation, unsigned int value, unsigned int bitset)
{
	return syscall(SYS_futex, &word, operation | (workload_run->shared ? 0 : FUTEX_PRIVATE_FLAG), value, NULL, NULL,
		       bitset);
}

static void *sleep_on_word(void *unused)
{
	while (atomic_load(&word) == 0)
		futex(FUTEX_WAIT_BITSET, 0, CROWD_BIT);
	return unused;
}

static void gather_crowd(void)
{
	pthread_attr_t attributes;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, CROWD_STACK_BYTES);
	for (; crowd_size < CROWD; crowd_size++) {
		int error = pthread_create(&crowd[crowd_size], &attributes, sleep_on_word, NULL);

		if (error)
			fail("cannot start the sleeping threads: %s", strerror(error));
	}
	pthread_attr_destroy(&attributes);
}

static void dismiss_crowd(void)
{
	atomic_store(&word, 1);
	futex(FUTEX_WAKE_BITSET, INT_MAX, FUTEX_BITSET_MATCH_ANY);
	while (crowd_size)
		pthread_join(crowd[--crowd_size], NULL);
}

static void search_bucket(struct worker *self)
{
	while (workload_running()) {
		futex(FUTEX_WAKE_BITSET, 1, WORKER_BIT);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload futex_bucket = {
		.name = "futex-bucket",
		.about = "threads search one futex hash bucket (futex_hash_bucket.lock)",
		.threads = WORKLOAD_ONE_PER_CPU,
		.min_threads = 2,
		.accepts = WORKLOAD_SHARED,
		.setup = gather_crowd,
		.worker = search_bucket,
		.teardown = dismiss_crowd,
	};

	return workload_main(argc, argv, &futex_bucket);
}
