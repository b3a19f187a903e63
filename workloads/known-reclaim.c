/*
 * mmap_lock behind reclaim: a thread maps memory and has all its pages at once, beyond the limit of its control group, which is full of
 * pages of a file that are not on the disk yet. So it reclaims memory with mmap_lock held, while another thread waits for that lock to
 * map a page.
 */
#include "own-cgroup2.h"

enum { POPULATER, MAPPER, ROLES };

#define LIMIT_BYTES (24 << 20)
#define FILE_BYTES (48 << 20)
#define POPULATED_BYTES (16 << 20)

/* Where the memory controller is, and the control group below. */
static char hierarchy[PATH_MAX + 32];
static char group[PATH_MAX + 64];
static char file_name[PATH_MAX + 32];
static int file;
static sem_t go, done;
static atomic_bool populates, finished;
static uint64_t rounds, map_ns;

static bool write_to(const char *folder, const char *name, const char *text)
{
	char path[PATH_MAX + 96];
	ssize_t written;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	written = write(fd, text, strlen(text));
	close(fd);
	return written >= 0;
}

static void leave_group(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	if (group[0] && write_to(hierarchy, "cgroup.procs", pid))
		rmdir(group);
	if (strcmp(hierarchy, cgroup2_dir))
		umount(hierarchy);
	unmount_cgroup2();
}

/* Returns the file that limits a group's memory: the controller belongs to one of the two versions of control groups. */
static const char *find_controller(void)
{
	mount_cgroup2();
	if (write_to(cgroup2_dir, "cgroup.subtree_control", "+memory")) {
		snprintf(hierarchy, sizeof(hierarchy), "%s", cgroup2_dir);
		return "memory.max";
	}
	snprintf(hierarchy, sizeof(hierarchy), "%s/memory", workload_dir());
	if (mkdir(hierarchy, 0700))
		fail_errno(hierarchy);
	if (mount("memory", hierarchy, "cgroup", 0, "memory"))
		not_possible_here("cannot mount the memory controller of control groups: %s", strerror(errno));
	return "memory.limit_in_bytes";
}

static void prepare(void)
{
	char pid[16], limit[16];
	const char *limiter = find_controller();

	snprintf(group, sizeof(group), "%s/lockmeter-%d", hierarchy, getpid());
	snprintf(pid, sizeof(pid), "%d", getpid());
	snprintf(limit, sizeof(limit), "%d", LIMIT_BYTES);
	if (mkdir(group, 0700)) {
		group[0] = '\0';
		not_possible_here("needs the memory controller at %s: %s", hierarchy, strerror(errno));
	}
	if (!write_to(group, limiter, limit) || !write_to(group, "cgroup.procs", pid))
		not_possible_here("cannot limit the memory of a control group: %s", strerror(errno));
	sem_init(&go, 0, 0);
	sem_init(&done, 0, 0);
	snprintf(file_name, sizeof(file_name), "%s/file", workload_dir());
	file = open(file_name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		fail_errno(file_name);
}

/* More of it than the group may have is on its way to the disk afterwards. */
static void fill_group(void)
{
	static char block[1 << 20];

	for (int at = 0; at < FILE_BYTES; at += sizeof(block))
		if (pwrite(file, block, sizeof(block), at) < 0)
			fail_errno(file_name);
}

static void populate(void)
{
	while (workload_running()) {
		void *memory;

		fill_group();
		populates = true;
		sem_post(&go);
		memory = mmap(NULL, POPULATED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
			      -1, 0);
		populates = false;
		if (memory == MAP_FAILED)
			fail_errno("mmap");
		munmap(memory, POPULATED_BYTES);
		wait_for_post(&done);
		rounds++;
	}
	finished = true;
	sem_post(&go);
}

static void map(void)
{
	for (;;) {
		wait_for_post(&go);
		if (finished)
			return;
		while (populates) {
			uint64_t begin_ns = now_ns();
			void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

			map_ns += now_ns() - begin_ns;
			munmap(page, 4096);
		}
		sem_post(&done);
	}
}

static void play_role(struct worker *self)
{
	if (self->index == POPULATER)
		populate();
	else
		map();
}

static void report_waits(void)
{
	report_u64("rounds", rounds);
	report_u64("map_ns", map_ns);
}

int main(int argc, char **argv)
{
	static const struct workload known_reclaim = {
		.name = "known-reclaim",
		.about = "waits for mmap_lock while its holder reclaims memory",
		.threads = ROLES,
		.min_threads = ROLES,
		.accepts = WORKLOAD_DIR,
		.setup = prepare,
		.worker = play_role,
		.report = report_waits,
		.teardown = leave_group,
	};

	return workload_main(argc, argv, &known_reclaim);
}
