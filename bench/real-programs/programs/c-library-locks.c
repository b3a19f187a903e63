/*
 * Threads that wait for locks which the C library takes for itself, and for nothing else.
 *
 *   arena   all of them allocate from the one arena that is allowed
 *   stdio   all of them print to one stream
 *
 * Answers each line with the time, the work done and the time blocked: what the scheduler has neither as run nor as waited for a CPU.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6
#define BLOCKS 64

static unsigned long long work[THREADS * 16];
static unsigned long long began_ns[THREADS];
static int tids[THREADS];
static FILE *stream;
static int arena;

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

/* Time on and for a CPU. */
static unsigned long long scheduled_ns(int tid)
{
	unsigned long long on_cpu = 0, for_cpu = 0;
	char text[128] = "", path[64];
	FILE *file;

	snprintf(path, sizeof path, "/proc/self/task/%d/schedstat", tid);
	file = fopen(path, "r");
	if (file) {
		if (fgets(text, sizeof text, file))
			sscanf(text, "%llu %llu", &on_cpu, &for_cpu);
		fclose(file);
	}
	return on_cpu + for_cpu;
}

static void allocate(unsigned *random)
{
	void *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		*random = *random * 1103515245 + 12345;
		blocks[i] = malloc(1100 + (*random >> 16) % 60000);
	}
	for (int i = 0; i < BLOCKS; i++)
		free(blocks[i * 37 % BLOCKS]);
}

static void print(void)
{
	for (int i = 0; i < BLOCKS; i++)
		fprintf(stream, "%d requests of %s took %.3f ms\n", i, "somebody", i * 0.37);
}

static void *run(void *argument)
{
	int number = (int)(long)argument;
	unsigned random = number;

	began_ns[number] = now_ns();
	__atomic_store_n(&tids[number], (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	for (;;) {
		if (arena)
			allocate(&random);
		else
			print();
		__atomic_fetch_add(&work[number * 16], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 2)
		return 2;
	arena = !strcmp(argv[1], "arena");
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	stream = fopen("/dev/null", "w");
	for (long i = 0; i < THREADS; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, run, (void *)i))
			return 2;
		while (!__atomic_load_n(&tids[i], __ATOMIC_ACQUIRE))
			usleep(1000);
	}
	printf("ready\n");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		unsigned long long done = 0, blocked = 0, now;

		for (int i = 0; i < THREADS; i++) {
			unsigned long long scheduled = scheduled_ns(tids[i]);

			now = now_ns();
			done += __atomic_load_n(&work[i * 16], __ATOMIC_RELAXED);
			if (now - began_ns[i] > scheduled)
				blocked += now - began_ns[i] - scheduled;
		}
		printf("%llu %llu %llu\n", now_ns(), done, blocked);
		fflush(stdout);
	}
	_exit(0);
}
