// Uses every function of lockmeter/locks.h, from C and C++, and exits with the line of the first thing that is wrong.
#define _DEFAULT_SOURCE // MAP_ANONYMOUS
#include <errno.h>
#include <lockmeter/locks.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(truth)                                                                                                   \
	do {                                                                                                           \
		if (!(truth))                                                                                          \
			exit(__LINE__ % 256 ? __LINE__ % 256 : 1);                                                     \
	} while (0)

enum { THREADS = 4, ROUNDS = 20000, MS = 1000000 };

static lm_mutex_t static_mutex = LM_MUTEX_INIT;
static lm_spin_t static_spin = LM_SPIN_INIT;
static lm_rwsem_t static_rwsem = LM_RWSEM_INIT;
static lm_percpu_rwsem_t static_percpu = LM_PERCPU_RWSEM_INIT;
static long by_mutex, by_spin, by_rwsem, by_percpu;

static void *count(void *unused)
{
	for (int round = 0; round < ROUNDS; round++) {
		lm_mutex_lock(&static_mutex);
		by_mutex++;
		lm_mutex_unlock(&static_mutex);
		lm_spin_lock(&static_spin);
		by_spin++;
		lm_spin_unlock(&static_spin);
		lm_rwsem_write_lock(&static_rwsem);
		by_rwsem++;
		lm_rwsem_write_unlock(&static_rwsem);
		lm_percpu_rwsem_read_lock(&static_percpu);
		long seen = by_percpu;
		lm_percpu_rwsem_read_unlock(&static_percpu);
		CHECK(seen <= (long)THREADS * ROUNDS);
		if (round % 1000 == 0) {
			lm_percpu_rwsem_write_lock(&static_percpu);
			by_percpu++;
			lm_percpu_rwsem_write_unlock(&static_percpu);
		}
	}
	return unused;
}

static void static_locks_keep_threads_apart(void)
{
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, count, NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(by_mutex == (long)THREADS * ROUNDS);
	CHECK(by_spin == (long)THREADS * ROUNDS);
	CHECK(by_rwsem == (long)THREADS * ROUNDS);
	CHECK(by_percpu == (long)THREADS * ROUNDS / 1000);
	lm_percpu_rwsem_destroy(&static_percpu);
}

struct calls {
	int contended, acquired, given_up, released;
	lm_wait_t last;
};

static void on_contended(const lm_wait_t *wait, void *context)
{
	struct calls *calls = (struct calls *)context;
	calls->contended++;
	calls->last = *wait;
}

static void on_acquired(const lm_wait_t *wait, uint64_t wait_ns, void *context)
{
	(void)wait;
	CHECK(wait_ns > 0);
	((struct calls *)context)->acquired++;
}

static void on_given_up(const lm_wait_t *wait, uint64_t wait_ns, void *context)
{
	(void)wait;
	/* Less than the limit where the thread lost its CPU before it waited. */
	CHECK(wait_ns > 0);
	((struct calls *)context)->given_up++;
}

static void on_released(const lm_wait_t *wait, uint64_t hold_ns, void *context)
{
	(void)wait;
	(void)hold_ns;
	((struct calls *)context)->released++;
}

// What another thread does with a lock that this one holds.
struct attempt {
	int (*with)(void *lock);
	void *lock;
	int result;
};

static void *attempt(void *at)
{
	struct attempt *attempt = (struct attempt *)at;
	attempt->result = attempt->with(attempt->lock);
	return NULL;
}

static int elsewhere(int (*with)(void *lock), void *lock)
{
	struct attempt task = {with, lock, -1};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, attempt, &task) == 0);
	pthread_join(thread, NULL);
	return task.result;
}

