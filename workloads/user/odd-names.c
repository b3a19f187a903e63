/*
 * Threads and a process whose names hold what steers a terminal, a spreadsheet or a parser: colours, line breaks, separators, a formula,
 * C1 controls, bytes that are no UTF-8, characters that reorder or hide text.  Each takes the lock ROUNDS times, and sleeps while it
 * holds it, so that the others wait.  With `leave`, a child with such a name stays until its standard input ends.
 */
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define THREADS 8
#define HOLD_NS 500000

/* Tests write other bytes over these two names in the program's file. */
pthread_mutex_t lock_whose_name_is_overwritten_by_tests = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) void section_whose_name_is_overwritten(void)
{
	struct timespec hold = {.tv_nsec = HOLD_NS};

	pthread_mutex_lock(&lock_whose_name_is_overwritten_by_tests);
	nanosleep(&hold, NULL);
	pthread_mutex_unlock(&lock_whose_name_is_overwritten_by_tests);
}

static const char *const names[THREADS] = {
	"\033[31mRED",			/* a colour */
	"ab;c\rd",			/* a frame of a folded stack, and the start of the line */
	"=1+1,\"x\"",			/* a formula */
	"\23331m\377\376",		/* no UTF-8; to a terminal that expects none, a colour */
	"\302\23331m\177",		/* U+009B, which begins a control sequence, and DEL */
	"\342\200\256evil",		/* U+202E: what follows runs from right to left */
	"\342\200\250two\nlines",	/* U+2028, a line separator, and a line break */
	"a\342\200\213\357\273\277b 5", /* U+200B and U+FEFF, which show nothing, and a number */
};

static pthread_barrier_t all_started;
static long rounds = 20;

static void *work(void *name)
{
	prctl(PR_SET_NAME, name);
	pthread_barrier_wait(&all_started);
	for (long i = 0; i < rounds; i++)
		section_whose_name_is_overwritten();
	return NULL;
}

static void stay(void)
{
	char byte;

	prctl(PR_SET_NAME, "\033[2J\nleft");
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	_exit(0);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];

	if (argc > 1)
		rounds = atol(argv[1]);
	prctl(PR_SET_NAME, "@m\033[1m\n\342\200\256");
	if (argc > 2 && fork() == 0)
		stay();
	if (pthread_barrier_init(&all_started, NULL, THREADS))
		return 1;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, (void *)names[i]))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
