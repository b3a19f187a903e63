/* Children fork children, five deep, by fork and by _Fork; each has threads of its own that lock. */
#include "processes.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int taken;

static void *work(void *argument)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&mutex);
		taken++;
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static int run_threads(void)
{
	pthread_t threads[2];
	int before = taken;

	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	return taken - before == 200;
}

/* How many processes below and with this one counted right. */
static int grow(int depth)
{
	int well = run_threads();

	for (int i = 0; i < 2 && depth > 0; i++) {
		pid_t child;

		fflush(stdout);
		child = i ? fork() : _Fork();
		if (!child)
			_exit(i ? grow(depth - 1) : depth);
		well += end_of(child);
	}
	return well;
}

int main(void)
{
	/* Each level: this process, a _Fork that ends with its depth, a fork that grows. */
	printf("sum %d\n", grow(5));
	return RAN;
}
