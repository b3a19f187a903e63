/* 100,000 mutexes on the heap with guard bytes around, made, taken, destroyed and made again. */
#include "transcript.h"

#define MUTEXES 100000

struct element {
	unsigned char before[8];
	pthread_mutex_t mutex;
	unsigned char after[8];
};

int main(void)
{
	struct element *elements = malloc(MUTEXES * sizeof(*elements));
	int failed = 0, bad = 0;

	memset(elements, GUARD_PATTERN, MUTEXES * sizeof(*elements));
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < MUTEXES; i++)
			failed += !!pthread_mutex_init(&elements[i].mutex, NULL);
		for (int i = 0; i < MUTEXES; i++)
			failed += pthread_mutex_lock(&elements[i].mutex) || pthread_mutex_unlock(&elements[i].mutex);
		for (int i = 0; i < MUTEXES; i++)
			failed += !!pthread_mutex_destroy(&elements[i].mutex);
	}
	for (int i = 0; i < MUTEXES; i++)
		for (int byte = 0; byte < 8; byte++)
			bad += (elements[i].before[byte] != GUARD_PATTERN) + (elements[i].after[byte] != GUARD_PATTERN);
	printf("failed %d, guard bytes overwritten %d\n", failed, bad);
	free(elements);
	return RAN;
}
