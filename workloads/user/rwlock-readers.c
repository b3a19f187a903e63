/*
 * A reader-heavy rwlock: readers hold it together for a fixed time, one writer in between makes them wait.
 * Prints one line of JSON with the reads and writes made; contention is only of readers with the writer and of the writer
 * with readers.
 */
#include "known.h"

static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;

static __attribute__((noinline)) void read_table(struct tally *tally)
{
	pthread_rwlock_rdlock(&table_lock);
	tally->acquisitions++;
	known_hold(tally);
	pthread_rwlock_unlock(&table_lock);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline)) void write_table(struct tally *tally)
{
	pthread_rwlock_wrlock(&table_lock);
	tally->acquisitions++;
	known_hold(tally);
	pthread_rwlock_unlock(&table_lock);
	__asm__ volatile("" ::: "memory");
}

static void worker(struct tally *tally)
{
	for (unsigned int round = 0; round < known.rounds; round++) {
		if (tally->index == 0)
			write_table(tally);
		else
			read_table(tally);
		known_pause();
	}
}

int main(int argc, char **argv)
{
	return known_main(argc, argv, "rwlock-readers", worker);
}
