/*
 * Forks while its own handlers hold locks that other threads wait for. The children, in which those threads do not exist, release the
 * locks and go on using them. Prints how many children hung. With the C library's locks, those with reader-writer locks may.
 *
 *     fork-handlers [mutex] [rwlock]
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKS = 20, THREADS = 4, ROUNDS = 50, PATIENCE_S = 20 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int with_mutex, with_rwlock, stop;
static long count;

static void before_fork(void)
{
	if (with_mutex)
		pthread_mutex_lock(&mutex);
	if (with_rwlock)
		pthread_rwlock_wrlock(&rwlock);
	usleep(2000);
}

static void after_fork(void)
{
	if (with_rwlock)
		pthread_rwlock_unlock(&rwlock);
	if (with_mutex)
		pthread_mutex_unlock(&mutex);
}

static void use_once(int writes)
{
	if (with_mutex) {
		pthread_mutex_lock(&mutex);
		count++;
		pthread_cond_signal(&never);
		pthread_mutex_unlock(&mutex);
	}
	if (with_rwlock) {
		if (writes)
			pthread_rwlock_wrlock(&rwlock);
		else
			pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
	}
}

static void *use_for_ever(void *number)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		use_once((long)number % 2);
	return NULL;
}

static void *use_for_a_while(void *number)
{
	for (int round = 0; round < ROUNDS; round++)
		use_once((long)number % 2);
	return NULL;
}

static void with_threads(pthread_t threads[THREADS], void *(*body)(void *))
{
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, body, (void *)i);
}

static void join_all(pthread_t threads[THREADS])
{
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	int hung = 0;

	for (int i = 1; i < argc; i++) {
		with_mutex |= !strcmp(argv[i], "mutex");
		with_rwlock |= !strcmp(argv[i], "rwlock");
	}
	pthread_atfork(before_fork, after_fork, after_fork);
	with_threads(threads, use_for_ever);
	/* One that hangs takes long enough. */
	for (int i = 0; i < FORKS && !hung; i++) {
		int status;
		pid_t child = fork();
		if (!child) {
			pthread_t own[THREADS];
			alarm(PATIENCE_S);
			use_for_a_while(NULL);
			with_threads(own, use_for_a_while);
			join_all(own);
			_exit(0);
		}
		waitpid(child, &status, 0);
		hung += status != 0;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	join_all(threads);
	printf("children that hung: %d\n", hung);
	return hung != 0;
}
