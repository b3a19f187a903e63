/*
 * Who is to blame for waits: a program that notes when each thread asked for a lock, had it and released it, and at its end divides each
 * wait among those who had the lock meanwhile. It reads its input to the end before it begins, and says in JSON how long all waits were,
 * and how much of them each function had.
 *
 *   queue       one holder keeps a mutex for long, then the threads that queued behind it have it for a moment, one after another
 *   alternate   holders of two lengths in turn, each with waiters behind it
 *   rwlock      writers that keep the lock for long, writers that keep it shortly, and readers that wait for both
 *   busy        as queue, but the one holder computes all the while
 *   recursive   the one holder takes and releases its mutex again and again while it keeps it
 *   prefers-writers  readers queue behind a writer that waits for a reader
 *   late        the waiter shares its CPU with a real-time thread that computes: it runs long after the lock was released
 *   shared-queue, shared-alternate, shared-rwlock, shared-gives-up, shared-chain  as those, but each thread is a process, and the locks in memory
 *               that all share
 *   gives-up    the lock changes hands while somebody waits for it who gives up
 *   chain       one function keeps a mutex while it waits for another, which a third function keeps for long
 *   long-chain  the same with one mutex more
 *   chain-to-disk  the third function keeps its mutex while it writes a file through to the disk
 *   chain-of-many  the one function waits again and again for the other mutex, which a third function takes again and again
 *
 * With `named` behind that, each thread is called after its function.
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_EVENTS 4096
#define MOST_THREADS 16

enum who { LONG_HOLDER, SHORT_HOLDER, READER, RELOAD_CONFIG, GET_CONFIG, WRITE_DATABASE, ROTATE_LOG, WHOS };

static const char *const names[WHOS] = {
	"long_holder", "short_holder", "reader", "reload_config", "get_config", "write_database", "rotate_log",
};

struct event {
	int lock;
	enum who who;
	long long asked_ns, had_ns, released_ns;
};

/* What the processes share, if there are several. */
static struct shared {
	struct event events[MOST_EVENTS];
	int event_count;
	pthread_mutex_t mutex, database;
	pthread_rwlock_t rwlock;
} * shared;
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t database_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t *table = &table_lock;
static const pthread_rwlock_t prefers_writers = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_mutex_t *mutexes[] = {&queue_lock, &database_lock, NULL, &log_lock};

static int threads_are_named;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Of less than 0: computes for so long. */
static void sleep_ms(long ms)
{
	struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	long long until_ns = now_ns() - ms * 1000000ll;

	if (ms >= 0)
		nanosleep(&time, NULL);
	else
		while (now_ns() < until_ns)
			;
}

static struct event *asks(int lock, enum who who)
{
	int number = __atomic_fetch_add(&shared->event_count, 1, __ATOMIC_RELAXED);
	struct event *event = &shared->events[number % MOST_EVENTS];

	if (threads_are_named)
		prctl(PR_SET_NAME, names[who]);
	event->lock = lock;
	event->who = who;
	event->asked_ns = now_ns();
	return event;
}

/* Each function is one that a report names: none is inlined, and none ends with a call that could become a jump. */
#define HOLDS(name, who, lock, take, give, work)                                                                       \
	__attribute__((noinline)) static void name(long ms)                                                            \
	{                                                                                                              \
		struct event *event = asks(lock, who);                                                                 \
                                                                                                                       \
		take;                                                                                                  \
		event->had_ns = now_ns();                                                                              \
		work;                                                                                                  \
		event->released_ns = now_ns();                                                                         \
		give;                                                                                                  \
		__asm__ volatile("");                                                                                  \
	}

HOLDS(long_holder, LONG_HOLDER, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]), sleep_ms(ms))
HOLDS(short_holder, SHORT_HOLDER, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]), sleep_ms(ms))
__attribute__((noinline)) static void take_again(long ms)
{
	for (long i = 0; i < 40; i++) {
		pthread_mutex_lock(mutexes[0]);
		sleep_ms(ms / 40);
		pthread_mutex_unlock(mutexes[0]);
	}
}

