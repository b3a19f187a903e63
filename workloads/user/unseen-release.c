/*
 * A lock that is released past the meter, by the C library's own function: the one that waits for it is not told by whom. It is held until
 * it is waited for, each round.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>

#define ROUNDS 20
#define HOLD_NS 5000000
/* What the C library has in a mutex then. */
#define WAITED_FOR 2

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t begin, taken;
static long long last_hold_ns;
static int (*release)(pthread_mutex_t *);

__attribute__((noinline)) static void keep_it(void)
{
	pthread_mutex_lock(&kept_lock);
	sem_post(&taken);
	while (__atomic_load_n(&kept_lock.__data.__lock, __ATOMIC_RELAXED) != WAITED_FOR)
		sched_yield();
	release(&kept_lock);
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Whose release is seen: its hold is one, whatever was not seen before. */
__attribute__((noinline)) static void hold_and_give_back(void)
{
	struct timespec hold = {.tv_nsec = HOLD_NS};
	long long before_ns = now_ns();

	pthread_mutex_lock(&kept_lock);
	nanosleep(&hold, NULL);
	pthread_mutex_unlock(&kept_lock);
	last_hold_ns = now_ns() - before_ns;
}

static void *keeper(void *argument)
{
	for (int i = 0; i < ROUNDS; i++) {
		sem_wait(&begin);
		keep_it();
	}
	sem_wait(&begin);
	hold_and_give_back();
	return argument;
}

int main(void)
{
	void *library = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
	pthread_t thread;

	if (library)
		*(void **)&release = dlsym(library, "pthread_mutex_unlock");
	if (!release || sem_init(&begin, 0, 0) || sem_init(&taken, 0, 0) ||
	    pthread_create(&thread, NULL, keeper, NULL)) {
		perror("unseen-release");
		return 1;
	}
	pthread_setname_np(thread, "keeper");
	for (int i = 0; i < ROUNDS; i++) {
		sem_post(&begin);
		sem_wait(&taken);
		pthread_mutex_lock(&kept_lock);
		release(&kept_lock);
	}
	sem_post(&begin);
	pthread_join(thread, NULL);
	printf("{\"rounds\": %d, \"last_hold_ns\": %lld}\n", ROUNDS, last_hold_ns);
	return 0;
}
