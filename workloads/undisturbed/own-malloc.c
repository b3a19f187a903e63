/* The program has a malloc of its own, which takes a mutex: also for what the loader, libc and threads allocate. */
#include <stdint.h>

#include "transcript.h"

#define POOL (64 << 20)

static pthread_mutex_t of_pool = PTHREAD_MUTEX_INITIALIZER;
static char pool[POOL] __attribute__((aligned(16)));
static size_t used;
static int allocations, depth, deepest;

void *malloc(size_t bytes)
{
	size_t whole = (bytes + 16 + 15) & ~(size_t)15;
	char *block = NULL;

	pthread_mutex_lock(&of_pool);
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (whole <= POOL - used) {
		block = pool + used;
		used += whole;
		*(size_t *)block = bytes;
		block += 16;
	}
	allocations++;
	depth--;
	pthread_mutex_unlock(&of_pool);
	return block;
}

void free(void *block)
{
	pthread_mutex_lock(&of_pool);
	allocations -= block != NULL;
	pthread_mutex_unlock(&of_pool);
}

void *calloc(size_t count, size_t bytes)
{
	/* The pool is zero, and no block is given out twice. */
	return malloc(count * bytes);
}

void *realloc(void *block, size_t bytes)
{
	void *grown = malloc(bytes);

	if (block && grown) {
		size_t before = *(size_t *)((char *)block - 16);

		memcpy(grown, block, before < bytes ? before : bytes);
		free(block);
	}
	return grown;
}

static void *work(void *argument)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_t *own = malloc(sizeof(*own));

		pthread_mutex_init(own, NULL);
		pthread_mutex_lock(own);
		pthread_mutex_unlock(own);
		pthread_mutex_destroy(own);
		free(own);
	}
	return argument;
}

int main(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	printf("deepest %d, some are left %d\n", deepest, allocations > 0);
	return RAN;
}
