/*
 * eventpoll.mtx: threads that change, fire and collect events of one epoll instance.
 *
 * epoll_ctl() takes the instance's mutex (do_epoll_ctl), and so does epoll_wait() while it hands events out (ep_send_events, or
 * ep_scan_ready_list in its older form).  Writing to an eventfd calls ep_poll_callback() under that eventfd's wait-queue lock,
 * which takes eventpoll.lock: an rwlock at first, a spinlock since Linux 6.18.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "workload.h"

#define EVENTS_AT_ONCE 16
/* Eventfds that are always ready, so that handing events out takes a while. */
#define READY_FDS 16

static int epoll_fd;

static int add_eventfd(unsigned int initial_value)
{
	int fd = eventfd(initial_value, EFD_NONBLOCK | EFD_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	if (fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
		fail_errno("eventfd");
	return fd;
}

static void open_epoll(void)
{
	int i;

	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		fail_errno("epoll_create1");
	for (i = 0; i < READY_FDS; i++)
		add_eventfd(1);
}

static void change_fire_collect(struct worker *self)
{
	struct epoll_event collected[EVENTS_AT_ONCE];
	int fd = add_eventfd(0);
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	while (workload_running()) {
		if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, fd, &event) || eventfd_write(fd, 1))
			fail_errno("epoll");
		epoll_wait(epoll_fd, collected, EVENTS_AT_ONCE, 0);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload epoll_crowd = {
		.name = "epoll-crowd",
		.about = "threads change, fire and collect events of one epoll instance (eventpoll.mtx)",
		.threads = 8,
		.min_threads = 1,
		.setup = open_epoll,
		.worker = change_fire_collect,
	};

	return workload_main(argc, argv, &epoll_crowd);
}
