/*
 * What every workload needs: arguments, workers that start together, an orderly stop, one line of JSON.
 *
 * A workload is a `struct workload` and `int main() { return workload_main(argc, argv, &it); }`.  Its workers are threads
 * of one process or processes of their own; both live in one shared mapping, so the rest of the code does not care.
 *
 *     setup()  →  all workers wait at a barrier  →  worker(self) until !workload_running()  →  report()  →  teardown()
 *
 * At the end of its time, or on SIGINT or SIGTERM, the main thread raises the stop flag and then keeps sending SIGUSR1 to
 * the one that has not returned yet: its empty handler makes blocking system calls return EINTR, so that a worker needs no
 * way of its own to be woken.
 *
 * Exit status: 0 ran, 1 failed, 2 bad arguments, 77 not possible here (no privilege, or the kernel lacks what it needs).
 */
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull
#define NSEC_PER_USEC 1000ull

enum {
	EXIT_BAD_ARGUMENTS = 2,
	EXIT_NOT_POSSIBLE_HERE = 77, /* what automake and meson call "skipped" */
};

/* How often the main thread looks for finished workers; long enough not to show up in what is measured. */
#define WORKLOAD_POLL_NS (20 * NSEC_PER_MSEC)
/* How often a worker that does not return is nudged after the stop. */
#define WORKLOAD_NUDGE_NS (1 * NSEC_PER_MSEC)
#define WORKLOAD_MAX_THREADS 4096u
#define WORKLOAD_ONE_PER_CPU 0u
#define WORKLOAD_MAX_SECONDS 86400.0

/* Options beyond --seconds and --threads; a workload accepts those that mean something to it. */
enum workload_option {
	WORKLOAD_DIR = 1 << 0,	  /* --dir DIR: where its temporary directory is made */
	WORKLOAD_COUNT = 1 << 1,  /* --count N: end after N operations, not after a time */
	WORKLOAD_RATE = 1 << 2,	  /* --rate N: operations that collide, a second; 0 is as many as possible */
	WORKLOAD_HOLD = 1 << 3,	  /* --hold-ns N: how long the lock is held each time */
	WORKLOAD_SHARED = 1 << 4, /* --shared: futexes shared between processes */
};

enum worker_kind { WORKERS_ARE_THREADS, WORKERS_ARE_PROCESSES };

/* One cache line each: counting must not be contention. */
struct worker {
	_Alignas(64) unsigned int index;
	uint64_t ops;
	pthread_t thread;
	pid_t pid;
	bool finished;
};

struct workload {
	const char *name;
	const char *about; /* one sentence for --help */
	enum worker_kind worker_kind;
	unsigned int threads; /* or WORKLOAD_ONE_PER_CPU, but at least min_threads */
	unsigned int min_threads;
	uint64_t hold_ns;     /* default of --hold-ns */
	unsigned int accepts; /* of enum workload_option */
	void (*setup)(void);
	void (*worker)(struct worker *self);
	void (*teardown)(void); /* also runs when the workload fails; setup may not have finished */
	void (*report)(void);	/* calls report_u64() for what it knows beyond ops */
};

struct workload_run {
	const struct workload *workload;
	unsigned int threads;
	uint64_t duration_ns; /* 0: until the count is reached */
	uint64_t count;
	uint64_t rate;
	uint64_t hold_ns;
	bool shared;
	const char *parent_dir;
	char temporary_dir[PATH_MAX]; /* empty until workload_dir() makes it */
	pid_t main_pid;
	uint64_t start_ns;

	pthread_barrier_t start;
	atomic_bool stop;
	struct worker workers[]; /* [threads] */
};

/* Mapped shared, so that workers which are processes see the stop and their counts are seen. */
static struct workload_run *workload_run;

static inline uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

static inline struct timespec to_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / NSEC_PER_SEC), .tv_nsec = (long)(ns % NSEC_PER_SEC)};
}

/* Returns early when a signal (the stop) comes. */
static inline void sleep_until_ns(uint64_t deadline_ns)
{
	struct timespec deadline = to_timespec(deadline_ns);

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &deadline, NULL);
}

/* Not ended by a signal. */
static inline void wait_for_post(sem_t *semaphore)
{
	while (sem_wait(semaphore) && errno == EINTR)
		;
}

static inline bool workload_running(void)
{
	return !atomic_load_explicit(&workload_run->stop, memory_order_relaxed);
}

static inline void workload_stop(void)
{
	atomic_store(&workload_run->stop, true);
}

/*
 * Ends the workload with one sentence, from any thread.  What is registered with atexit() cleans up; of several threads
 * that fail at once the first one speaks.
 */
