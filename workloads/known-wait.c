/*
 * A wait whose length the program itself knows: file.f_pos_lock, held for --hold-ns each round.
 *
 * The holder read()s one byte of a file into a page that is registered with userfaultfd and not there.  The copy to user
 * space faults inside the system call, so the holder sleeps with f_pos_lock held (fdget_pos, from ksys_read) until the
 * conductor supplies the page.  Meanwhile the waiters lseek() on the same open file description and block on the mutex.
 *
 *   conductor   sees the fault → lets the waiters go → sees all of them blocked → sleeps hold_ns → supplies the page
 *   holder      read() .................................................................... → unlocks, waking a waiter
 *   waiter      lseek(): from its first to its last instant it is in the wait, give or take the system call
 *
 * With one waiter the holder is the only one to blame.  With more (--threads), each but the first is woken by the waiter
 * before it, which had the lock for a moment only: the one that blames wakers alone then finds lseek() as guilty as read().
 *
 * The waited time is bounded on both sides, whatever else the machine does:
 *
 *   wait_ns_upper   the duration of all lseek() calls, each measured around the call by its waiter
 *   wait_ns_lower   for each waiter, from when it was seen blocked until just before the page was supplied
 */
#include "absent-page.h"
#include "workload.h"

enum { CONDUCTOR, HOLDER, FIRST_WAITER };

/* How often the conductor looks whether a waiter is blocked. */
#define LOOK_AGAIN_NS (50 * NSEC_PER_USEC)

struct waiter {
	_Alignas(64) atomic_int thread_id;
	uint64_t waited_ns;
};

static int shared_fd;
static sem_t holder_go, holder_done, waiters_go, waiters_done;
static atomic_bool finished;
static uint64_t rounds, wait_ns_lower;
static struct waiter waiters[WORKLOAD_MAX_THREADS];

static void open_shared_file(void)
{
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/byte", workload_dir());
	shared_fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (shared_fd < 0 || write(shared_fd, "x", 1) != 1)
		fail_errno(path);
}

static void prepare(void)
{
	sem_init(&holder_go, 0, 0);
	sem_init(&holder_done, 0, 0);
	sem_init(&waiters_go, 0, 0);
	sem_init(&waiters_done, 0, 0);
	open_shared_file();
	register_absent_page();
}

static void hold(void)
{
	for (;;) {
		wait_for_post(&holder_go);
		if (finished)
			return;
		lseek(shared_fd, 0, SEEK_SET);
		if (read(shared_fd, absent_page, 1) != 1)
			fail_errno("read");
		sem_post(&holder_done);
	}
}

static void wait_on_lock(struct worker *self)
{
	struct waiter *waiter = &waiters[self->index];

	waiter->thread_id = (int)syscall(SYS_gettid);
	for (;;) {
		uint64_t begin_ns;

		wait_for_post(&waiters_go);
		if (finished)
			return;
		begin_ns = now_ns();
		lseek(shared_fd, 0, SEEK_CUR);
		waiter->waited_ns += now_ns() - begin_ns;
		self->ops++;
		sem_post(&waiters_done);
	}
}

/* In a mutex a task is in state D; waiting for its turn, on a semaphore, it is in state S. */
static bool is_blocked(const struct waiter *waiter)
{
	char path[64], status[512], *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", waiter->thread_id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		not_possible_here("needs /proc: mount it first");
	length = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[length > 0 ? length : 0] = '\0';
	state = strrchr(status, ')');
	return state && state[1] == ' ' && state[2] == 'D';
}

/* Returns the sum of the instants at which the waiters were seen blocked. */
static uint64_t see_all_blocked(void)
{
	uint64_t seen_ns = 0;
	unsigned int i;

	for (i = FIRST_WAITER; i < workload_run->threads; i++) {
		while (!is_blocked(&waiters[i]))
			sleep_until_ns(now_ns() + LOOK_AGAIN_NS);
		seen_ns += now_ns();
	}
	return seen_ns;
}

static void conduct_round(void)
{
	unsigned int waiting = workload_run->threads - FIRST_WAITER, i;
	uint64_t seen_ns, supply_ns;

	sem_post(&holder_go);
	wait_for_fault();
	for (i = 0; i < waiting; i++)
		sem_post(&waiters_go);
	seen_ns = see_all_blocked();
	sleep_until_ns(now_ns() + workload_run->hold_ns);
	supply_ns = now_ns();
	supply_page();
	wait_ns_lower += waiting * supply_ns - seen_ns;

	for (i = 0; i < waiting; i++)
		wait_for_post(&waiters_done);
	wait_for_post(&holder_done);
	remove_page();
	rounds++;
}

static void conduct(void)
{
	unsigned int i;

	for (i = FIRST_WAITER; i < workload_run->threads; i++)
		while (!waiters[i].thread_id)
			sched_yield();
	while (workload_running())
		conduct_round();
	finished = true;
	sem_post(&holder_go);
	for (i = FIRST_WAITER; i < workload_run->threads; i++)
		sem_post(&waiters_go);
}

static void play_role(struct worker *self)
{
	if (self->index == CONDUCTOR)
		conduct();
	else if (self->index == HOLDER)
		hold();
	else
		wait_on_lock(self);
}

static void report_bounds(void)
{
	uint64_t wait_ns_upper = 0;
	unsigned int i;

	for (i = FIRST_WAITER; i < workload_run->threads; i++)
		wait_ns_upper += waiters[i].waited_ns;
	report_u64("rounds", rounds);
	report_u64("waits", rounds * (workload_run->threads - FIRST_WAITER));
	report_u64("wait_ns_lower", wait_ns_lower);
	report_u64("wait_ns_upper", wait_ns_upper);
}

int main(int argc, char **argv)
{
	static const struct workload known_wait = {
		.name = "known-wait",
		.about = "waits whose length it knows: two threads conduct and hold, the others wait (file.f_pos_lock)",
		.threads = FIRST_WAITER + 1,
		.min_threads = FIRST_WAITER + 1,
		.hold_ns = 20 * NSEC_PER_MSEC,
		.accepts = WORKLOAD_DIR | WORKLOAD_HOLD,
		.setup = prepare,
		.worker = play_role,
		.report = report_bounds,
	};

	return workload_main(argc, argv, &known_wait);
}
