/*
 * A library for the programs that load one: a static lock, locked by a constructor, a destructor, a handler of fork and two functions;
 * thread-local data in the static block where IN_STATIC_BLOCK is defined.
 */
#include <pthread.h>
#include <stdio.h>

#ifdef IN_STATIC_BLOCK
#define TLS_MODEL __attribute__((tls_model("initial-exec")))
#else
#define TLS_MODEL
#endif

static pthread_mutex_t lock_of_library = PTHREAD_MUTEX_INITIALIZER;
static __thread TLS_MODEL int used_by_thread[8];
static int used;

__attribute__((constructor)) static void when_loaded(void)
{
	pthread_mutex_lock(&lock_of_library);
	used = 1;
	pthread_mutex_unlock(&lock_of_library);
}

__attribute__((destructor)) static void when_unloaded(void)
{
	pthread_mutex_lock(&lock_of_library);
	used = 0;
	pthread_mutex_unlock(&lock_of_library);
}

static void around_fork(void)
{
}

void library_register(void)
{
	pthread_atfork(around_fork, around_fork, around_fork);
}

int library_use(void)
{
	pthread_mutex_lock(&lock_of_library);
	used++;
	used_by_thread[0]++;
	pthread_mutex_unlock(&lock_of_library);
	return used_by_thread[0];
}
