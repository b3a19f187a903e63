/*
 * threads-at-once THREADS STACK-BYTES [ROUNDS [cpu]]: this many threads are alive at once; each takes one mutex ten times, or ROUNDS, and
 * others wait for it. With `cpu` it prints how much CPU time it took in all.
 * The stacks are carved from one mapping without guard pages, for the kernel allows a process 65,530 mappings.
 */
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "transcript.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_alive;
static long taken, rounds = 10;

static void *work(void *argument)
{
	pthread_barrier_wait(&all_alive);
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&mutex);
		taken++;
		sched_yield();
		pthread_mutex_unlock(&mutex);
	}
	pthread_barrier_wait(&all_alive);
	return argument;
}

static long cpu_time_us(void)
{
	struct rusage used;

	getrusage(RUSAGE_SELF, &used);
	return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000L + used.ru_utime.tv_usec + used.ru_stime.tv_usec;
}

int main(int count, char **arguments)
{
	int threads = count > 1 ? atoi(arguments[1]) : 100;
	size_t stack = count > 2 ? (size_t)atoi(arguments[2]) : 65536;
	pthread_t *ids = calloc(threads, sizeof(*ids));
	char *stacks = mmap(NULL, threads * stack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attributes;

	if (count > 3)
		rounds = atoi(arguments[3]);
	pthread_barrier_init(&all_alive, NULL, threads);
	pthread_attr_init(&attributes);
	for (int i = 0; i < threads; i++) {
		pthread_attr_setstack(&attributes, stacks + i * stack, stack);
		int status = pthread_create(&ids[i], &attributes, work, NULL);

		if (status) {
			printf("thread %d was not created: %s\n", i, strerrorname_np(status));
			return 1;
		}
	}
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	printf("taken %ld times\n", taken);
	if (count > 4)
		printf("CPU time %ld us\n", cpu_time_us());
	return RAN;
}
