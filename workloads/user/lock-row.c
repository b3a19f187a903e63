/*
 * An array of locks that one place in the program takes millions of times. One of them then becomes another lock, which the
 * same place goes on to take.
 */
#include <pthread.h>
#include <stdio.h>

#define LOCKS 500
#define ROUNDS 4000
#define AFTERWARDS 3000
#define CHANGED 300

static pthread_mutex_t row[LOCKS];

__attribute__((noinline)) static void make_row(int index)
{
	pthread_mutex_init(&row[index], NULL);
}

__attribute__((noinline)) static void make_other(pthread_mutex_t *lock)
{
	pthread_mutex_init(lock, NULL);
}

__attribute__((noinline)) static void take(pthread_mutex_t *lock)
{
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
}

int main(void)
{
	for (int i = 0; i < LOCKS; i++)
		make_row(i);
	for (int round = 0; round < ROUNDS; round++)
		for (int i = 0; i < LOCKS; i++)
			take(&row[i]);
	make_other(&row[CHANGED]);
	for (int i = 0; i < AFTERWARDS; i++)
		take(&row[CHANGED]);
	for (int i = 0; i < LOCKS; i++)
		if (i != CHANGED)
			take(&row[i]);
	printf("{\"row\": %d, \"other\": %d}\n", ROUNDS * LOCKS + LOCKS - 1, AFTERWARDS);
	return 0;
}