static int mutex_try(void *lock)
{
	return lm_mutex_trylock((lm_mutex_t *)lock);
}
static int mutex_timed(void *lock)
{
	return lm_mutex_timedlock((lm_mutex_t *)lock, 5 * MS);
}
static int spin_try(void *lock)
{
	return lm_spin_trylock((lm_spin_t *)lock);
}
static int rwsem_try_read(void *lock)
{
	return lm_rwsem_read_trylock((lm_rwsem_t *)lock);
}
static int rwsem_try_write(void *lock)
{
	return lm_rwsem_write_trylock((lm_rwsem_t *)lock);
}
static int rwsem_timed_read(void *lock)
{
	return lm_rwsem_read_timedlock((lm_rwsem_t *)lock, 5 * MS);
}
static int rwsem_timed_write(void *lock)
{
	return lm_rwsem_write_timedlock((lm_rwsem_t *)lock, 5 * MS);
}
static int percpu_try_read(void *lock)
{
	return lm_percpu_rwsem_read_trylock((lm_percpu_rwsem_t *)lock);
}
static int percpu_try_write(void *lock)
{
	return lm_percpu_rwsem_write_trylock((lm_percpu_rwsem_t *)lock);
}
static int percpu_timed_read(void *lock)
{
	return lm_percpu_rwsem_read_timedlock((lm_percpu_rwsem_t *)lock, 5 * MS);
}
static int percpu_timed_write(void *lock)
{
	return lm_percpu_rwsem_write_timedlock((lm_percpu_rwsem_t *)lock, 5 * MS);
}

static struct calls calls;

static const lm_hooks_t *hooks(void)
{
	static lm_hooks_t all;
	all.contended = on_contended;
	all.acquired = on_acquired;
	all.given_up = on_given_up;
	all.released = on_released;
	all.context = &calls;
	memset(&calls, 0, sizeof calls);
	return &all;
}

static void a_mutex_tells_its_hooks_of_waits_only(void)
{
	lm_mutex_t mutex;
	lm_mutex_init(&mutex, "accounts", hooks());
	CHECK(lm_mutex_timedlock(&mutex, MS) == 0);
	CHECK(calls.contended == 0);
	CHECK(elsewhere(mutex_try, &mutex) == EBUSY);
	CHECK(elsewhere(mutex_timed, &mutex) == ETIMEDOUT);
	CHECK(calls.contended == 1 && calls.given_up == 1 && calls.acquired == 0);
	CHECK(calls.last.lock == &mutex && strcmp(calls.last.name, "accounts") == 0);
	CHECK(calls.last.kind == LM_MUTEX && calls.last.mode == LM_EXCLUSIVE);
	lm_mutex_unlock(&mutex);
	CHECK(lm_mutex_trylock(&mutex) == 0);
	lm_mutex_unlock(&mutex);
	CHECK(calls.released == 0);
	lm_mutex_destroy(&mutex);
}

// A lock that another thread holds until somebody waits for it: whom the hooks of the call are told of.
struct held {
	void (*take)(void *lock);
	void (*release)(void *lock);
	void *lock;
	const struct calls *at_call;
	int is_held;
};

static void *hold_until_contended(void *at)
{
	struct held *held = (struct held *)at;
	held->take(held->lock);
	__atomic_store_n(&held->is_held, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&held->at_call->contended, __ATOMIC_SEQ_CST))
		usleep(100);
	held->release(held->lock);
	return NULL;
}

static void contend(void (*take)(void *), void (*release)(void *), void (*at)(void *, const lm_hooks_t *), void *lock,
		    lm_kind_t kind, lm_mode_t mode, const char *name)
{
	struct calls at_call;
	memset(&at_call, 0, sizeof at_call);
	// NULL for what is of no interest.
	lm_hooks_t site = {on_contended, on_acquired, NULL, NULL, &at_call};
	at(lock, &site);
	release(lock);
	at(lock, NULL);
	release(lock);
	CHECK(at_call.contended == 0 && at_call.acquired == 0);
	struct held held = {take, release, lock, &at_call, 0};
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, hold_until_contended, &held) == 0);
	while (!__atomic_load_n(&held.is_held, __ATOMIC_SEQ_CST))
		usleep(100);
	at(lock, &site);
	pthread_join(thread, NULL);
	release(lock);
	CHECK(at_call.contended == 1 && at_call.acquired == 1);
	CHECK(at_call.last.lock == lock && at_call.last.kind == kind && at_call.last.mode == mode);
	CHECK(name ? strcmp(at_call.last.name, name) == 0 : at_call.last.name == NULL);
}

