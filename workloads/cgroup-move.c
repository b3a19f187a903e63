/*
 * cgroup_threadgroup_rwsem: processes that fork while another one is moved between two cgroups.
 *
 * Writing a process id to cgroup.procs takes this per-CPU rwsem for writing (cgroup_procs_write_start), so that no thread
 * group changes meanwhile; fork and exit take it for reading (cgroup_can_fork or copy_process, and exit_signals).  One
 * worker moves a sleeping passenger to and fro and the others fork.  More than one mover would only queue for cgroup_mutex,
 * which is taken first.
 *
 * The version 2 hierarchy is mounted in a mount namespace of this program's own, and the two cgroups are removed at the end.
 */
#include "own-cgroup2.h"
#include "workload.h"

#define CGROUPS 2

static struct {
	char dir[PATH_MAX + 64];
	int procs; /* its cgroup.procs, for writing */
} cgroups[CGROUPS];

static void make_cgroups(void)
{
	char procs[PATH_MAX + 96];
	int i;

	mount_cgroup2();
	for (i = 0; i < CGROUPS; i++) {
		snprintf(cgroups[i].dir, sizeof(cgroups[i].dir), "%s/lockmeter-%d-%d", cgroup2_dir, getpid(), i);
		if (mkdir(cgroups[i].dir, 0700)) {
			cgroups[i].dir[0] = '\0';
			not_possible_here("cannot make a cgroup: %s; run it as root", strerror(errno));
		}
		snprintf(procs, sizeof(procs), "%s/lockmeter-%d-%d/cgroup.procs", cgroup2_dir, getpid(), i);
		cgroups[i].procs = open(procs, O_WRONLY | O_CLOEXEC);
		if (cgroups[i].procs < 0)
			fail_errno(procs);
	}
}

static void remove_cgroups(void)
{
	int i;

	for (i = 0; i < CGROUPS; i++) {
		if (!cgroups[i].dir[0])
			continue;
		close(cgroups[i].procs);
		/* Busy until the kernel has buried the last passenger. */
		while (rmdir(cgroups[i].dir) && errno == EBUSY)
			sleep_until_ns(now_ns() + NSEC_PER_MSEC);
	}
	unmount_cgroup2();
}

static pid_t start_passenger(void)
{
	pid_t mover = getpid(), passenger = fork();

	if (passenger < 0)
		fail_errno("fork");
	if (passenger > 0)
		return passenger;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (getppid() == mover)
		pause();
	_exit(EXIT_SUCCESS);
}

static void move_passenger(struct worker *self)
{
	pid_t passenger = start_passenger();
	char line[16];
	int length = snprintf(line, sizeof(line), "%d", passenger);

	while (workload_running()) {
		if (write(cgroups[self->ops % CGROUPS].procs, line, (size_t)length) < 0 && errno != EINTR)
			fail_errno("cgroup.procs");
		self->ops++;
	}
	kill(passenger, SIGKILL);
	waitpid(passenger, NULL, 0);
}

static void fork_and_reap(struct worker *self)
{
	while (workload_running()) {
		pid_t child = fork();

		if (child == 0)
			_exit(EXIT_SUCCESS);
		if (child < 0 && errno != EINTR)
			fail_errno("fork");
		while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		self->ops++;
	}
}

static void move_or_fork(struct worker *self)
{
	if (self->index == 0)
		move_passenger(self);
	else
		fork_and_reap(self);
}

static void report_moves(void)
{
	report_u64("moves", workload_run->workers[0].ops);
}

int main(int argc, char **argv)
{
	static const struct workload cgroup_move = {
		.name = "cgroup-move",
		.about = "processes move between cgroups while others fork (cgroup_threadgroup_rwsem)",
		.worker_kind = WORKERS_ARE_PROCESSES,
		.threads = 4,
		.min_threads = 2,
		.accepts = WORKLOAD_DIR,
		.setup = make_cgroups,
		.worker = move_or_fork,
		.report = report_moves,
		.teardown = remove_cgroups,
	};

	return workload_main(argc, argv, &cgroup_move);
}
