/*
 * Spinning locks held for a time that the program itself knows, though nobody waits for them.
 *
 * Two system calls walk a long list with such a lock held, and do little else:
 *
 *   file_locks   fcntl(F_GETLK)   file_lock_context.flc_lock, a spinlock   posix_test_lock, or its caller
 *   group        kill(-group, 0)  tasklist_lock, an rwlock, for reading    kill_something_info
 *
 * The hold is shorter than the call. And it is longer than what the call takes beyond one that finds a list of one: the rest of both
 * calls is the same. The two alternate, so that whatever else the machine does meets both alike. The one that wants the CPU meanwhile would
 * get it when the lock is released, within the call: so the walker is a real-time task if it may, and leaves the CPU by itself. Its
 * name, "walker", tells its holds from those of the setup. A meter should take few stacks, for it takes them within the call.
 */
#include "workload.h"

/* So many that the walk takes fifty times as long as the rest of the call, in which a meter takes a stack after long holds alone. */
#define FILE_LOCKS 24000
#define GROUP 600

/* Real-time tasks may have 95 % of the time: then the kernel has others run. */
#define PAUSE_NS (300 * NSEC_PER_USEC)

enum walked { FILE_LOCK_LIST, GROUP_MEMBERS, WALKED };

static const char *const held_lower[WALKED] = {"file_locks_ns_lower", "group_ns_lower"};
static const char *const held_upper[WALKED] = {"file_locks_ns_upper", "group_ns_upper"};

static int crowded_file, lone_file;
static pid_t crowded_group, lone_group;
static pid_t members[GROUP + 1];
static unsigned int members_size;
static uint64_t rounds, long_ns[WALKED], short_ns[WALKED];

static struct flock byte_at(off_t start)
{
	return (struct flock){.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = 1};
}

/* From the end to the front: each is put at the head of the list, which need not be searched for its place. */
static int open_locked(const char *name, unsigned int locks)
{
	char path[PATH_MAX + 32];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", workload_dir(), name);
	fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		fail_errno(path);
	while (locks--) {
		struct flock one = byte_at(2 * (off_t)locks);

		if (fcntl(fd, F_SETLK, &one))
			fail_errno("F_SETLK");
	}
	return fd;
}

static pid_t gather(unsigned int size)
{
	pid_t group = 0;

	while (size--) {
		pid_t child = fork();

		if (child < 0)
			fail_errno("fork");
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		members[members_size++] = child;
		if (setpgid(child, group))
			fail_errno("setpgid");
		if (!group)
			group = child;
	}
	return group;
}

static void prepare(void)
{
	crowded_file = open_locked("crowded", FILE_LOCKS);
	lone_file = open_locked("lone", 1);
	crowded_group = gather(GROUP);
	lone_group = gather(1);
}

static void dismiss(void)
{
	while (members_size) {
		kill(members[--members_size], SIGKILL);
		waitpid(members[members_size], NULL, 0);
	}
}

/* Nobody else has a lock there: all of the list is looked at, in vain. */
static uint64_t walk_locks(int fd)
{
	struct flock wanted = byte_at(4 * (off_t)FILE_LOCKS);
	uint64_t begin_ns = now_ns();

	if (fcntl(fd, F_GETLK, &wanted))
		fail_errno("F_GETLK");
	return now_ns() - begin_ns;
}

static uint64_t walk_group(pid_t group)
{
	uint64_t begin_ns = now_ns();

	if (kill(-group, 0))
		fail_errno("kill");
	return now_ns() - begin_ns;
}

static void walk(struct worker *self)
{
	const struct sched_param lowest = {.sched_priority = 1};

	prctl(PR_SET_NAME, "walker");
	sched_setscheduler(0, SCHED_FIFO, &lowest);
	while (workload_running()) {
		long_ns[FILE_LOCK_LIST] += walk_locks(crowded_file);
		short_ns[FILE_LOCK_LIST] += walk_locks(lone_file);
		long_ns[GROUP_MEMBERS] += walk_group(crowded_group);
		short_ns[GROUP_MEMBERS] += walk_group(lone_group);
		rounds++;
		sleep_until_ns(now_ns() + PAUSE_NS);
	}
	self->ops = rounds;
}

static void report_bounds(void)
{
	report_u64("rounds", rounds);
	for (int walked = 0; walked < WALKED; walked++) {
		report_u64(held_lower[walked], long_ns[walked] - short_ns[walked]);
		report_u64(held_upper[walked], long_ns[walked]);
	}
}

int main(int argc, char **argv)
{
	static const struct workload known_spin = {
		.name = "known-spin",
		.about = "spinning locks held for a time that it knows (flc_lock, tasklist_lock), without waiters",
		.threads = 1,
		.min_threads = 1,
		.accepts = WORKLOAD_DIR,
		.setup = prepare,
		.worker = walk,
		.teardown = dismiss,
		.report = report_bounds,
	};

	return workload_main(argc, argv, &known_spin);
}
