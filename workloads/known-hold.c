/*
 * Locks held for a time that the program itself knows, though nobody waits for them.
 *
 * The holder enters a system call that takes a lock and then touches a page that is registered with userfaultfd and not
 * there: it sleeps with the lock held until the conductor, hold_ns after it saw the fault, supplies the page.
 *
 *   file_position     read()       file.f_pos_lock, a mutex           ksys_read
 *   inode_written     pwrite()     the file's i_rwsem for writing     generic_file_write_iter, or the file system's own
 *   directory_read    getdents64() the directory's i_rwsem for reading    iterate_dir
 *
 * Each of these is bounded on both sides, whatever else the machine does: the hold is longer than from the fault to the page,
 * and shorter than the call. Two holds of mmap_lock are about as long as the call that takes them, for it does hardly anything
 * else:
 *
 *   populate_ns       mmap(MAP_POPULATE)   for reading
 *   munmap_ns         munmap()             for writing first, then downgraded, for reading
 */
#include "absent-page.h"
#include "workload.h"

enum { CONDUCTOR, HOLDER, ROLES };

enum held { FILE_POSITION, INODE_WRITTEN, DIRECTORY_READ, HELD };

/* Small pages, so that it takes a while. */
#define POPULATED_BYTES (16ul << 20)

static const char *const held_lower[HELD] = {"file_position_ns_lower", "inode_written_ns_lower",
					     "directory_read_ns_lower"};
static const char *const held_upper[HELD] = {"file_position_ns_upper", "inode_written_ns_upper",
					     "directory_read_ns_upper"};

static int file_fd, directory_fd;
static sem_t holder_go, holder_done;
static atomic_int to_hold; /* of enum held; HELD: nothing more */
static uint64_t rounds, lower_ns[HELD], upper_ns[HELD], populate_ns, munmap_ns;

static void open_files(void)
{
	char path[PATH_MAX + 32];

	directory_fd = open(workload_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory_fd < 0)
		fail_errno(workload_dir());
	snprintf(path, sizeof(path), "%s/byte", workload_dir());
	file_fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
	if (file_fd < 0 || write(file_fd, "x", 1) != 1)
		fail_errno(path);
}

static void prepare(void)
{
	sem_init(&holder_go, 0, 0);
	sem_init(&holder_done, 0, 0);
	open_files();
	register_absent_page();
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
}

/* One system call that sleeps in the middle of its hold. */
static void hold(enum held held)
{
	long done = -1;

	if (held == FILE_POSITION)
		done = read(file_fd, absent_page, 1);
	else if (held == INODE_WRITTEN)
		done = pwrite(file_fd, absent_page, 1, 0);
	else if (held == DIRECTORY_READ)
		done = syscall(SYS_getdents64, directory_fd, absent_page, page_bytes);
	if (done <= 0)
		fail_errno(held_lower[held]);
}

static void hold_mmap_lock(void)
{
	uint64_t begin_ns = now_ns(), populated_ns;
	void *memory =
		mmap(NULL, POPULATED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		fail_errno("mmap");
	populated_ns = now_ns();
	munmap(memory, POPULATED_BYTES);
	munmap_ns += now_ns() - populated_ns;
	populate_ns += populated_ns - begin_ns;
}

static void play_holder(void)
{
	for (;;) {
		uint64_t begin_ns;
		enum held held;

		wait_for_post(&holder_go);
		held = (enum held)to_hold;
		if (held == HELD)
			return;
		lseek(file_fd, 0, SEEK_SET);
		lseek(directory_fd, 0, SEEK_SET);
		begin_ns = now_ns();
		hold(held);
		upper_ns[held] += now_ns() - begin_ns;
		sem_post(&holder_done);
	}
}

static void conduct_hold(enum held held)
{
	uint64_t seen_ns;

	to_hold = (int)held;
	sem_post(&holder_go);
	wait_for_fault();
	seen_ns = now_ns();
	sleep_until_ns(seen_ns + workload_run->hold_ns);
	lower_ns[held] += now_ns() - seen_ns;
	supply_page();
	wait_for_post(&holder_done);
	remove_page();
}

static void conduct(void)
{
	while (workload_running()) {
		for (int held = 0; held < HELD; held++)
			conduct_hold((enum held)held);
		hold_mmap_lock();
		rounds++;
	}
	to_hold = HELD;
	sem_post(&holder_go);
}

static void play_role(struct worker *self)
{
	if (self->index == CONDUCTOR)
		conduct();
	else if (self->index == HOLDER)
		play_holder();
	self->ops = rounds;
}

static void report_bounds(void)
{
	report_u64("rounds", rounds);
	for (int held = 0; held < HELD; held++) {
		report_u64(held_lower[held], lower_ns[held]);
		report_u64(held_upper[held], upper_ns[held]);
	}
	report_u64("populate_ns", populate_ns);
	report_u64("munmap_ns", munmap_ns);
}

int main(int argc, char **argv)
{
	static const struct workload known_hold = {
		.name = "known-hold",
		.about = "locks held for a time that it knows (file.f_pos_lock, i_rwsem, mmap_lock), without waiters",
		.threads = ROLES,
		.min_threads = ROLES,
		.hold_ns = 50 * NSEC_PER_MSEC,
		.accepts = WORKLOAD_DIR | WORKLOAD_HOLD,
		.setup = prepare,
		.worker = play_role,
		.report = report_bounds,
	};

	return workload_main(argc, argv, &known_hold);
}
