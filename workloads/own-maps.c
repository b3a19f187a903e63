/*
 * mmap_lock, which nobody waits for: each process maps a page and unmaps it, in its own address space.
 *
 * Each round takes the lock for writing twice and, as munmap() frees pages as a reader, downgrades it once. --rate N makes so
 * many rounds a second in each process.
 */
#include "workload.h"

static void map_and_unmap(struct worker *self)
{
	const struct timespec pause = {.tv_nsec = workload_run->rate ? NSEC_PER_SEC / workload_run->rate : 0};

	while (workload_running()) {
		void *page = mmap(NULL, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

		if (page == MAP_FAILED)
			fail_errno("mmap");
		munmap(page, 1);
		self->ops++;
		if (pause.tv_nsec)
			nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	static const struct workload own_maps = {
		.name = "own-maps",
		.about = "processes map and unmap a page, each in its own address space (mmap_lock, uncontended)",
		.worker_kind = WORKERS_ARE_PROCESSES,
		.threads = WORKLOAD_ONE_PER_CPU,
		.min_threads = 1,
		.accepts = WORKLOAD_RATE,
		.worker = map_and_unmap,
	};

	return workload_main(argc, argv, &own_maps);
}
