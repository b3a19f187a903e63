/*
 * What pthread and C11 threads promise, as a transcript: every type of mutex, every way to take it, errors, robustness,
 * cancellation, small stacks, signal handlers, fork.  The transcript must be the same with and without a meter.  Exit status: 7
 * ran.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* errno must come out as it went in. */
#define SAY(call)                                                                                                      \
	do {                                                                                                           \
		errno = 4711;                                                                                          \
		int status_ = (call);                                                                                  \
		printf("%-60s %d %s errno %d\n", #call, status_, status_ > 0 ? strerrorname_np(status_) : "", errno);  \
	} while (0)

static struct timespec soon(clockid_t clock, long ns)
{
	struct timespec time;

	clock_gettime(clock, &time);
	time.tv_nsec += ns;
	time.tv_sec += time.tv_nsec / 1000000000;
	time.tv_nsec %= 1000000000;
	return time;
}

static void run(void *(*function)(void *), void *argument)
{
	pthread_t thread;

	pthread_create(&thread, NULL, function, argument);
	pthread_join(thread, NULL);
}

static void *others(void *argument)
{
	pthread_mutex_t *mutex = argument;
	struct timespec real = soon(CLOCK_REALTIME, 1000000), monotonic = soon(CLOCK_MONOTONIC, 1000000);
	struct timespec bad = {.tv_nsec = -1};

	SAY(pthread_mutex_trylock(mutex));
	SAY(pthread_mutex_timedlock(mutex, &real));
	SAY(pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &monotonic));
	SAY(pthread_mutex_clocklock(mutex, 77, &monotonic));
	SAY(pthread_mutex_timedlock(mutex, &bad));
	return NULL;
}

static void mutexes(void)
{
	static const int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
				    PTHREAD_MUTEX_ADAPTIVE_NP};
	static const int protocols[] = {PTHREAD_PRIO_NONE, PTHREAD_PRIO_INHERIT, PTHREAD_PRIO_PROTECT};

	for (size_t type = 0; type < 4; type++)
		for (size_t protocol = 0; protocol < 3; protocol++)
			for (int robust = 0; robust < 2; robust++)
				for (int shared = 0; shared < 2; shared++) {
					pthread_mutexattr_t attributes;
					pthread_mutex_t mutex;
					struct timespec until = soon(CLOCK_REALTIME, 1000000);

					printf("-- type %zu protocol %zu robust %d shared %d\n", type, protocol, robust,
					       shared);
					pthread_mutexattr_init(&attributes);
					pthread_mutexattr_settype(&attributes, types[type]);
					pthread_mutexattr_setprotocol(&attributes, protocols[protocol]);
					pthread_mutexattr_setrobust(&attributes, robust);
					pthread_mutexattr_setpshared(&attributes, shared);
					SAY(pthread_mutex_init(&mutex, &attributes));
					SAY(pthread_mutex_lock(&mutex));
					SAY(pthread_mutex_trylock(&mutex));
					if (types[type] != PTHREAD_MUTEX_NORMAL &&
					    types[type] != PTHREAD_MUTEX_ADAPTIVE_NP)
						SAY(pthread_mutex_lock(&mutex));
					SAY(pthread_mutex_timedlock(&mutex, &until));
					run(others, &mutex);
					SAY(pthread_mutex_destroy(&mutex));
					for (int i = 0; i < 4; i++)
						if (types[type] == PTHREAD_MUTEX_RECURSIVE || i == 0 || robust)
							SAY(pthread_mutex_unlock(&mutex));
					SAY(pthread_mutex_destroy(&mutex));
				}
}

static void *die_with_it(void *mutex)
{
	SAY(pthread_mutex_lock(mutex));
	return NULL;
}

static void *wait_for_the_dead(void *mutex)
{
	SAY(pthread_mutex_lock(mutex));
	SAY(pthread_mutex_consistent(mutex));
	SAY(pthread_mutex_unlock(mutex));
	return NULL;
}

static void robust(void)
{
	pthread_mutexattr_t attributes;
	pthread_mutex_t mutex;

	puts("-- owner died");
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &attributes);
	run(die_with_it, &mutex);
	run(wait_for_the_dead, &mutex);
	run(die_with_it, &mutex);
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_unlock(&mutex));
	SAY(pthread_mutex_lock(&mutex));
	SAY(pthread_mutex_trylock(&mutex));
}