HOLDS(outer_holder, LONG_HOLDER, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]), take_again(ms))
HOLDS(read_long, LONG_HOLDER, 2, pthread_rwlock_rdlock(table), pthread_rwlock_unlock(table), sleep_ms(ms))
HOLDS(write_long, LONG_HOLDER, 2, pthread_rwlock_wrlock(table), pthread_rwlock_unlock(table), sleep_ms(ms))
HOLDS(write_shortly, SHORT_HOLDER, 2, pthread_rwlock_wrlock(table), pthread_rwlock_unlock(table), sleep_ms(ms))
HOLDS(reader, READER, 2, pthread_rwlock_rdlock(table), pthread_rwlock_unlock(table), sleep_ms(ms))
HOLDS(write_database, WRITE_DATABASE, 1, pthread_mutex_lock(mutexes[1]), pthread_mutex_unlock(mutexes[1]), sleep_ms(ms))
HOLDS(read_database, RELOAD_CONFIG, 1, pthread_mutex_lock(mutexes[1]), pthread_mutex_unlock(mutexes[1]), (void)ms)
HOLDS(reload_config, RELOAD_CONFIG, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]),
      read_database(ms))
HOLDS(rotate_log, ROTATE_LOG, 3, pthread_mutex_lock(mutexes[3]), pthread_mutex_unlock(mutexes[3]), sleep_ms(ms))
HOLDS(append_log, WRITE_DATABASE, 3, pthread_mutex_lock(mutexes[3]), pthread_mutex_unlock(mutexes[3]), (void)ms)
HOLDS(log_and_write, WRITE_DATABASE, 1, pthread_mutex_lock(mutexes[1]), pthread_mutex_unlock(mutexes[1]),
      append_log(ms))

/* How long the calling thread had a CPU or waited for one. */
static long long awake_ns(void)
{
	FILE *statistics = fopen("/proc/thread-self/schedstat", "r");
	long long ran_ns = 0, runnable_ns = 0;

	if (!statistics || fscanf(statistics, "%lld %lld", &ran_ns, &runnable_ns) != 2)
		abort();
	fclose(statistics);
	return ran_ns + runnable_ns;
}

static long long at_disk_ns;

/* To a file in the working folder, which is removed at once. */
static void write_through(long ms)
{
	static const char block[4 << 20];
	long long begin_ns = now_ns(), until_ns = begin_ns + ms * 1000000ll, awake_before_ns = awake_ns();
	char name[] = "blame-XXXXXX";
	int file = mkstemp(name);

	unlink(name);
	while (now_ns() < until_ns)
		if (pwrite(file, block, sizeof(block), 0) != sizeof(block) || fsync(file))
			abort();
	close(file);
	at_disk_ns = now_ns() - begin_ns - (awake_ns() - awake_before_ns);
}

HOLDS(save_database, WRITE_DATABASE, 1, pthread_mutex_lock(mutexes[1]), pthread_mutex_unlock(mutexes[1]),
      write_through(ms))

static void read_often(long times)
{
	while (times--) {
		read_database(0);
		sleep_ms(2);
	}
}

HOLDS(reload_often, RELOAD_CONFIG, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]), read_often(ms))
HOLDS(get_config, GET_CONFIG, 0, pthread_mutex_lock(mutexes[0]), pthread_mutex_unlock(mutexes[0]), (void)ms)

/* Does not get the lock. */
__attribute__((noinline)) static void gives_up(long ms)
{
	struct event *event = asks(0, GET_CONFIG);
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	if (!pthread_mutex_timedlock(mutexes[0], &until))
		pthread_mutex_unlock(mutexes[0]);
	event->had_ns = event->released_ns = now_ns();
}

/* Has no lock. */
static void compute(long ms)
{
	sleep_ms(-ms);
}

struct job {
	void (*holds)(long ms);
	long first_ms, hold_ms, pause_ms;
	int rounds;
	/* On the last CPU, others on any but that. */
	int is_last_cpu;
	int is_real_time;
};

static void place(const struct job *job)
{
	const struct sched_param lowest = {.sched_priority = 1};
	cpu_set_t cpus;
	int last = CPU_SETSIZE - 1;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	while (last > 0 && !CPU_ISSET(last, &cpus))
		last--;
	if (job->is_last_cpu) {
		CPU_ZERO(&cpus);
		CPU_SET(last, &cpus);
	} else if (CPU_COUNT(&cpus) > 1) {
		CPU_CLR(last, &cpus);
	}
	sched_setaffinity(0, sizeof(cpus), &cpus);
	if (job->is_real_time)
		sched_setscheduler(0, SCHED_FIFO, &lowest);
}

static int jobs_are_placed;

static void *run(void *argument)
{
	const struct job *job = argument;

	if (jobs_are_placed)
		place(job);
	sleep_ms(job->first_ms);
	for (int i = 0; i < job->rounds; i++) {
		job->holds(job->hold_ms);
		sleep_ms(job->pause_ms);
	}
	return NULL;
}

