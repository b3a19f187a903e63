/*
 * A program limits its own address space to what it needs, by each function that does so and by a shell below it, and then gets that much:
 * memory, threads, children.
 */
#include <sys/resource.h>

#include "processes.h"

#define MEGABYTE (1L << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *work(void *argument)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&mutex);
		counted++;
		usleep(20);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void use_it(const char *how)
{
	pthread_t threads[2];
	int created = 0;
	char *memory = malloc(300 * MEGABYTE);

	counted = 0;
	for (int i = 0; i < 2; i++)
		created += !pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < created; i++)
		pthread_join(threads[i], NULL);
	printf("%s: memory %d, threads %d, counted %d, far too much %d\n", how, memory != NULL, created, counted,
	       malloc(3000 * MEGABYTE) != NULL);
	free(memory);
	fflush(stdout);
	printf("a shell: %d\n", system("x=$(seq 1 100000); echo ${#x}"));
	fflush(stdout);
}

/* In a child, for a limit cannot be raised again. */
static void in_child(int how)
{
	struct rlimit limit = {1000 * MEGABYTE, 1000 * MEGABYTE};
	struct rlimit64 limit64 = {1000 * MEGABYTE, 1000 * MEGABYTE};
	struct rlimit was;

	switch (how) {
	case 0:
		SAY(setrlimit(RLIMIT_AS, &limit));
		use_it("setrlimit");
		break;
	case 1:
		SAY(setrlimit64(RLIMIT_AS, &limit64));
		use_it("setrlimit64");
		break;
	case 2:
		SAY(prlimit(0, RLIMIT_AS, &limit, &was));
		use_it("prlimit");
		break;
	case 3:
		SAY(prlimit64(getpid(), RLIMIT_AS, &limit64, NULL));
		use_it("prlimit64");
		break;
	default:
		SAY(setrlimit(RLIMIT_AS, (struct rlimit *)1));
		SAY(prlimit(0, RLIMIT_AS, NULL, &was));
		limit.rlim_cur = 600 * MEGABYTE;
		SAY(setrlimit(RLIMIT_AS, &limit));
		limit.rlim_cur = 500 * MEGABYTE;
		SAY(setrlimit(RLIMIT_AS, &limit));
		use_it("lower and lower");
	}
}

int main(void)
{
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
	for (int how = 0; how < 5; how++) {
		fflush(stdout);
		pid_t child = fork();

		if (!child) {
			in_child(how);
			_exit(0);
		}
		printf("ended %d\n", end_of(child));
	}
	fflush(stdout);
	printf("bash: %d\n", system("bash -c 'ulimit -v 1000000; x=$(seq 1 200000); echo ${#x} $(echo below)'"));
	return RAN;
}
