/*
 * A chain of two locks whose times the program itself knows: A waits for B, who waits for C, who is slow.
 *
 * The directory lies on a file system of this program's own (FUSE), whose mkdir() takes --hold-ns.
 *
 *   maker    mkdir()      holds the directory's i_rwsem until the server answers
 *   lister   getdents()   holds file.f_pos_lock and waits for the i_rwsem
 *   seeker   lseek()      on the lister's open file: waits for file.f_pos_lock
 *   server   sees the mkdir → lets the lister go → sees it blocked → likewise the seeker → sleeps hold_ns → answers
 *
 * How long each lock was held while somebody slept for it is bounded on both sides, whatever else the machine does: from when
 * the waiter was seen blocked until just before the answer; and from when the waiter was let go until the holder's system call
 * returned.
 *
 * The server is a process of its own, and the only one that has the device open. So when it dies, in whatever way, the kernel
 * fails the others' calls instead of leaving them in the wait for an answer.
 */
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/uio.h>

#include "workload.h"

enum { MAKER, LISTER, SEEKER, ROLES };

/* How often the server looks whether a task is blocked. */
#define LOOK_AGAIN_NS (50 * NSEC_PER_USEC)

/* More than any request here has. */
#define REQUEST_BYTES (FUSE_MIN_READ_BUFFER + 4096)

/* Shared with the server. */
struct shared {
	atomic_int thread_id[ROLES];
	sem_t go[ROLES], done[ROLES], mounted;
	atomic_int error; /* of mounting */
	/* Of the round that goes on. */
	atomic_ullong let_go_ns[ROLES], blocked_ns[ROLES], answer_ns;
};

static struct shared *shared;
static char mount_point[PATH_MAX + 8];
static int device_fd, directory_fd;
static pid_t server;
static atomic_bool finished;
static uint64_t returned_ns[ROLES], rounds;
static uint64_t directory_lower_ns, directory_upper_ns, position_lower_ns, position_upper_ns;

/* The server's own failures: its exit closes the device, so everybody learns of them. */
static _Noreturn void give_up(const char *what)
{
	fprintf(stderr, "slow-dir: the file system's server: %s: %s\n", what, strerror(errno));
	_exit(EXIT_FAILURE);
}

static void answer(uint64_t unique, int error, const void *body, size_t bytes)
{
	struct fuse_out_header header = {.unique = unique, .error = -error, .len = (uint32_t)(sizeof(header) + bytes)};
	struct iovec parts[] = {{&header, sizeof(header)}, {(void *)body, bytes}};

	/* ENOENT: the request was given up meanwhile. */
	if (writev(device_fd, parts, 2) < 0 && errno != ENOENT)
		give_up("cannot answer");
}

/* Waiting for a lock a task is in state D; waiting for its turn, on a semaphore, it is in state S. */
static bool is_blocked(int thread_id)
{
	char path[64], status[512], *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", thread_id);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		give_up(path);
	length = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[length > 0 ? length : 0] = '\0';
	state = strrchr(status, ')');
	return state && state[1] == ' ' && state[2] == 'D';
}

static void let_block(int role)
{
	shared->let_go_ns[role] = now_ns();
	sem_post(&shared->go[role]);
	while (!is_blocked(shared->thread_id[role]))
		sleep_until_ns(now_ns() + LOOK_AGAIN_NS);
	shared->blocked_ns[role] = now_ns();
}

static struct fuse_attr directory_attributes(uint64_t node)
{
	return (struct fuse_attr){.ino = node, .mode = S_IFDIR | 0755, .nlink = 2, .blksize = 4096};
}

static void serve_mkdir(uint64_t unique)
{
	static uint64_t node = FUSE_ROOT_ID;
	struct fuse_entry_out entry = {.nodeid = ++node, .attr = directory_attributes(node)};

	let_block(LISTER);
	let_block(SEEKER);
	sleep_until_ns(now_ns() + workload_run->hold_ns);
	shared->answer_ns = now_ns();
	answer(unique, 0, &entry, sizeof(entry));
}

static void serve(const struct fuse_in_header *request)
{
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096, .time_gran = 1};
	struct fuse_attr_out attributes = {.attr = directory_attributes(request->nodeid)};
	struct fuse_open_out opened = {0};

	switch (request->opcode) {
	case FUSE_INIT:
		answer(request->unique, 0, &init, sizeof(init));
		break;
	case FUSE_GETATTR:
		answer(request->unique, 0, &attributes, sizeof(attributes));
		break;
	case FUSE_OPENDIR:
		answer(request->unique, 0, &opened, sizeof(opened));
		break;
	case FUSE_READDIR: /* empty */
	case FUSE_RELEASEDIR:
		answer(request->unique, 0, NULL, 0);
		break;
	case FUSE_LOOKUP:
		answer(request->unique, ENOENT, NULL, 0);
		break;
	case FUSE_MKDIR:
		serve_mkdir(request->unique);
		break;
	case FUSE_FORGET: /* these have no answer */
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		answer(request->unique, ENOSYS, NULL, 0);
	}
}

