/*
 * A page that is registered with userfaultfd and not there: a system call that touches it sleeps in the middle, with whatever
 * locks it holds, until the page is supplied.
 */
#ifndef ABSENT_PAGE_H
#define ABSENT_PAGE_H

#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

#include "workload.h"

static char *absent_page;
static size_t page_bytes;
static int fault_fd;

static inline void register_absent_page(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register registration = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	absent_page = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (absent_page == MAP_FAILED)
		fail_errno("mmap");
	fault_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fault_fd < 0)
		not_possible_here("needs userfaultfd: %s; run it as root on a kernel with CONFIG_USERFAULTFD",
				  strerror(errno));
	registration.range.start = (uintptr_t)absent_page;
	registration.range.len = page_bytes;
	if (ioctl(fault_fd, UFFDIO_API, &api) || ioctl(fault_fd, UFFDIO_REGISTER, &registration))
		fail_errno("userfaultfd");
}

/* Returns when somebody has touched the page, and sleeps. */
static inline void wait_for_fault(void)
{
	struct uffd_msg message;

	while (read(fault_fd, &message, sizeof(message)) < 0)
		if (errno != EINTR)
			fail_errno("userfaultfd");
}

static inline void supply_page(void)
{
	struct uffdio_zeropage zero = {.range = {.start = (uintptr_t)absent_page, .len = page_bytes}};

	if (ioctl(fault_fd, UFFDIO_ZEROPAGE, &zero))
		fail_errno("UFFDIO_ZEROPAGE");
}

/* To be called when the one that slept is done with it. */
static inline void remove_page(void)
{
	madvise(absent_page, page_bytes, MADV_DONTNEED);
}

#endif