static void take_mutex(void *lock)
{
	lm_mutex_lock((lm_mutex_t *)lock);
}
static void release_mutex(void *lock)
{
	lm_mutex_unlock((lm_mutex_t *)lock);
}
static void mutex_at(void *lock, const lm_hooks_t *site)
{
	lm_mutex_lock_at((lm_mutex_t *)lock, site);
}
static void take_spin(void *lock)
{
	lm_spin_lock((lm_spin_t *)lock);
}
static void release_spin(void *lock)
{
	lm_spin_unlock((lm_spin_t *)lock);
}
static void spin_at(void *lock, const lm_hooks_t *site)
{
	lm_spin_lock_at((lm_spin_t *)lock, site);
}
static void take_rwsem(void *lock)
{
	lm_rwsem_write_lock((lm_rwsem_t *)lock);
}
static void release_rwsem(void *lock)
{
	lm_rwsem_write_unlock((lm_rwsem_t *)lock);
}
static void write_rwsem_at(void *lock, const lm_hooks_t *site)
{
	lm_rwsem_write_lock_at((lm_rwsem_t *)lock, site);
}
static void read_rwsem_at(void *lock, const lm_hooks_t *site)
{
	lm_rwsem_read_lock_at((lm_rwsem_t *)lock, site);
	CHECK(lm_rwsem_write_trylock((lm_rwsem_t *)lock) == EBUSY);
	// So that what holds it is released alike.
	lm_rwsem_read_unlock((lm_rwsem_t *)lock);
	lm_rwsem_write_lock((lm_rwsem_t *)lock);
}
static void take_percpu(void *lock)
{
	lm_percpu_rwsem_write_lock((lm_percpu_rwsem_t *)lock);
}
static void release_percpu(void *lock)
{
	lm_percpu_rwsem_write_unlock((lm_percpu_rwsem_t *)lock);
}
static void write_percpu_at(void *lock, const lm_hooks_t *site)
{
	lm_percpu_rwsem_write_lock_at((lm_percpu_rwsem_t *)lock, site);
}
static void read_percpu_at(void *lock, const lm_hooks_t *site)
{
	lm_percpu_rwsem_read_lock_at((lm_percpu_rwsem_t *)lock, site);
	CHECK(lm_percpu_rwsem_write_trylock((lm_percpu_rwsem_t *)lock) == EBUSY);
	lm_percpu_rwsem_read_unlock((lm_percpu_rwsem_t *)lock);
	lm_percpu_rwsem_write_lock((lm_percpu_rwsem_t *)lock);
}

static void a_call_tells_its_own_hooks_of_its_wait(void)
{
	// Without hooks of its own and set up by zeroes, and with both.
	static lm_mutex_t mutex = LM_MUTEX_INIT;
	contend(take_mutex, release_mutex, mutex_at, &mutex, LM_MUTEX, LM_EXCLUSIVE, NULL);
	lm_mutex_t hooked;
	lm_mutex_init(&hooked, "accounts", hooks());
	contend(take_mutex, release_mutex, mutex_at, &hooked, LM_MUTEX, LM_EXCLUSIVE, "accounts");
	CHECK(calls.contended == 1 && calls.acquired == 1 && calls.released == 1);
	static lm_spin_t spin = LM_SPIN_INIT;
	contend(take_spin, release_spin, spin_at, &spin, LM_SPIN, LM_EXCLUSIVE, NULL);
	static lm_rwsem_t rwsem = LM_RWSEM_INIT;
	contend(take_rwsem, release_rwsem, write_rwsem_at, &rwsem, LM_RWSEM, LM_WRITE, NULL);
	contend(take_rwsem, release_rwsem, read_rwsem_at, &rwsem, LM_RWSEM, LM_READ, NULL);
	static lm_percpu_rwsem_t percpu = LM_PERCPU_RWSEM_INIT;
	contend(take_percpu, release_percpu, write_percpu_at, &percpu, LM_PERCPU_RWSEM, LM_WRITE, NULL);
	contend(take_percpu, release_percpu, read_percpu_at, &percpu, LM_PERCPU_RWSEM, LM_READ, NULL);
	lm_percpu_rwsem_destroy(&percpu);
}

