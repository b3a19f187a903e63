/*
 * Uses of locks that glibc lets pass, as a transcript: readers that come again while a writer waits, locks that are copied,
 * unlocked by another thread, taken again after they were destroyed, destroyed while threads wait for a condition, carried
 * through fork by handlers, made by the thousand in one place.  The transcript must be the same whatever the locks are.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* errno must come out as it went in. */
#define SAY(call)                                                                                                      \
	do {                                                                                                           \
		errno = 4711;                                                                                          \
		int status_ = (call);                                                                                  \
		printf("%-50s %d errno %d\n", #call, status_, errno);                                                  \
	} while (0)

static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t preferring = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int waiting, go;

static void run(void *(*function)(void *), void *argument)
{
	pthread_t thread;

	pthread_create(&thread, NULL, function, argument);
	pthread_join(thread, NULL);
}

static void *write_once(void *lock)
{
	pthread_rwlock_wrlock(lock);
	pthread_rwlock_unlock(lock);
	return NULL;
}

static void readers_that_come_again(void)
{
	pthread_t writer;

	for (int i = 0; i < 20; i++) {
		pthread_rwlock_rdlock(&rwlock);
		pthread_create(&writer, NULL, write_once, &rwlock);
		usleep(3000);
		pthread_rwlock_rdlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		pthread_rwlock_unlock(&rwlock);
		pthread_join(writer, NULL);
	}
	SAY(pthread_rwlock_wrlock(&preferring));
	SAY(pthread_rwlock_rdlock(&preferring));
	SAY(pthread_rwlock_unlock(&preferring));
	SAY(pthread_rwlock_destroy(&preferring));
	SAY(pthread_rwlock_tryrdlock(&preferring));
	SAY(pthread_rwlock_unlock(&preferring));
}

static void *unlock(void *lock)
{
	SAY(pthread_mutex_unlock(lock));
	return NULL;
}

static void owners(void)
{
	SAY(pthread_mutex_lock(&recursive));
	SAY(pthread_mutex_lock(&recursive));
	run(unlock, &recursive);
	SAY(pthread_mutex_unlock(&recursive));
	SAY(pthread_mutex_unlock(&recursive));
	SAY(pthread_mutex_unlock(&recursive));
	SAY(pthread_cond_wait(&condition, &checking));
	SAY(pthread_mutex_lock(&checking));
	SAY(pthread_mutex_lock(&checking));
	SAY(pthread_mutex_trylock(&checking));
	SAY(pthread_mutex_unlock(&checking));
	SAY(pthread_mutex_unlock(&checking));
	SAY(pthread_mutex_lock(&adaptive));
	run(unlock, &adaptive);
	SAY(pthread_mutex_trylock(&adaptive));
	SAY(pthread_mutex_unlock(&adaptive));
}

static void copies(void)
{
	pthread_mutex_t copy = mutex, copy_of_used;

	SAY(pthread_mutex_lock(&copy));
	SAY(pthread_mutex_trylock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
	copy_of_used = mutex;
	SAY(pthread_mutex_lock(&copy_of_used));
	SAY(pthread_mutex_trylock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
	SAY(pthread_mutex_unlock(&copy_of_used));
	SAY(pthread_mutex_unlock(&copy));
}

static void *wait_to_go(void *argument)
{
	pthread_mutex_lock(&mutex);
	waiting++;
	while (!go)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	return argument;
}

static void destruction(void)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, wait_to_go, NULL);
	for (int all = 0; !all; usleep(100)) {
		pthread_mutex_lock(&mutex);
		all = waiting == 4;
		pthread_mutex_unlock(&mutex);
	}
	SAY(pthread_mutex_destroy(&mutex));
	pthread_mutex_lock(&mutex);
	go = 1;
	SAY(pthread_cond_broadcast(&condition));
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	SAY(pthread_mutex_destroy(&mutex));
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_init(&mutex, NULL));
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
}

static void before_fork(void)
{
	pthread_mutex_lock(&mutex);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&mutex);
}

static void *lock_all_the_time(void *argument)
{
	for (int i = 0; i < 20000; i++) {
		pthread_mutex_lock(&mutex);
		pthread_mutex_unlock(&mutex);
	}
	return argument;
}

static void forks(void)
{
	pthread_t thread;
	int status, well = 0;

	pthread_atfork(before_fork, after_fork, after_fork);
	pthread_create(&thread, NULL, lock_all_the_time, NULL);
	fflush(stdout);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();

		if (!child)
			_exit(pthread_mutex_trylock(&mutex) ? 1 : 42);
		waitpid(child, &status, 0);
		well += WIFEXITED(status) && WEXITSTATUS(status) == 42;
	}
	pthread_join(thread, NULL);
	printf("children well: %d\n", well);
}

static void thousands(void)
{
	enum { LOCKS = 20000 };
	pthread_rwlock_t *locks = malloc(LOCKS * sizeof(*locks));
	int failed = 0;

	for (int round = 0; round < 4; round++) {
		for (int i = 0; i < LOCKS; i++)
			failed += pthread_rwlock_init(&locks[i], NULL) || pthread_rwlock_wrlock(&locks[i]) ||
				  pthread_rwlock_unlock(&locks[i]);
		for (int i = 0; i < LOCKS; i++)
			failed += pthread_rwlock_destroy(&locks[i]);
	}
	free(locks);
	printf("failed: %d\n", failed);
}

int main(void)
{
	readers_that_come_again();
	owners();
	copies();
	destruction();
	forks();
	thousands();
	return 0;
}
