/*
 * bp_cpuinfo_sem: threads that open and close hardware breakpoints.
 *
 * The kernel counts the few breakpoint registers of each CPU (kernel/events/hw_breakpoint.c).  A breakpoint that follows one
 * task takes the per-CPU rwsem bp_cpuinfo_sem for reading, one bound to a CPU takes it for writing (reserve_bp_slot,
 * release_bp_slot, both through bp_constraints_lock).  Half of the workers open CPU-bound ones, so that writers meet writers
 * too, and the others task-bound ones.
 */
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>

#include "workload.h"

static int open_breakpoint(const void *address, pid_t task, int cpu)
{
	struct perf_event_attr attributes = {
		.type = PERF_TYPE_BREAKPOINT,
		.size = sizeof(attributes),
		.bp_type = HW_BREAKPOINT_W,
		.bp_addr = (uintptr_t)address,
		.bp_len = HW_BREAKPOINT_LEN_4,
		.disabled = 1,
	};

	return (int)syscall(SYS_perf_event_open, &attributes, task, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static void probe_permission(void)
{
	static int watched;
	int fd = open_breakpoint(&watched, -1, sched_getcpu());

	if (fd < 0 && (errno == EACCES || errno == EPERM))
		not_possible_here("breakpoints on a CPU need CAP_PERFMON; run it as root");
	if (fd < 0)
		not_possible_here("this kernel gives no hardware breakpoint: %s", strerror(errno));
	close(fd);
}

static void open_and_close(struct worker *self)
{
	int watched;
	bool binds_to_cpu = self->index % 2 == 0;

	while (workload_running()) {
		int fd =
			binds_to_cpu ? open_breakpoint(&watched, -1, sched_getcpu()) : open_breakpoint(&watched, 0, -1);

		if (fd < 0 && errno != ENOSPC)
			fail_errno("perf_event_open");
		if (fd >= 0)
			close(fd);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload hw_breakpoint = {
		.name = "hw-breakpoint",
		.about = "threads open and close hardware breakpoints (bp_cpuinfo_sem)",
		.threads = 4,
		.min_threads = 2,
		.setup = probe_permission,
		.worker = open_and_close,
	};

	return workload_main(argc, argv, &hw_breakpoint);
}
