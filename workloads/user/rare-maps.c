/*
 * mmap_lock, which one thread takes for a moment very often, and ten times for long: to populate a large mapping. Nobody waits for it.
 *
 * Prints one line of JSON: how many long calls there were, how long they took all together and the longest of them; how long the program ran.
 * Nearly all of a long call is one hold for reading.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

#define LONG_CALLS 10
#define SHORT_ROUNDS 8000
#define LONG_BYTES (96ul << 20)

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Returns when the mapping was there. */
static long long map_and_unmap(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	long long there = now_ns();

	if (memory == MAP_FAILED || munmap(memory, bytes))
		exit(1);
	return there;
}

int main(void)
{
	long long long_ns = 0, longest_ns = 0, all_ns = now_ns(), begin, took;

	/* Small pages, so that it takes a while. */
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	for (int call = 0; call < LONG_CALLS; call++) {
		for (int round = 0; round < SHORT_ROUNDS; round++)
			map_and_unmap(4096);
		begin = now_ns();
		took = map_and_unmap(LONG_BYTES) - begin;
		long_ns += took;
		if (took > longest_ns)
			longest_ns = took;
	}
	printf("{\"long\":%d,\"long_ns\":%lld,\"longest_ns\":%lld,\"all_ns\":%lld}\n", LONG_CALLS, long_ns, longest_ns,
	       now_ns() - all_ns);
	return 0;
}