static _Noreturn void run_server(void)
{
	static _Alignas(struct fuse_in_header) char request[REQUEST_BYTES];
	char options[128];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != workload_run->main_pid)
		_exit(EXIT_FAILURE);
	device_fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device_fd);
	if (device_fd < 0 || mount("slow-dir", mount_point, "fuse", MS_NODEV | MS_NOSUID, options))
		shared->error = errno;
	sem_post(&shared->mounted);
	if (shared->error)
		_exit(EXIT_SUCCESS); /* the parent says it */
	for (;;) {
		if (read(device_fd, request, sizeof(request)) >= (ssize_t)sizeof(struct fuse_in_header))
			serve((const struct fuse_in_header *)request);
		else if (errno == ENODEV)
			_exit(EXIT_SUCCESS); /* unmounted */
		else if (errno != EINTR && errno != ENOENT)
			give_up("cannot read requests");
	}
}

static void share(void)
{
	int i;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		fail_errno("mmap");
	sem_init(&shared->mounted, 1, 0);
	for (i = 0; i < ROLES; i++) {
		sem_init(&shared->go[i], 1, 0);
		sem_init(&shared->done[i], 1, 0);
	}
}

static void prepare(void)
{
	share();
	snprintf(mount_point, sizeof(mount_point), "%s/slow", workload_dir());
	/* Nobody else sees the mount, and it is gone with the last of these processes. */
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		not_possible_here("needs a mount namespace: %s; run it as root", strerror(errno));
	if (mkdir(mount_point, 0700))
		fail_errno(mount_point);
	server = fork();
	if (server < 0)
		fail_errno("fork");
	if (!server)
		run_server();
	wait_for_post(&shared->mounted);
	if (shared->error)
		not_possible_here("needs FUSE: %s; load its module (modprobe fuse)", strerror(shared->error));
	directory_fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (directory_fd < 0)
		fail_errno(mount_point);
}

static void clean_up(void)
{
	if (server <= 0)
		return;
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	umount2(mount_point, MNT_DETACH);
}

static void add_up_round(void)
{
	directory_lower_ns += shared->answer_ns - shared->blocked_ns[LISTER];
	directory_upper_ns += returned_ns[MAKER] - shared->let_go_ns[LISTER];
	position_lower_ns += shared->answer_ns - shared->blocked_ns[SEEKER];
	position_upper_ns += returned_ns[LISTER] - shared->let_go_ns[SEEKER];
	rounds++;
}

static void make_directories(struct worker *self)
{
	char path[sizeof(mount_point) + 32];

	while (!shared->thread_id[LISTER] || !shared->thread_id[SEEKER])
		sched_yield();
	while (workload_running()) {
		snprintf(path, sizeof(path), "%s/%llu", mount_point, (unsigned long long)self->ops++);
		if (mkdir(path, 0700))
			fail_errno(path);
		returned_ns[MAKER] = now_ns();
		wait_for_post(&shared->done[LISTER]);
		wait_for_post(&shared->done[SEEKER]);
		add_up_round();
	}
	finished = true;
	sem_post(&shared->go[LISTER]);
	sem_post(&shared->go[SEEKER]);
}

static void wait_in_turn(struct worker *self)
{
	char entries[4096];

	shared->thread_id[self->index] = (int)syscall(SYS_gettid);
	for (;;) {
		wait_for_post(&shared->go[self->index]);
		if (finished)
			return;
		if (self->index == SEEKER)
			lseek(directory_fd, 0, SEEK_CUR);
		else if (syscall(SYS_getdents64, directory_fd, entries, sizeof(entries)) < 0)
			fail_errno("getdents64");
		returned_ns[self->index] = now_ns();
		self->ops++;
		sem_post(&shared->done[self->index]);
	}
}

static void play_role(struct worker *self)
{
	if (self->index == MAKER)
		make_directories(self);
	else if (self->index < ROLES)
		wait_in_turn(self);
}

static void report_bounds(void)
{
	report_u64("rounds", rounds);
	report_u64("directory_ns_lower", directory_lower_ns);
	report_u64("directory_ns_upper", directory_upper_ns);
	report_u64("position_ns_lower", position_lower_ns);
	report_u64("position_ns_upper", position_upper_ns);
}

int main(int argc, char **argv)
{
	static const struct workload slow_dir = {
		.name = "slow-dir",
		.about = "a chain of two locks: a file's position, for a directory, for a slow file system",
		.threads = ROLES,
		.min_threads = ROLES,
		.hold_ns = 50 * NSEC_PER_MSEC,
		.accepts = WORKLOAD_DIR | WORKLOAD_HOLD,
		.setup = prepare,
		.worker = play_role,
		.teardown = clean_up,
		.report = report_bounds,
	};

	return workload_main(argc, argv, &slow_dir);
}
