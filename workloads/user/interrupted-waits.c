/*
 * Four waits of 0.2 s for `kept_lock`, in `waits_on`, while the waiter handles a signal every 5 ms: each is one wait. With an argument
 * its handler has no SA_RESTART, so that libc calls the kernel anew. Begins when standard input ends, and prints one line of JSON: what
 * the waiter measured.
 */
#include "known.h"

#define WAITS 4
#define WAIT_NS 200000000ull
#define BETWEEN_NS 5000000ull

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t kept, released;
static uint64_t waited_ns;
static volatile sig_atomic_t handled, is_over;

static void handle(int number)
{
	(void)number;
	handled++;
}

static __attribute__((noinline)) void waits_on(void)
{
	uint64_t begin = known_now_ns();

	pthread_mutex_lock(&kept_lock);
	waited_ns += known_now_ns() - begin;
	pthread_mutex_unlock(&kept_lock);
	__asm__ volatile("" ::: "memory");
}

static void *waiter(void *nothing)
{
	for (int i = 0; i < WAITS; i++) {
		pthread_barrier_wait(&kept);
		waits_on();
		pthread_barrier_wait(&released);
	}
	return nothing;
}

static void *keeper(void *nothing)
{
	for (int i = 0; i < WAITS; i++) {
		pthread_mutex_lock(&kept_lock);
		pthread_barrier_wait(&kept);
		known_sleep(WAIT_NS);
		pthread_mutex_unlock(&kept_lock);
		pthread_barrier_wait(&released);
	}
	is_over = 1;
	return nothing;
}

int main(int argc, char **argv)
{
	struct sigaction action = {.sa_handler = handle, .sa_flags = argc > 1 ? 0 : SA_RESTART};
	pthread_t waits, keeps;

	(void)argv;
	sigaction(SIGUSR1, &action, NULL);
	pthread_barrier_init(&kept, NULL, 2);
	pthread_barrier_init(&released, NULL, 2);
	while (getchar() != EOF)
		;
	if (pthread_create(&waits, NULL, waiter, NULL) || pthread_create(&keeps, NULL, keeper, NULL))
		return 1;
	while (!is_over) {
		known_sleep(BETWEEN_NS);
		pthread_kill(waits, SIGUSR1);
	}
	pthread_join(keeps, NULL);
	pthread_join(waits, NULL);
	printf("{\"waits\": %d, \"wait_ns\": %llu, \"handled\": %d}\n", WAITS, (unsigned long long)waited_ns,
	       (int)handled);
	return 0;
}
