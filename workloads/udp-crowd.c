/*
 * The locks of a UDP socket: several threads send datagrams to it over loopback, and one receives them.
 *
 * What is sent over loopback arrives in a softirq on the sender's CPU, which puts it into the socket's queue.  So the queue's
 * lock is waited for in softirqs, by senders that meet there, and in the receiver's task.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "workload.h"

static int receiver_fd;
static struct sockaddr_in address = {.sin_family = AF_INET};

static void open_receiver(void)
{
	socklen_t length = sizeof(address);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	receiver_fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (receiver_fd < 0 || bind(receiver_fd, (struct sockaddr *)&address, length) ||
	    getsockname(receiver_fd, (struct sockaddr *)&address, &length))
		not_possible_here("needs UDP over loopback: %s", strerror(errno));
}

static void receive(struct worker *self)
{
	char datagram[64];

	while (workload_running())
		/* EINTR: the end; the others are what the queue had no room for. */
		if (recv(receiver_fd, datagram, sizeof(datagram), 0) > 0)
			self->ops++;
}

static void send_datagrams(struct worker *self)
{
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char datagram[64] = "datagram";

	if (fd < 0)
		fail_errno("socket");
	while (workload_running())
		if (sendto(fd, datagram, sizeof(datagram), 0, (struct sockaddr *)&address, sizeof(address)) > 0)
			self->ops++;
	close(fd);
}

static void send_or_receive(struct worker *self)
{
	if (self->index == 0)
		receive(self);
	else
		send_datagrams(self);
}

int main(int argc, char **argv)
{
	static const struct workload udp_crowd = {
		.name = "udp-crowd",
		.about = "threads send datagrams over loopback to one socket (its locks, in softirqs and in tasks)",
		.threads = 4,
		.min_threads = 3,
		.setup = open_receiver,
		.worker = send_or_receive,
	};

	return workload_main(argc, argv, &udp_crowd);
}