static void a_spinlock_is_taken_by_one(void)
{
	lm_spin_t spin;
	lm_spin_init(&spin, "short", NULL);
	CHECK(lm_spin_trylock(&spin) == 0);
	CHECK(elsewhere(spin_try, &spin) == EBUSY);
	lm_spin_unlock(&spin);
	CHECK(elsewhere(spin_try, &spin) == 0);
	lm_spin_destroy(&spin);
}

static void a_rwsem_downgrades(void)
{
	lm_rwsem_t rwsem;
	lm_rwsem_init(&rwsem, "table", hooks());
	CHECK(lm_rwsem_write_timedlock(&rwsem, MS) == 0);
	CHECK(elsewhere(rwsem_try_read, &rwsem) == EBUSY);
	CHECK(elsewhere(rwsem_timed_read, &rwsem) == ETIMEDOUT);
	CHECK(calls.last.kind == LM_RWSEM && calls.last.mode == LM_READ && calls.last.lock == &rwsem);
	lm_rwsem_downgrade(&rwsem);
	CHECK(elsewhere(rwsem_try_write, &rwsem) == EBUSY);
	CHECK(elsewhere(rwsem_timed_write, &rwsem) == ETIMEDOUT);
	CHECK(lm_rwsem_read_trylock(&rwsem) == 0);
	CHECK(lm_rwsem_read_timedlock(&rwsem, MS) == 0);
	lm_rwsem_read_lock(&rwsem);
	for (int holds = 0; holds < 4; holds++)
		lm_rwsem_read_unlock(&rwsem);
	CHECK(lm_rwsem_write_trylock(&rwsem) == 0);
	lm_rwsem_write_unlock(&rwsem);
	lm_rwsem_destroy(&rwsem);
}

static void a_percpu_rwsem_keeps_its_readers_counted(void)
{
	lm_percpu_rwsem_t percpu;
	lm_percpu_rwsem_init(&percpu, NULL, hooks());
	for (int round = 0; round < ROUNDS; round++) {
		lm_percpu_rwsem_read_lock(&percpu);
		lm_percpu_rwsem_read_unlock(&percpu);
	}
	lm_percpu_rwsem_read_lock(&percpu);
	CHECK(elsewhere(percpu_try_write, &percpu) == EBUSY);
	CHECK(elsewhere(percpu_timed_write, &percpu) == ETIMEDOUT);
	CHECK(calls.last.kind == LM_PERCPU_RWSEM && calls.last.mode == LM_WRITE && calls.last.lock == &percpu);
	lm_percpu_rwsem_read_unlock(&percpu);
	CHECK(lm_percpu_rwsem_write_timedlock(&percpu, MS) == 0);
	CHECK(elsewhere(percpu_try_read, &percpu) == EBUSY);
	CHECK(elsewhere(percpu_timed_read, &percpu) == ETIMEDOUT);
	lm_percpu_rwsem_downgrade(&percpu);
	CHECK(lm_percpu_rwsem_read_trylock(&percpu) == 0);
	CHECK(lm_percpu_rwsem_read_timedlock(&percpu, MS) == 0);
	for (int holds = 0; holds < 3; holds++)
		lm_percpu_rwsem_read_unlock(&percpu);
	CHECK(lm_percpu_rwsem_write_trylock(&percpu) == 0);
	lm_percpu_rwsem_write_unlock(&percpu);
	lm_percpu_rwsem_destroy(&percpu);
}