static const struct job queue[] = {
	{long_holder, 0, 600, 0, 1}, {short_holder, 20, 5, 0, 1}, {short_holder, 40, 5, 0, 1},
	{short_holder, 60, 5, 0, 1}, {short_holder, 80, 5, 0, 1}, {0},
};
static const struct job busy[] = {
	{long_holder, 0, -400, 0, 1},
	{short_holder, 20, 5, 0, 1},
	{short_holder, 40, 5, 0, 1},
	{0},
};
static const struct job alternate[] = {
	{long_holder, 0, 9, 0, 60},
	{short_holder, 1, 3, 0, 60},
	{long_holder, 2, 9, 0, 60},
	{short_holder, 3, 3, 0, 60},
	{0},
};
static const struct job rwlock[] = {
	{write_long, 0, 20, 5, 30}, {write_shortly, 1, 4, 5, 30}, {reader, 2, 3, 3, 60}, {reader, 3, 3, 3, 60}, {0},
};
static const struct job recursive[] = {
	{outer_holder, 0, 400, 0, 1},
	{short_holder, 20, 5, 0, 1},
	{short_holder, 40, 5, 0, 1},
	{0},
};
static const struct job queue_of_readers[] = {
	{read_long, 0, 300, 0, 1}, {write_shortly, 20, 5, 0, 1}, {reader, 40, 5, 0, 1},
	{reader, 60, 5, 0, 1},	   {reader, 80, 5, 0, 1},	 {0},
};
static const struct job late[] = {
	{long_holder, 0, 400, 0, 1},
	{short_holder, 100, 0, 0, 1, 1},
	{compute, 300, 600, 0, 1, 1, 1},
	{0},
};
static const struct job giving_up[] = {
	{long_holder, 0, 200, 0, 1},
	{short_holder, 20, 600, 0, 1},
	{gives_up, 40, 400, 500, 1},
	{0},
};
static const struct job chain[] = {
	{write_database, 0, 400, 0, 1},
	{reload_config, 20, 0, 0, 1},
	{get_config, 40, 0, 0, 1},
	{get_config, 60, 0, 0, 1},
	{0},
};

static const struct job long_chain[] = {
	{rotate_log, 0, 400, 0, 1}, {log_and_write, 20, 0, 0, 1}, {reload_config, 40, 0, 0, 1},
	{get_config, 60, 0, 0, 1},  {get_config, 80, 0, 0, 1},	  {0},
};
static const struct job chain_to_disk[] = {
	{save_database, 0, 500, 0, 1},
	{reload_config, 20, 0, 0, 1},
	{get_config, 40, 0, 0, 1},
	{get_config, 60, 0, 0, 1},
	{0},
};
static const struct job chain_of_many[] = {
	{write_database, 0, 19, 1, 30},
	{reload_often, 10, 25, 0, 1},
	{get_config, 20, 0, 0, 1},
	{get_config, 40, 0, 0, 1},
	{0},
};

static long long overlap_ns(long long from, long long until, const struct event *other)
{
	long long begin = from > other->had_ns ? from : other->had_ns;
	long long end = until < other->released_ns ? until : other->released_ns;

	return end > begin ? end - begin : 0;
}

/* Of several readers that have a lock at a time, each is to blame from the release before its own: as if they had it in turn. */
static int by_release(const void *one, const void *other)
{
	long long a = ((const struct event *)one)->released_ns, b = ((const struct event *)other)->released_ns;

	return a < b ? -1 : a > b;
}

/* For how long of the time in which others waited for a lock of it, its holder waited for another one. */
static long long chained_ns(const struct event *wait, const struct event *holder)
{
	long long from = wait->asked_ns > holder->had_ns ? wait->asked_ns : holder->had_ns;
	long long until = wait->had_ns < holder->released_ns ? wait->had_ns : holder->released_ns;
	long long sum_ns = 0;

	for (const struct event *own = shared->events; own < shared->events + shared->event_count; own++) {
		struct event waits = {.had_ns = own->asked_ns, .released_ns = own->had_ns};

		if (own->who == holder->who && own->lock != holder->lock)
			sum_ns += overlap_ns(from, until, &waits);
	}
	return sum_ns;
}

