/*
 * file.f_pos_lock: threads that read() through one open file description.
 *
 * read() and lseek() on a regular file take the lock that protects the shared offset (fdget_pos, called from ksys_read and
 * ksys_lseek) as soon as more than one thread could use it; read() holds it while it copies the data.
 *
 * With --rate, the workers meet that many times a second and then read at once, so that each time all but one of them find
 * the lock taken: with two workers, the rate of meetings is the rate of contentions.  Each worker then stays on a CPU of its
 * own; more workers than CPUs could not meet.
 */
#include "workload.h"

#define FILE_BYTES (1ul << 20)
#define READ_BYTES (16ul << 10)
/* Sleep, rather than spin, up to this long before a meeting: more than a timer's usual lateness. */
#define SPIN_BEFORE_NS (200 * NSEC_PER_USEC)

static int shared_fd = -1;

static void open_shared_file(void)
{
	char path[PATH_MAX + 32];
	char *data = calloc(1, FILE_BYTES);

	snprintf(path, sizeof(path), "%s/data", workload_dir());
	shared_fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (shared_fd < 0)
		fail_errno(path);
	/* Written, not just extended: a hole would be read faster than data. */
	if (!data || write(shared_fd, data, FILE_BYTES) != (ssize_t)FILE_BYTES)
		fail_errno(path);
	free(data);
}

static void stay_on_own_cpu(unsigned int index)
{
	cpu_set_t allowed, own;
	int cpu;

	if (sched_getaffinity(0, sizeof(allowed), &allowed))
		return;
	index %= (unsigned int)CPU_COUNT(&allowed);
	for (cpu = 0; !CPU_ISSET(cpu, &allowed) || index; cpu++)
		index -= CPU_ISSET(cpu, &allowed) ? 1 : 0;
	CPU_ZERO(&own);
	CPU_SET(cpu, &own);
	sched_setaffinity(0, sizeof(own), &own);
}

static void wait_until_ns(uint64_t instant_ns)
{
	if (now_ns() + SPIN_BEFORE_NS < instant_ns)
		sleep_until_ns(instant_ns - SPIN_BEFORE_NS);
	while (now_ns() < instant_ns && workload_running())
		;
}

/* Meeting number n is at n / rate seconds, or as soon after that as the last worker has come. */
static void meet(uint64_t meeting)
{
	static atomic_ullong first_ns, arrivals;
	uint64_t rate = workload_run->rate, all = (meeting + 1) * workload_run->threads;
	unsigned long long unset = 0;

	atomic_compare_exchange_strong(&first_ns, &unset, now_ns());
	/* In two steps: meeting × 10⁹ would overflow within hours. */
	wait_until_ns(first_ns + meeting / rate * NSEC_PER_SEC + meeting % rate * NSEC_PER_SEC / rate);
	atomic_fetch_add(&arrivals, 1);
	while (atomic_load(&arrivals) < all && workload_running())
		;
}

static void read_and_rewind(struct worker *self)
{
	char buffer[READ_BYTES];

	if (workload_run->rate)
		stay_on_own_cpu(self->index);
	while (workload_running()) {
		ssize_t got;

		if (workload_run->rate)
			meet(self->ops);
		got = read(shared_fd, buffer, sizeof(buffer));
		if (got < 0)
			fail_errno("read");
		if (got == 0)
			lseek(shared_fd, 0, SEEK_SET);
		self->ops++;
	}
}

int main(int argc, char **argv)
{
	static const struct workload file_pos = {
		.name = "file-pos",
		.about = "threads read through one open file description (file.f_pos_lock)",
		.threads = 4,
		.min_threads = 1,
		.accepts = WORKLOAD_DIR | WORKLOAD_RATE,
		.setup = open_shared_file,
		.worker = read_and_rewind,
	};

	return workload_main(argc, argv, &file_pos);
}