static void *rwlock_others(void *argument)
{
	pthread_rwlock_t *lock = argument;
	struct timespec real = soon(CLOCK_REALTIME, 1000000), monotonic = soon(CLOCK_MONOTONIC, 1000000);

	SAY(pthread_rwlock_tryrdlock(lock));
	SAY(pthread_rwlock_trywrlock(lock));
	SAY(pthread_rwlock_timedrdlock(lock, &real));
	SAY(pthread_rwlock_timedwrlock(lock, &real));
	SAY(pthread_rwlock_clockrdlock(lock, CLOCK_MONOTONIC, &monotonic));
	SAY(pthread_rwlock_clockwrlock(lock, CLOCK_MONOTONIC, &monotonic));
	return NULL;
}

static void rwlocks(void)
{
	pthread_rwlock_t lock;
	struct timespec until = soon(CLOCK_REALTIME, 1000000);

	puts("-- rwlock");
	SAY(pthread_rwlock_init(&lock, NULL));
	SAY(pthread_rwlock_wrlock(&lock));
	SAY(pthread_rwlock_wrlock(&lock));
	SAY(pthread_rwlock_rdlock(&lock));
	SAY(pthread_rwlock_timedrdlock(&lock, &until));
	run(rwlock_others, &lock);
	SAY(pthread_rwlock_unlock(&lock));
	SAY(pthread_rwlock_rdlock(&lock));
	SAY(pthread_rwlock_rdlock(&lock));
	SAY(pthread_rwlock_unlock(&lock));
	SAY(pthread_rwlock_unlock(&lock));
	SAY(pthread_rwlock_destroy(&lock));
}

static void spins(void)
{
	pthread_spinlock_t lock;

	puts("-- spin");
	SAY(pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE));
	SAY(pthread_spin_lock(&lock));
	SAY(pthread_spin_trylock(&lock));
	SAY(pthread_spin_unlock(&lock));
	SAY(pthread_spin_destroy(&lock));
}

