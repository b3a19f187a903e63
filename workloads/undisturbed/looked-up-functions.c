/*
 * Takes locks through functions that it looks up: the next ones, the default ones, those of libc's handle and those of every version.
 * What one locks another unlocks.
 */
#include <dlfcn.h>

#include "transcript.h"

typedef int (*mutex_function)(pthread_mutex_t *);

static GUARDED(pthread_mutex_t) mutex;
static void *libc;

static mutex_function find(int way, const char *name)
{
	switch (way) {
	case 0:
		return (mutex_function)dlsym(RTLD_DEFAULT, name);
	case 1:
		return (mutex_function)dlsym(RTLD_NEXT, name);
	case 2:
		return (mutex_function)dlsym(libc, name);
	default:
		return (mutex_function)dlvsym(RTLD_DEFAULT, name, "GLIBC_2.2.5");
	}
}

int main(void)
{
	libc = dlopen("libc.so.6", RTLD_NOW);
	FILL_GUARDS(mutex);
	pthread_mutex_init(&mutex.lock, NULL);
	for (int way = 0; way < 4; way++)
		for (int other = 0; other < 4; other++) {
			printf("-- locked by way %d, unlocked by way %d\n", way, other);
			SAY(find(way, "pthread_mutex_lock")(&mutex.lock));
			SAY(find(other, "pthread_mutex_trylock")(&mutex.lock));
			SAY(find(other, "pthread_mutex_unlock")(&mutex.lock));
		}
	SAY(dlsym(RTLD_DEFAULT, "pthread_mutex_no_such_function") == NULL);
	SAY_GUARDS(mutex);
	return RAN;
}