static lm_mutex_t forked_mutex = LM_MUTEX_INIT;
static lm_rwsem_t forked_rwsem = LM_RWSEM_INIT;
static int forks_are_over;

static void before_fork(void)
{
	if (forks_are_over)
		return;
	lm_mutex_lock(&forked_mutex);
	lm_rwsem_write_lock(&forked_rwsem);
	usleep(2 * MS / 1000);
}

static void after_fork(void)
{
	if (forks_are_over)
		return;
	lm_rwsem_write_unlock(&forked_rwsem);
	lm_mutex_unlock(&forked_mutex);
}

static void *use_until_forks_are_over(void *unused)
{
	while (!__atomic_load_n(&forks_are_over, __ATOMIC_RELAXED)) {
		lm_mutex_lock(&forked_mutex);
		lm_mutex_unlock(&forked_mutex);
		lm_rwsem_read_lock(&forked_rwsem);
		lm_rwsem_read_unlock(&forked_rwsem);
	}
	return unused;
}

static void children_use_what_fork_handlers_held(void)
{
	pthread_t threads[THREADS];
	int failed = 0;

	CHECK(pthread_atfork(before_fork, after_fork, after_fork) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_create(&threads[i], NULL, use_until_forks_are_over, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			alarm(30);
			for (int round = 0; round < 100; round++) {
				lm_mutex_lock(&forked_mutex);
				lm_mutex_unlock(&forked_mutex);
				lm_rwsem_write_lock(&forked_rwsem);
				lm_rwsem_write_unlock(&forked_rwsem);
			}
			_exit(0);
		}
		CHECK(waitpid(child, &status, 0) == child);
		failed += status != 0;
	}
	__atomic_store_n(&forks_are_over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	CHECK(failed == 0);
}

static void a_release_of_what_is_not_held_hangs_nobody(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		lm_mutex_t mutex = LM_MUTEX_INIT;
		alarm(30);
		CHECK(close(STDERR_FILENO) == 0);
		lm_mutex_unlock(&mutex);
		lm_mutex_lock(&mutex);
		lm_mutex_unlock(&mutex);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child);
	/* A checked build aborts. */
	CHECK(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT));
}

struct between_processes {
	lm_mutex_t mutex;
	lm_rwsem_t rwsem;
	long by_mutex, by_rwsem;
};

static void locks_in_shared_memory_keep_processes_apart(void)
{
	CHECK(lm_share_with_children() == 0);
	CHECK(lm_share_with_children() == 0);
	void *memory =
		mmap(NULL, sizeof(struct between_processes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	struct between_processes *shared = (struct between_processes *)memory;
	for (int i = 0; i < THREADS; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child > 0)
			continue;
		for (int round = 0; round < ROUNDS; round++) {
			lm_mutex_lock(&shared->mutex);
			shared->by_mutex++;
			lm_mutex_unlock(&shared->mutex);
			lm_rwsem_write_lock(&shared->rwsem);
			shared->by_rwsem++;
			lm_rwsem_write_unlock(&shared->rwsem);
		}
		_exit(0);
	}
	for (int i = 0; i < THREADS; i++) {
		int status;
		CHECK(wait(&status) > 0 && status == 0);
	}
	CHECK(shared->by_mutex == (long)THREADS * ROUNDS);
	CHECK(shared->by_rwsem == (long)THREADS * ROUNDS);
	munmap(memory, sizeof(struct between_processes));
}

int main(void)
{
	children_use_what_fork_handlers_held();
	a_release_of_what_is_not_held_hangs_nobody();
	locks_in_shared_memory_keep_processes_apart();
	static_locks_keep_threads_apart();
	a_mutex_tells_its_hooks_of_waits_only();
	a_call_tells_its_own_hooks_of_its_wait();
	a_spinlock_is_taken_by_one();
	a_rwsem_downgrades();
	a_percpu_rwsem_keeps_its_readers_counted();
	return 0;
}