static void say(void)
{
	long long waited_ns = 0, nobodys_ns, had_ns[WHOS] = {0}, all_chained_ns = 0;
	struct event *events = shared->events;
	int event_count = shared->event_count;

	qsort(events, event_count, sizeof(*events), by_release);
	for (const struct event *wait = events; wait < events + event_count; wait++) {
		long long since_ns = wait->asked_ns;

		if (wait->had_ns - wait->asked_ns < 100000)
			continue;
		waited_ns += wait->had_ns - wait->asked_ns;
		for (const struct event *other = events; other < events + event_count; other++) {
			if (other == wait || other->lock != wait->lock || (wait->who == READER && other->who == READER))
				continue;
			/* One that gave up has released nothing. */
			if (other->had_ns == other->released_ns)
				continue;
			had_ns[other->who] += overlap_ns(since_ns, wait->had_ns, other);
			if (wait->lock == 0)
				all_chained_ns += chained_ns(wait, other);
			if (other->released_ns > since_ns && other->released_ns <= wait->had_ns)
				since_ns = other->released_ns;
		}
	}
	nobodys_ns = waited_ns;
	printf("{\"waited_ns\": %lld", waited_ns);
	for (int who = 0; who < WHOS; who++) {
		printf(", \"%s\": %lld", names[who], had_ns[who]);
		nobodys_ns -= had_ns[who];
	}
	printf(", \"chained_ns\": %lld, \"at_disk_ns\": %lld, \"nobodys_ns\": %lld}\n", all_chained_ns, at_disk_ns,
	       nobodys_ns);
}

static void make_recursive(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(mutex, &attributes);
}

static void share_locks(void)
{
	pthread_mutexattr_t of_mutex;
	pthread_rwlockattr_t of_rwlock;

	pthread_mutexattr_init(&of_mutex);
	pthread_mutexattr_setpshared(&of_mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&shared->mutex, &of_mutex);
	pthread_mutex_init(&shared->database, &of_mutex);
	pthread_rwlockattr_init(&of_rwlock);
	pthread_rwlockattr_setpshared(&of_rwlock, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&shared->rwlock, &of_rwlock);
	mutexes[0] = &shared->mutex;
	mutexes[1] = &shared->database;
	table = &shared->rwlock;
	/* A recorder sees meanwhile that processes may share these. */
	sleep_ms(200);
}

static void run_threads(const struct job *jobs)
{
	pthread_t threads[MOST_THREADS];
	int count = 0;

	for (; jobs[count].holds; count++)
		pthread_create(&threads[count], NULL, run, (void *)&jobs[count]);
	for (int i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
}

static void run_processes(const struct job *jobs)
{
	share_locks();
	for (; jobs->holds; jobs++)
		if (!fork()) {
			run((void *)jobs);
			_exit(0);
		}
	while (wait(NULL) > 0)
		;
}

static const struct {
	const char *how;
	const struct job *jobs;
	void (*run)(const struct job *jobs);
} hows[] = {
	{"queue", queue, run_threads},
	{"busy", busy, run_threads},
	{"alternate", alternate, run_threads},
	{"rwlock", rwlock, run_threads},
	{"recursive", recursive, run_threads},
	{"prefers-writers", queue_of_readers, run_threads},
	{"late", late, run_threads},
	{"gives-up", giving_up, run_threads},
	{"chain", chain, run_threads},
	{"long-chain", long_chain, run_threads},
	{"chain-to-disk", chain_to_disk, run_threads},
	{"chain-of-many", chain_of_many, run_threads},
	{"shared-queue", queue, run_processes},
	{"shared-alternate", alternate, run_processes},
	{"shared-rwlock", rwlock, run_processes},
	{"shared-gives-up", giving_up, run_processes},
	{"shared-chain", chain, run_processes},
};

int main(int argc, char **argv)
{
	size_t chosen = 0;
	const struct job *jobs;
	char input[64];

	for (size_t i = 0; argc > 1 && i < sizeof(hows) / sizeof(hows[0]); i++)
		if (!strcmp(argv[1], hows[i].how))
			chosen = i;
	jobs = hows[chosen].jobs;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return 1;
	while (read(0, input, sizeof(input)) > 0)
		;
	threads_are_named = argc > 2 && !strcmp(argv[2], "named");
	jobs_are_placed = jobs == late;
	if (jobs == recursive)
		make_recursive(mutexes[0]);
	if (jobs == queue_of_readers)
		memcpy(&table_lock, &prefers_writers, sizeof(table_lock));
	hows[chosen].run(jobs);
	say();
}