static inline _Noreturn void workload_exit(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline _Noreturn void workload_exit(int status, const char *format, ...)
{
	static atomic_flag exiting = ATOMIC_FLAG_INIT;
	va_list arguments;

	if (atomic_flag_test_and_set(&exiting))
		for (;;)
			pause();
	fprintf(stderr, "%s: ", workload_run->workload->name);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	workload_stop();
	exit(status);
}

#define fail(...) workload_exit(EXIT_FAILURE, __VA_ARGS__)
#define fail_errno(what) workload_exit(EXIT_FAILURE, "%s: %s", what, strerror(errno))
#define not_possible_here(...) workload_exit(EXIT_NOT_POSSIBLE_HERE, __VA_ARGS__)
#define bad_arguments(...) workload_exit(EXIT_BAD_ARGUMENTS, __VA_ARGS__)

/* The workload's own directory; made on first use (in setup), removed with all that is in it at the end. */
static inline const char *workload_dir(void)
{
	struct workload_run *run = workload_run;
	int length;

	if (run->temporary_dir[0])
		return run->temporary_dir;
	length = snprintf(run->temporary_dir, sizeof(run->temporary_dir), "%s/lockmeter-%s-XXXXXX", run->parent_dir,
			  run->workload->name);
	if (length >= (int)sizeof(run->temporary_dir)) {
		run->temporary_dir[0] = '\0';
		bad_arguments("the path given with --dir is too long");
	}
	if (!mkdtemp(run->temporary_dir)) {
		run->temporary_dir[0] = '\0';
		fail("cannot make a directory in %s: %s; name another one with --dir or TMPDIR", run->parent_dir,
		     strerror(errno));
	}
	return run->temporary_dir;
}

/* Extra members of the JSON object; only from report(). */
static inline void report_u64(const char *key, uint64_t value)
{
	printf(",\"%s\":%llu", key, (unsigned long long)value);
}

static inline int workload_remove_entry(const char *path, const struct stat *status, int type, struct FTW *position)
{
	(void)status;
	(void)type;
	(void)position;
	remove(path);
	return 0;
}

static inline void workload_cleanup(void)
{
	struct workload_run *run = workload_run;
	unsigned int i;

	if (getpid() != run->main_pid)
		return;
	if (run->workload->worker_kind == WORKERS_ARE_PROCESSES) {
		for (i = 0; i < run->threads; i++) {
			if (run->workers[i].pid > 0 && !run->workers[i].finished) {
				kill(run->workers[i].pid, SIGKILL);
				waitpid(run->workers[i].pid, NULL, 0);
			}
		}
	}
	if (run->workload->teardown)
		run->workload->teardown();
	if (run->temporary_dir[0])
		nftw(run->temporary_dir, workload_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static inline void workload_run_worker(struct worker *self)
{
	pthread_barrier_wait(&workload_run->start);
	workload_run->workload->worker(self);
}

static inline void *workload_thread(void *self)
{
	workload_run_worker(self);
	return NULL;
}

static inline void workload_start_thread(struct worker *self)
{
	int error = pthread_create(&self->thread, NULL, workload_thread, self);

	if (error)
		fail("cannot start thread %u: %s; ask for fewer with --threads", self->index, strerror(error));
}

static inline void workload_start_process(struct worker *self)
{
	pid_t child = fork();

	if (child < 0)
		fail("cannot start process %u: %s; ask for fewer with --threads", self->index, strerror(errno));
	if (child > 0) {
		self->pid = child; /* here only: the child sees this struct too */
		return;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != workload_run->main_pid)
		_exit(EXIT_FAILURE);
	workload_run_worker(self);
	_exit(EXIT_SUCCESS);
}

static inline bool workload_worker_finished(struct worker *worker)
{
	int status;

	if (worker->finished)
		return true;
	if (workload_run->workload->worker_kind == WORKERS_ARE_THREADS) {
		worker->finished = pthread_tryjoin_np(worker->thread, NULL) == 0;
	} else if (waitpid(worker->pid, &status, WNOHANG) == worker->pid) {
		worker->finished = true;
		if (WIFEXITED(status) && WEXITSTATUS(status))
			exit(WEXITSTATUS(status)); /* it has said why */
		if (WIFSIGNALED(status))
			fail("worker %u was killed by signal %d", worker->index, WTERMSIG(status));
	}
	return worker->finished;
}

static inline bool workload_all_finished(void)
{
	bool all = true;
	unsigned int i;

	for (i = 0; i < workload_run->threads; i++)
		all &= workload_worker_finished(&workload_run->workers[i]);
	return all;
}

static inline void workload_wait_for_end(const sigset_t *ending)
{
	uint64_t deadline_ns =
		workload_run->duration_ns ? workload_run->start_ns + workload_run->duration_ns : UINT64_MAX;

	while (workload_running() && !workload_all_finished()) {
		uint64_t now = now_ns();
		struct timespec slice;

		if (now >= deadline_ns)
			return;
		slice = to_timespec(deadline_ns - now < WORKLOAD_POLL_NS ? deadline_ns - now : WORKLOAD_POLL_NS);
		if (sigtimedwait(ending, NULL, &slice) > 0)
			return;
	}
}

static inline void workload_join(void)
{
	struct timespec pause_between = to_timespec(WORKLOAD_NUDGE_NS);
	unsigned int i;

	workload_stop();
	while (!workload_all_finished()) {
		for (i = 0; i < workload_run->threads; i++) {
			struct worker *worker = &workload_run->workers[i];

			if (worker->finished)
				continue;
			if (workload_run->workload->worker_kind == WORKERS_ARE_THREADS)
				pthread_kill(worker->thread, SIGUSR1);
			else
				kill(worker->pid, SIGUSR1);
		}
		nanosleep(&pause_between, NULL);
	}
}

static inline uint64_t workload_parse_integer(const char *option, const char *text)
{
	unsigned long long value;
	char *end;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (text[0] < '0' || text[0] > '9' || *end || errno)
		bad_arguments("%s takes a whole number, not '%s'", option, text);
	return value;
}

static inline uint64_t workload_parse_duration(const char *text)
{
	double seconds;
	char *end;

	errno = 0;
	seconds = strtod(text, &end);
	if (end == text || *end || errno || !(seconds >= 0.001 && seconds <= WORKLOAD_MAX_SECONDS))
		bad_arguments("--seconds takes a number from 0.001 to %.0f, not '%s'", WORKLOAD_MAX_SECONDS, text);
	return (uint64_t)(seconds * (double)NSEC_PER_SEC);
}

static const struct workload_option_text {
	struct option option; /* .val is the enum workload_option, or the letter of an option all workloads have */
	const char *usage;
} workload_option_texts[] = {
	{{"seconds", required_argument, NULL, 's'}, "--seconds S   how long to run (default 3)"},
	{{"threads", required_argument, NULL, 't'}, "--threads N   how many workers"},
	{{"help", no_argument, NULL, 'h'}, "--help        this text"},
	{{"dir", required_argument, NULL, WORKLOAD_DIR}, "--dir DIR     where to make the temporary directory"},
	{{"count", required_argument, NULL, WORKLOAD_COUNT}, "--count N     end after N operations instead of a time"},
	{{"rate", required_argument, NULL, WORKLOAD_RATE},
	 "--rate N      collisions a second to aim at (default 0: as many as possible)"},
	{{"hold-ns", required_argument, NULL, WORKLOAD_HOLD}, "--hold-ns N   how long to hold the lock each time"},
	{{"shared", no_argument, NULL, WORKLOAD_SHARED}, "--shared      use futexes that processes can share"},
};

#define WORKLOAD_OPTIONS (sizeof(workload_option_texts) / sizeof(workload_option_texts[0]))

static inline bool workload_accepts(const struct workload *workload, int option)
{
	return option == 's' || option == 't' || option == 'h' || (workload->accepts & (unsigned int)option);
}

static inline _Noreturn void workload_help(const struct workload *workload)
{
	size_t i;

	printf("%s: %s\n\nusage: %s [OPTION...]\n", workload->name, workload->about, workload->name);
	for (i = 0; i < WORKLOAD_OPTIONS; i++)
		if (workload_accepts(workload, workload_option_texts[i].option.val))
			printf("  %s\n", workload_option_texts[i].usage);
	printf("It has %u workers here unless told.\n", workload_run->threads);
	exit(EXIT_SUCCESS);
}

static inline void workload_take_option(struct workload_run *run, int option)
{
	uint64_t threads;

	switch (option) {
	case 's':
		run->duration_ns = workload_parse_duration(optarg);
		break;
	case 't':
		threads = workload_parse_integer("--threads", optarg);
		if (threads < run->workload->min_threads || threads > WORKLOAD_MAX_THREADS)
			bad_arguments("--threads takes a number from %u to %u, not '%s'", run->workload->min_threads,
				      WORKLOAD_MAX_THREADS, optarg);
		run->threads = (unsigned int)threads;
		break;
	case WORKLOAD_DIR:
		run->parent_dir = optarg;
		break;
	case WORKLOAD_COUNT:
		run->count = workload_parse_integer("--count", optarg);
		if (!run->count)
			bad_arguments("--count takes a number above 0");
		run->duration_ns = 0;
		break;
	case WORKLOAD_RATE:
		run->rate = workload_parse_integer("--rate", optarg);
		if (run->rate > NSEC_PER_SEC)
			bad_arguments("--rate takes a number up to %llu, not '%s'", NSEC_PER_SEC, optarg);
		break;
	case WORKLOAD_HOLD:
		run->hold_ns = workload_parse_integer("--hold-ns", optarg);
		break;
	case WORKLOAD_SHARED:
		run->shared = true;
		break;
	case 'h':
		workload_help(run->workload);
	default:
		bad_arguments("unknown option or missing value; --help lists what it takes");
	}
}

static inline void workload_parse_arguments(struct workload_run *run, int argc, char **argv)
{
	struct option accepted[WORKLOAD_OPTIONS + 1] = {0};
	size_t i, count = 0;
	int option;

	for (i = 0; i < WORKLOAD_OPTIONS; i++)
		if (workload_accepts(run->workload, workload_option_texts[i].option.val))
			accepted[count++] = workload_option_texts[i].option;

	opterr = 0;
	while ((option = getopt_long(argc, argv, "", accepted, NULL)) != -1)
		workload_take_option(run, option);
	if (optind < argc)
		bad_arguments("takes options only, not '%s'; --help lists them", argv[optind]);
}

static inline unsigned int workload_cpus(const struct workload *workload)
{
	cpu_set_t allowed;
	unsigned int cpus = sched_getaffinity(0, sizeof(allowed), &allowed) ? 1 : (unsigned int)CPU_COUNT(&allowed);

	return cpus < workload->min_threads ? workload->min_threads : cpus;
}

static inline struct workload_run *workload_map_run(const struct workload *workload)
{
	size_t size = sizeof(struct workload_run) + WORKLOAD_MAX_THREADS * sizeof(struct worker);
	struct workload_run *run;
	const char *temporary = getenv("TMPDIR");

	run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (run == MAP_FAILED) {
		perror(workload->name);
		exit(EXIT_FAILURE);
	}
	run->workload = workload;
	run->threads = workload->threads ? workload->threads : workload_cpus(workload);
	run->duration_ns = 3 * NSEC_PER_SEC;
	run->hold_ns = workload->hold_ns;
	run->parent_dir = temporary && *temporary ? temporary : "/tmp";
	run->main_pid = getpid();
	return run;
}

/* For all workers and the main thread. */
static inline void workload_init_barrier(struct workload_run *run)
{
	pthread_barrierattr_t attributes;

	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&run->start, &attributes, run->threads + 1);
	pthread_barrierattr_destroy(&attributes);
}

static inline void workload_ignore_nudge(int signal)
{
	(void)signal;
}

/* The CPU time, user and system, of this process or of its children that have ended. */
static inline uint64_t workload_cpu_ns(int who)
{
	struct rusage used;

	if (getrusage(who, &used))
		return 0;
	return (uint64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * NSEC_PER_SEC +
	       (uint64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * NSEC_PER_USEC;
}

static inline int workload_main(int argc, char **argv, const struct workload *workload)
{
	struct sigaction nudge = {.sa_handler = workload_ignore_nudge};
	struct workload_run *run;
	uint64_t ops = 0, elapsed_ns;
	sigset_t ending;
	unsigned int i;

	run = workload_run = workload_map_run(workload);
	workload_parse_arguments(run, argc, argv);
	workload_init_barrier(run);

	/* Blocked before anything starts: every worker inherits that, and only the main thread takes the signals. */
	sigemptyset(&ending);
	sigaddset(&ending, SIGINT);
	sigaddset(&ending, SIGTERM);
	sigprocmask(SIG_BLOCK, &ending, NULL);
	sigaction(SIGUSR1, &nudge, NULL);

	atexit(workload_cleanup);
	if (workload->setup)
		workload->setup();
	for (i = 0; i < run->threads; i++) {
		run->workers[i].index = i;
		if (workload->worker_kind == WORKERS_ARE_THREADS)
			workload_start_thread(&run->workers[i]);
		else
			workload_start_process(&run->workers[i]);
	}

	pthread_barrier_wait(&run->start);
	run->start_ns = now_ns();
	workload_wait_for_end(&ending);
	workload_join();
	elapsed_ns = now_ns() - run->start_ns;

	for (i = 0; i < run->threads; i++)
		ops += run->workers[i].ops;
	printf("{\"workload\":\"%s\",\"threads\":%u,\"ops\":%llu,\"elapsed_ns\":%llu,\"cpu_ns\":%llu", workload->name,
	       run->threads, (unsigned long long)ops, (unsigned long long)elapsed_ns,
	       (unsigned long long)(workload_cpu_ns(RUSAGE_SELF) + workload_cpu_ns(RUSAGE_CHILDREN)));
	if (workload->report)
		workload->report();
	printf("}\n");
	return EXIT_SUCCESS;
}

#endif
