/*
 * lruvec.lru_lock: processes that lock their memory and unlock it again.
 *
 * mlock() moves each page from its memory cgroup's LRU list to the unevictable one and munlock() moves it back, in batches
 * (mlock_folio_batch, mlock_pagevec before 6.3), under the lock of those lists.  All workers are in one cgroup, so it is one
 * lock.  They are processes rather than threads so that mmap_lock and the page tables are not shared.
 *
 * Memory in use is AREA_BYTES for each worker, and never more.
 */
#include <sys/resource.h>

#include "workload.h"

#define AREA_BYTES (16ul << 20)

static void require_lockable_memory(void)
{
	struct rlimit limit;

	/* Whether CAP_IPC_LOCK lifts the limit shows only when it is tried. */
	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur < AREA_BYTES && geteuid() != 0)
		not_possible_here("needs %lu bytes of lockable memory; run it as root or raise ulimit -l", AREA_BYTES);
}

static void lock_and_unlock(struct worker *self)
{
	char *area = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		fail_errno("mmap");
	/* Small pages: a huge one is moved once for 512. */
	madvise(area, AREA_BYTES, MADV_NOHUGEPAGE);
	memset(area, 1, AREA_BYTES);
	while (workload_running()) {
		if (mlock(area, AREA_BYTES) || munlock(area, AREA_BYTES))
			fail_errno("mlock");
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload lru_churn = {
		.name = "lru-churn",
		.about = "processes lock and unlock memory of their own (lruvec.lru_lock)",
		.worker_kind = WORKERS_ARE_PROCESSES,
		.threads = 4,
		.min_threads = 2,
		.setup = require_lockable_memory,
		.worker = lock_and_unlock,
	};

	return workload_main(argc, argv, &lru_churn);
}
