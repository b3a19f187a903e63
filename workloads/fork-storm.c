/*
 * anon_vma.rwsem: processes that fork and reap children as quickly as they can, all descended from one parent.
 *
 * The parent has one area of touched memory, split by mprotect() into many VMAs that share one anon_vma.  Each fork links a
 * copy of every VMA to it (anon_vma_fork, anon_vma_clone) and each exit unlinks them again (unlink_anon_vmas), always under
 * the lock of the *root* anon_vma, which is the parent's for the whole family, and for writing.  A VMA is linked to the
 * anon_vma of every ancestor too, so the workers are several generations away from the parent: that makes the hold long.
 *
 * A fork also makes and frees a task, an mm and a signal handler table, so a tool that remembers every lock by its address
 * fills up here: --count 100000 is the test of that.
 */
#include "workload.h"

#define FAMILY_VMAS 32
#define GENERATIONS 12

static atomic_ullong *forks_begun; /* shared by the workers; counts towards --count */

static void populate_family_memory(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), i;
	char *area = mmap(NULL, FAMILY_VMAS * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	forks_begun = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED || forks_begun == MAP_FAILED)
		fail_errno("mmap");
	/* Touched first, so that all parts inherit one anon_vma from the whole. */
	memset(area, 1, FAMILY_VMAS * page);
	for (i = 0; i < FAMILY_VMAS; i += 2)
		if (mprotect(area + i * page, page, PROT_READ))
			fail_errno("mprotect");
}

static bool may_fork(void)
{
	return !workload_run->count || atomic_fetch_add(forks_begun, 1) < workload_run->count;
}

/* Returns in the youngest of a line of processes.  The others stay: a dead ancestor's anon_vma would be reused. */
static void descend(void)
{
	int generation;

	for (generation = 0; generation < GENERATIONS; generation++) {
		pid_t child = fork();
		int status;

		if (child < 0)
			fail_errno("fork");
		if (child > 0) {
			while (waitpid(child, &status, 0) < 0 && errno == EINTR)
				;
			_exit(WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE);
		}
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	}
}

static void fork_and_reap(struct worker *self)
{
	descend();
	while (workload_running() && may_fork()) {
		pid_t child = fork();

		if (child == 0)
			_exit(EXIT_SUCCESS);
		if (child < 0)
			fail_errno("fork");
		while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
			;
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload fork_storm = {
		.name = "fork-storm",
		.about = "processes of one family fork and exit as quickly as they can (anon_vma.rwsem)",
		.worker_kind = WORKERS_ARE_PROCESSES,
		.threads = 4,
		.min_threads = 1,
		.accepts = WORKLOAD_COUNT,
		.setup = populate_family_memory,
		.worker = fork_and_reap,
	};

	return workload_main(argc, argv, &fork_storm);
}
