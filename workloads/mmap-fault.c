/*
 * mm_struct.mmap_lock: threads of one process that map, populate, touch and unmap memory.
 *
 * mmap() and munmap() take the lock for writing (vm_mmap_pgoff, __vm_munmap).  Half of the threads map with MAP_POPULATE, which
 * then holds it for reading while it fills the whole area (__mm_populate); munmap() too still holds it for reading while it
 * frees the pages.  The other half map small areas and touch them: since Linux 6.4 a page fault mostly gets by with the lock
 * of its VMA, but the first one in a new area needs mmap_lock for reading, because there is no anon_vma yet
 * (lock_mm_and_find_vma; do_user_addr_fault before 6.5).  So nearly all of the time waited is waited by writers, for a long
 * reader.
 */
#include "workload.h"

#define POPULATED_BYTES (1ul << 20)
#define TOUCHED_BYTES (64ul << 10)

static void map_and_unmap(struct worker *self)
{
	bool populates = self->index % 2 == 0;
	size_t bytes = populates ? POPULATED_BYTES : TOUCHED_BYTES;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	while (workload_running()) {
		char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | (populates ? MAP_POPULATE : 0), -1, 0);
		size_t offset;

		if (area == MAP_FAILED)
			fail_errno("mmap");
		for (offset = 0; offset < bytes && !populates; offset += page)
			area[offset] = 1;
		munmap(area, bytes);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload mmap_fault = {
		.name = "mmap-fault",
		.about = "threads of one process map, populate, touch and unmap memory (mm_struct.mmap_lock)",
		.threads = 4,
		.min_threads = 2,
		.worker = map_and_unmap,
	};

	return workload_main(argc, argv, &mmap_fault);
}
