/*
 * A lock that processes share. Each counts under it what it sees, so that all of it is known.
 *
 *     shared-lock fork KIND               children take turns at a lock in memory that their parent mapped
 *     shared-lock exec KIND FILE          programs take turns at one in a file, each at an address of its own
 *     shared-lock apart                   children have each a lock of their own, at one address
 *     shared-lock killed                  a holder is killed, round after round, while two processes wait
 *     shared-lock ended                   threads end with a robust mutex, one after the other
 *
 * KIND is mutex, robust, rwlock, or semaphore. Prints one line of JSON.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define USERS 3
#define ROUNDS 200
#define HOLD_NS 2000000
#define PAUSE_NS 100000
#define KILLED_ROUNDS 12
#define ENDED_ROUNDS 50
/* The lock lies beyond the first page of the file. */
#define OFFSET 4096

enum kind { MUTEX, ROBUST, RWLOCK, SEMAPHORE };
static const char *const kinds[] = {"mutex", "robust", "rwlock", "semaphore"};

static struct shared {
	pthread_mutex_t mutex;
	pthread_rwlock_t rwlock;
	sem_t semaphore;
	/* How many are ready, and are to begin together. */
	int ready;
	/* What follows belongs to the one that has the lock. */
	pid_t last;
	long acquisitions, moved, contended;
	long long wait_ns, hold_ns;
} * shared;
static enum kind kind;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC_RAW, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

static void sleep_ns(long ns)
{
	struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	nanosleep(&time, NULL);
}

static inline __attribute__((always_inline)) bool try_it(void)
{
	switch (kind) {
	case RWLOCK:
		return !pthread_rwlock_trywrlock(&shared->rwlock);
	case SEMAPHORE:
		return !sem_trywait(&shared->semaphore);
	default:
		return !pthread_mutex_trylock(&shared->mutex);
	}
}

static inline __attribute__((always_inline)) int take(void)
{
	switch (kind) {
	case RWLOCK:
		return pthread_rwlock_wrlock(&shared->rwlock);
	case SEMAPHORE:
		return sem_wait(&shared->semaphore);
	default:
		return pthread_mutex_lock(&shared->mutex);
	}
}

static inline __attribute__((always_inline)) void give_back(void)
{
	switch (kind) {
	case RWLOCK:
		pthread_rwlock_unlock(&shared->rwlock);
		break;
	case SEMAPHORE:
		sem_post(&shared->semaphore);
		break;
	default:
		pthread_mutex_unlock(&shared->mutex);
	}
	/* Not a tail call: the caller shall be on the stack. */
	__asm__ volatile("" ::: "memory");
}

/* Inlined, so that the caller is the site. */
static inline __attribute__((always_inline)) void use(pid_t self)
{
	long long begun_ns = now_ns(), taken_ns;
	bool contended = !try_it();

	if (contended)
		take();
	taken_ns = now_ns();
	if (contended) {
		shared->contended++;
		shared->wait_ns += taken_ns - begun_ns;
	}
	shared->moved += shared->last && shared->last != self;
	shared->last = self;
	shared->acquisitions++;
	sleep_ns(HOLD_NS);
	shared->hold_ns += now_ns() - taken_ns;
	give_back();
}

#define USER(name)                                                                                                     \
	__attribute__((noinline)) static void name(pid_t self)                                                         \
	{                                                                                                              \
		use(self);                                                                                             \
	}
USER(accept_one)
USER(write_log)
USER(reload)

static void (*const users[USERS])(pid_t) = {accept_one, write_log, reload};

static void be_user(int index)
{
	__atomic_add_fetch(&shared->ready, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&shared->ready, __ATOMIC_RELAXED) < USERS)
		sleep_ns(PAUSE_NS);
	for (int round = 0; round < ROUNDS; round++) {
		users[index](getpid());
		/* At once again: mostly the lock does not move. */
		if (round % 2)
			users[index](getpid());
		sleep_ns(PAUSE_NS);
	}
}

__attribute__((noinline)) static void set_up(void)
{
	pthread_mutexattr_t mutex;
	pthread_rwlockattr_t rwlock;

	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	if (kind == ROBUST)
		pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&shared->mutex, &mutex);
	pthread_rwlockattr_init(&rwlock);
	pthread_rwlockattr_setpshared(&rwlock, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&shared->rwlock, &rwlock);
	sem_init(&shared->semaphore, 1, 1);
}

static void map_anonymous(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED) {
		perror("shared-lock");
		exit(1);
	}
	set_up();
}

static void map_file(const char *path, bool is_new)
{
	int file = open(path, O_RDWR | (is_new ? O_CREAT | O_TRUNC : 0), 0600);

	if (file < 0 || ftruncate(file, OFFSET + sizeof(*shared)))
		goto failed;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, OFFSET);
	if (shared == MAP_FAILED)
		goto failed;
	close(file);
	if (is_new)
		set_up();
	return;
failed:
	perror(path);
	exit(1);
}