static void semaphores(void)
{
	sem_t semaphore;
	struct timespec until = soon(CLOCK_REALTIME, 1000000), monotonic = soon(CLOCK_MONOTONIC, 1000000);
	struct timespec bad = {.tv_nsec = -1};

	puts("-- semaphore");
	SAY(sem_init(&semaphore, 0, UINT_MAX));
	SAY(sem_init(&semaphore, 0, 2));
	SAY(sem_wait(&semaphore));
	SAY(sem_trywait(&semaphore));
	SAY(sem_trywait(&semaphore));
	SAY(sem_timedwait(&semaphore, &until));
	SAY(sem_timedwait(&semaphore, &bad));
	SAY(sem_clockwait(&semaphore, CLOCK_MONOTONIC, &monotonic));
	SAY(sem_post(&semaphore));
	SAY(sem_timedwait(&semaphore, &bad));
	SAY(sem_destroy(&semaphore));
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static sem_t never;
/* Not said at once: the other thread speaks, too. */
static int unlocked = -1;
static int cleaned;

static void clean(void *argument)
{
	cleaned++;
	if (argument)
		unlocked = pthread_mutex_unlock(argument);
}

static void *cancelled_in_condition(void *argument)
{
	(void)argument;
	pthread_mutex_lock(&mutex);
	pthread_cleanup_push(clean, &mutex);
	pthread_cond_wait(&condition, &mutex);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *cancelled_in_semaphore(void *argument)
{
	pthread_cleanup_push(clean, NULL);
	sem_wait(argument);
	pthread_cleanup_pop(0);
	return NULL;
}

static void *cancelled_before_semaphore(void *argument)
{
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
	pthread_cancel(pthread_self());
	pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL);
	sem_wait(argument);
	return NULL;
}

static void cancellation(void)
{
	struct timespec until;
	pthread_t thread;
	void *result;
	sem_t ready;

	puts("-- cancellation and conditions");
	sem_init(&never, 0, 0);
	sem_init(&ready, 0, 1);
	pthread_create(&thread, NULL, cancelled_in_condition, NULL);
	usleep(20000);
	SAY(pthread_cancel(thread));
	SAY(pthread_join(thread, &result));
	printf("cancelled %d, cleaned %d, unlocked %d\n", result == PTHREAD_CANCELED, cleaned, unlocked);
	pthread_create(&thread, NULL, cancelled_in_semaphore, &never);
	usleep(20000);
	SAY(pthread_cancel(thread));
	SAY(pthread_join(thread, &result));
	printf("cancelled %d, cleaned %d\n", result == PTHREAD_CANCELED, cleaned);
	pthread_create(&thread, NULL, cancelled_before_semaphore, &ready);
	pthread_join(thread, &result);
	SAY(sem_trywait(&ready));
	printf("a free semaphore is a cancellation point: %d\n", result == PTHREAD_CANCELED);
	SAY(pthread_mutex_lock(&mutex));
	until = soon(CLOCK_REALTIME, 1000000);
	SAY(pthread_cond_timedwait(&condition, &mutex, &until));
	until = soon(CLOCK_MONOTONIC, 1000000);
	SAY(pthread_cond_clockwait(&condition, &mutex, CLOCK_MONOTONIC, &until));
	until.tv_nsec = -1;
	SAY(pthread_cond_timedwait(&condition, &mutex, &until));
	SAY(pthread_mutex_unlock(&mutex));
	SAY(pthread_cond_signal(&condition));
	SAY(pthread_cond_broadcast(&condition));
}

static int c11_others(void *argument)
{
	struct timespec until = soon(CLOCK_REALTIME, 1000000), bad = {.tv_nsec = -1};

	SAY(mtx_trylock(argument));
	SAY(mtx_timedlock(argument, &until));
	SAY(mtx_timedlock(argument, &bad));
	return 5;
}

static void c11_mutexes(void)
{
	static const int types[] = {mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive, 99};

	for (size_t type = 0; type < 5; type++) {
		struct timespec until = soon(CLOCK_REALTIME, 1000000);
		mtx_t mutex;
		thrd_t thread;
		int result;

		printf("-- C11 mutex of type %d\n", types[type]);
		SAY(mtx_init(&mutex, types[type]));
		if (types[type] == 99)
			continue;
		SAY(mtx_lock(&mutex));
		SAY(mtx_trylock(&mutex));
		SAY(mtx_timedlock(&mutex, &until));
		thrd_create(&thread, c11_others, &mutex); /* unsaid: the thread speaks meanwhile */
		SAY(thrd_join(thread, &result));
		printf("the thread returned %d\n", result);
		for (int i = 0; i < (types[type] & mtx_recursive ? 4 : 1); i++)
			SAY(mtx_unlock(&mutex));
		mtx_destroy(&mutex);
	}
}

static mtx_t c11_mutex;
static cnd_t c11_condition;
static int c11_turn;

static int c11_answer(void *argument)
{
	(void)argument;
	for (int i = 0; i < 100; i++) {
		mtx_lock(&c11_mutex);
		while (c11_turn != 2 * i + 1)
			cnd_wait(&c11_condition, &c11_mutex);
		c11_turn++;
		if (i % 2)
			cnd_signal(&c11_condition);
		else
			cnd_broadcast(&c11_condition);
		mtx_unlock(&c11_mutex);
	}
	return 0;
}

static void c11_conditions(void)
{
	struct timespec until = soon(CLOCK_REALTIME, 1000000), bad = {.tv_nsec = -1};
	thrd_t thread;

	puts("-- C11 condition");
	SAY(mtx_init(&c11_mutex, mtx_plain));
	SAY(cnd_init(&c11_condition));
	SAY(mtx_lock(&c11_mutex));
	SAY(cnd_timedwait(&c11_condition, &c11_mutex, &until));
	SAY(cnd_timedwait(&c11_condition, &c11_mutex, &bad));
	SAY(mtx_unlock(&c11_mutex));
	SAY(thrd_create(&thread, c11_answer, NULL));
	for (int i = 0; i < 100; i++) {
		mtx_lock(&c11_mutex);
		c11_turn++;
		cnd_signal(&c11_condition);
		while (c11_turn != 2 * i + 2)
			cnd_wait(&c11_condition, &c11_mutex);
		mtx_unlock(&c11_mutex);
	}
	SAY(thrd_join(thread, NULL));
	printf("turns %d\n", c11_turn);
	cnd_destroy(&c11_condition);
	mtx_destroy(&c11_mutex);
}

/* Libraries that were linked before glibc 2.34 use these. */
static void reserved_names(void)
{
	static const char *const mutexes[] = {"__pthread_mutex_init", "__pthread_mutex_lock", "__pthread_mutex_trylock",
					      "__pthread_mutex_unlock", "__pthread_mutex_destroy"};
	static const char *const rwlocks[] = {"__pthread_rwlock_init",	    "__pthread_rwlock_rdlock",
					      "__pthread_rwlock_tryrdlock", "__pthread_rwlock_trywrlock",
					      "__pthread_rwlock_unlock",    "__pthread_rwlock_unlock",
					      "__pthread_rwlock_wrlock",    "__pthread_rwlock_tryrdlock",
					      "__pthread_rwlock_unlock",    "__pthread_rwlock_destroy"};
	pthread_mutex_t mutex;
	pthread_rwlock_t lock;

	puts("-- reserved names");
	for (size_t i = 0; i < sizeof(mutexes) / sizeof(*mutexes); i++) {
		int (*function)(void *, void *) =
			(int (*)(void *, void *))dlvsym(RTLD_DEFAULT, mutexes[i], "GLIBC_2.2.5");

		puts(mutexes[i]);
		SAY(function ? function(&mutex, NULL) : -1);
	}
	for (size_t i = 0; i < sizeof(rwlocks) / sizeof(*rwlocks); i++) {
		int (*function)(void *, void *) =
			(int (*)(void *, void *))dlvsym(RTLD_DEFAULT, rwlocks[i], "GLIBC_2.2.5");

		puts(rwlocks[i]);
		SAY(function ? function(&lock, NULL) : -1);
	}
}

static void barriers(void)
{
	pthread_barrier_t barrier;

	puts("-- barrier");
	SAY(pthread_barrier_init(&barrier, NULL, 0));
	SAY(pthread_barrier_init(&barrier, NULL, 1));
	SAY(pthread_barrier_wait(&barrier));
	SAY(pthread_barrier_destroy(&barrier));
}

static pthread_mutex_t small = PTHREAD_MUTEX_INITIALIZER;
static int counted;

static void *count(void *argument)
{
	long rounds = (long)argument;

	for (long i = 0; i < rounds; i++) {
		pthread_mutex_lock(&small);
		counted++;
		pthread_mutex_unlock(&small);
	}
	return NULL;
}

static void small_stacks(void)
{
	pthread_t threads[8];
	pthread_attr_t attributes;

	puts("-- small stacks");
	pthread_attr_init(&attributes);
	SAY(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
	for (int i = 0; i < 8; i++)
		SAY(pthread_create(&threads[i], &attributes, count, (void *)20000L));
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	printf("counted %d\n", counted);
}

static sem_t signalled;

static void handler(int number)
{
	(void)number;
	sem_post(&signalled);
}

static void *post_all(void *argument)
{
	pthread_t *target = argument;

	for (int i = 0; i < 2000; i++)
		pthread_kill(*target, SIGUSR1);
	return NULL;
}

static void signals(void)
{
	struct sigaction action = {.sa_handler = handler};
	pthread_t thread, self = pthread_self();
	int before = counted, value;

	puts("-- signal handlers");
	sem_init(&signalled, 0, 0);
	sigaction(SIGUSR1, &action, NULL);
	pthread_create(&thread, NULL, post_all, &self);
	count((void *)200000L);
	pthread_join(thread, NULL);
	sem_getvalue(&signalled, &value);
	printf("counted %d, signalled %d\n", counted - before, value > 0);
	signal(SIGUSR1, SIG_DFL);
	errno = 0;
}

static void forks(void)
{
	pthread_t thread;
	int status, well = 0;

	puts("-- fork while another thread locks");
	fflush(stdout);
	pthread_create(&thread, NULL, count, (void *)100000L);
	for (int i = 0; i < 20; i++) {
		pid_t child = fork();
		if (!child) {
			pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
			pthread_mutex_lock(&own);
			_exit(pthread_mutex_unlock(&own) ? 1 : 42);
		}
		waitpid(child, &status, 0);
		well += WIFEXITED(status) && WEXITSTATUS(status) == 42;
	}
	pthread_join(thread, NULL);
	printf("children well: %d\n", well);
}

static pthread_mutex_t early = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void before_main(void)
{
	pthread_mutex_lock(&early);
	pthread_mutex_unlock(&early);
}

__attribute__((destructor)) static void after_main(void)
{
	pthread_mutex_lock(&early);
	pthread_mutex_unlock(&early);
}

int main(void)
{
	mutexes();
	robust();
	rwlocks();
	spins();
	semaphores();
	c11_mutexes();
	c11_conditions();
	reserved_names();
	barriers();
	cancellation();
	small_stacks();
	signals();
	forks();
	return 7;
}
