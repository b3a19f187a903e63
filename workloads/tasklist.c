/*
 * tasklist_lock: processes that look up and change their process group.
 *
 * setpgid() takes this rwlock for writing even when nothing changes; kill() of a process group takes it for reading
 * (kill_something_info) and holds it while it visits every member, of which there is a crowd of idle ones.
 */
#include "workload.h"

#define CROWD 32

static pid_t crowd[CROWD];
static unsigned int crowd_size;

static void gather_crowd(void)
{
	for (; crowd_size < CROWD; crowd_size++) {
		pid_t child = fork();

		if (child < 0)
			fail_errno("fork");
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			setpgid(0, crowd[0]); /* the first one's is still 0: it leads the group */
			for (;;)
				pause();
		}
		crowd[crowd_size] = child;
		/* By the parent too, so that the group exists before the next one joins it. */
		setpgid(child, crowd[0]);
	}
}

static void dismiss_crowd(void)
{
	while (crowd_size) {
		kill(crowd[--crowd_size], SIGKILL);
		waitpid(crowd[crowd_size], NULL, 0);
	}
}

static void visit_and_change(struct worker *self)
{
	while (workload_running()) {
		kill(-crowd[0], 0);
		setpgid(0, 0);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload tasklist = {
		.name = "tasklist",
		.about = "processes look up and change their process group (tasklist_lock)",
		.worker_kind = WORKERS_ARE_PROCESSES,
		.threads = 4,
		.min_threads = 1,
		.setup = gather_crowd,
		.worker = visit_and_change,
		.teardown = dismiss_crowd,
	};

	return workload_main(argc, argv, &tasklist);
}