static void print(void)
{
	printf("{\"acquisitions\":%ld,\"moved\":%ld,\"contended\":%ld,\"wait_ns\":%lld,\"hold_ns\":%lld}\n",
	       shared->acquisitions, shared->moved, shared->contended, shared->wait_ns, shared->hold_ns);
}

static void wait_for_all(void)
{
	while (wait(NULL) > 0)
		;
}

static int run_forked(void)
{
	map_anonymous();
	for (int index = 0; index < USERS; index++)
		if (!fork()) {
			be_user(index);
			_exit(0);
		}
	wait_for_all();
	print();
	return 0;
}

static int run_executed(char *program, const char *file)
{
	map_file(file, true);
	for (int index = 0; index < USERS; index++)
		if (!fork()) {
			char number[] = {(char)('0' + index), '\0'};

			execl(program, program, "user", kinds[kind], file, number, NULL);
			_exit(1);
		}
	wait_for_all();
	print();
	return 0;
}

/* Memory of its own, where its parent's and its siblings' lies: nobody waits for another. */
static int run_apart(void)
{
	long acquisitions = 0;
	int answers[2];
	void *place;

	map_anonymous();
	place = shared;
	/* So long that its lock is known when it is left behind. */
	sleep_ns(200 * 1000000);
	if (pipe(answers))
		return 1;
	for (int index = 0; index < USERS; index++)
		if (!fork()) {
			munmap(shared, sizeof(*shared));
			shared = mmap(place, sizeof(*shared), PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			set_up();
			shared->ready = USERS;
			be_user(index);
			if (write(answers[1], &shared->acquisitions, sizeof(long)) < 0)
				_exit(1);
			_exit(0);
		}
	wait_for_all();
	for (int index = 0; index < USERS; index++) {
		long answer;

		if (read(answers[0], &answer, sizeof(answer)) != sizeof(answer))
			return 1;
		acquisitions += answer;
	}
	printf("{\"acquisitions\":%ld}\n", acquisitions);
	return 0;
}

__attribute__((noinline)) static void die_with_it(void)
{
	take();
	__atomic_store_n(&shared->ready, 1, __ATOMIC_RELAXED);
	sleep_ns(100 * 1000000);
	raise(SIGKILL);
	give_back();
}

/* The first that comes finds its owner dead; the second waits for the first. */
__attribute__((noinline)) static void outlive_it(void)
{
	if (take() == EOWNERDEAD)
		pthread_mutex_consistent(&shared->mutex);
	sleep_ns(40 * 1000000);
	give_back();
}

static int run_killed(void)
{
	kind = ROBUST;
	map_anonymous();
	for (int round = 0; round < KILLED_ROUNDS; round++) {
		shared->ready = 0;
		if (!fork()) {
			die_with_it();
			_exit(1);
		}
		while (!__atomic_load_n(&shared->ready, __ATOMIC_RELAXED))
			sleep_ns(PAUSE_NS);
		for (int index = 0; index < 2; index++)
			if (!fork()) {
				outlive_it();
				_exit(0);
			}
		wait_for_all();
	}
	printf("{\"rounds\":%d}\n", KILLED_ROUNDS);
	return 0;
}

static long long held_ns;

/* A thread that ends without a release. */
static void *end_with_it(void *unused)
{
	long long begin;

	if (pthread_mutex_lock(&shared->mutex) == EOWNERDEAD)
		pthread_mutex_consistent(&shared->mutex);
	begin = now_ns();
	sleep_ns(HOLD_NS);
	held_ns += now_ns() - begin;
	return unused;
}

static int run_ended(void)
{
	pthread_t thread;
	long long begin;

	kind = ROBUST;
	map_anonymous();
	begin = now_ns();
	for (int round = 0; round < ENDED_ROUNDS; round++)
		if (pthread_create(&thread, NULL, end_with_it, NULL) || pthread_join(thread, NULL))
			return 1;
	printf("{\"rounds\":%d,\"held_ns\":%lld,\"all_ns\":%lld}\n", ENDED_ROUNDS, held_ns, now_ns() - begin);
	return 0;
}

int main(int argc, char **argv)
{
	const char *mode = argc > 1 ? argv[1] : "";

	for (size_t each = 0; argc > 2 && each < sizeof(kinds) / sizeof(*kinds); each++)
		if (!strcmp(argv[2], kinds[each]))
			kind = (enum kind)each;
	if (!strcmp(mode, "fork"))
		return run_forked();
	if (!strcmp(mode, "exec") && argc > 3)
		return run_executed(argv[0], argv[3]);
	if (!strcmp(mode, "user") && argc > 4) {
		map_file(argv[3], false);
		be_user(argv[4][0] - '0');
		return 0;
	}
	if (!strcmp(mode, "apart"))
		return run_apart();
	if (!strcmp(mode, "killed"))
		return run_killed();
	if (!strcmp(mode, "ended"))
		return run_ended();
	fprintf(stderr, "shared-lock fork|exec|apart|killed|ended [KIND [FILE]]\n");
	return 2;
}
