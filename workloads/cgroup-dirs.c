/*
 * The i_rwsem of a directory of control groups: threads make and remove groups in it.
 *
 * mkdir() and rmdir() take the directory's inode lock for writing, as in any file system; inside, kernfs takes locks of its own.
 * Nobody waits longer than the calls take, whose time is printed.
 */
#include "own-cgroup2.h"
#include "workload.h"

static char parent_dir[PATH_MAX + 64];
static uint64_t calls_ns[WORKLOAD_MAX_THREADS];

static void make_parent(void)
{
	mount_cgroup2();
	snprintf(parent_dir, sizeof(parent_dir), "%s/lockmeter-dirs-%d", cgroup2_dir, getpid());
	if (mkdir(parent_dir, 0700)) {
		parent_dir[0] = '\0';
		not_possible_here("cannot make a cgroup: %s; run it as root", strerror(errno));
	}
}

static void remove_parent(void)
{
	if (parent_dir[0] && rmdir(parent_dir))
		fail_errno(parent_dir);
	unmount_cgroup2();
}

static void make_and_remove(struct worker *self)
{
	char path[PATH_MAX + 96];
	uint64_t begin_ns;

	snprintf(path, sizeof(path), "%s/%u", parent_dir, self->index);
	while (workload_running()) {
		begin_ns = now_ns();
		if (mkdir(path, 0700) || rmdir(path))
			fail_errno(path);
		calls_ns[self->index] += now_ns() - begin_ns;
		self->ops++;
	}
}

static void report_calls(void)
{
	uint64_t sum_ns = 0;
	unsigned int i;

	for (i = 0; i < workload_run->threads; i++)
		sum_ns += calls_ns[i];
	report_u64("calls_ns", sum_ns);
}

int main(int argc, char **argv)
{
	static const struct workload cgroup_dirs = {
		.name = "cgroup-dirs",
		.about = "threads make and remove control groups in one directory (inode.i_rwsem of cgroup2)",
		.threads = 4,
		.min_threads = 2,
		.accepts = WORKLOAD_DIR,
		.setup = make_parent,
		.worker = make_and_remove,
		.report = report_calls,
		.teardown = remove_parent,
	};

	return workload_main(argc, argv, &cgroup_dirs);
}
