/*
 * Nobody waits for a lock: pairs of threads on one CPU send a datagram to and fro over the loopback network.  A round trip is a
 * softirq, a wake-up and a context switch each way, and takes no lock that sleeps.
 */
#include <netinet/in.h>
#include <sys/socket.h>

#include "workload.h"

#define DATAGRAM_BYTES 64

static int sockets[WORKLOAD_MAX_THREADS];

static struct sockaddr_in own_address(int socket)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);

	if (getsockname(socket, (struct sockaddr *)&address, &length))
		fail_errno("getsockname");
	return address;
}

static void connect_pairs(void)
{
	struct sockaddr_in any_port = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	unsigned int i;

	if (workload_run->threads % 2)
		bad_arguments("--threads takes an even number, for each thread has another one to answer it");
	for (i = 0; i < workload_run->threads; i++) {
		sockets[i] = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		if (sockets[i] < 0 || bind(sockets[i], (struct sockaddr *)&any_port, sizeof(any_port)))
			fail_errno("cannot have a port of the loopback device");
	}
	for (i = 0; i < workload_run->threads; i++) {
		struct sockaddr_in other = own_address(sockets[i ^ 1]);

		if (connect(sockets[i], (struct sockaddr *)&other, sizeof(other)))
			fail_errno("cannot reach a port of the loopback device");
	}
}

static void stay_on_first_cpu(void)
{
	cpu_set_t allowed, first;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	sched_setaffinity(0, sizeof(first), &first);
}

/* The first of a pair serves; then both return what comes.  The one that serves counts the round trips. */
static void send_to_and_fro(struct worker *self)
{
	char datagram[DATAGRAM_BYTES] = {0};
	bool serves = self->index % 2 == 0;
	int socket = sockets[self->index];

	stay_on_first_cpu();
	if (serves && send(socket, datagram, sizeof(datagram), 0) < 0)
		fail_errno("send");
	while (workload_running()) {
		if (recv(socket, datagram, sizeof(datagram), 0) < 0) {
			if (errno == EINTR)
				continue;
			fail_errno("recv");
		}
		self->ops += serves;
		if (send(socket, datagram, sizeof(datagram), 0) < 0 && errno != EINTR)
			fail_errno("send");
	}
}

int main(int argc, char **argv)
{
	static const struct workload ping_pong = {
		.name = "ping-pong",
		.about = "pairs of threads on one CPU send a datagram to and fro over the loopback network",
		.threads = 2,
		.min_threads = 2,
		.setup = connect_pairs,
		.worker = send_to_and_fro,
	};

	return workload_main(argc, argv, &ping_pong);
}
