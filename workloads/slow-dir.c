/*
 * A chain of three locks whose times the program itself knows: A waits for B, who waits for C, who waits for D, who is slow.
 *
 * Two directories, one in the other, lie on a file system of this program's own (FUSE), whose mkdir() takes --hold-ns.
 *
 *   maker    mkdir() in the inner one    holds its i_rwsem until the server answers
 *   mover    rename() from outer to inner  holds the outer one's i_rwsem and waits for the inner one's
 *   lister   getdents() of the outer one   holds file.f_pos_lock and waits for the outer one's i_rwsem
 *   seeker   lseek()                       on the lister's open file: waits for file.f_pos_lock
 *   server   sees the mkdir → lets the mover go → sees it blocked → likewise the lister and the seeker → sleeps hold_ns → answers
 *
 * How long each lock was held while somebody slept for it is bounded on both sides, whatever else the machine does: from when
 * the waiter was seen blocked until just before the answer; and from when the waiter was let go until the holder's system call
 * returned. (There is nothing to rename, which is found out with both directories locked.)
 *
 * The server is a process of its own, and the only one that has the device open. So when it dies, in whatever way, the kernel
 * fails the others' calls instead of leaving them in the wait for an answer.
 */
#include <linux/fuse.h>
#include <sys/mount.h>
#include <sys/uio.h>

#include "workload.h"

enum { MAKER, MOVER, LISTER, SEEKER, ROLES };

/* The inner directory. */
#define INNER "inner"
#define INNER_ID (FUSE_ROOT_ID + 1)

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
static int device_fd, outer_fd, inner_fd;
static pid_t server;
static atomic_bool finished;
static uint64_t returned_ns[ROLES], rounds;

/* Of the lock that a role holds, summed over the rounds. */
static struct {
	uint64_t lower_ns, upper_ns;
} held[ROLES];

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

static void answer_entry(uint64_t unique, uint64_t node)
{
	struct fuse_entry_out entry = {.nodeid = node, .attr = directory_attributes(node)};

	answer(unique, 0, &entry, sizeof(entry));
}

static void serve_mkdir(uint64_t unique)
{
	static uint64_t node = INNER_ID;
	int role;

	for (role = MOVER; role < ROLES; role++)
		let_block(role);
	sleep_until_ns(now_ns() + workload_run->hold_ns);
	shared->answer_ns = now_ns();
	answer_entry(unique, ++node);
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
	case FUSE_LOOKUP: /* a name follows */
		if (request->nodeid == FUSE_ROOT_ID && !strcmp((const char *)(request + 1), INNER))
			answer_entry(request->unique, INNER_ID);
		else
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
	outer_fd = open(mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (outer_fd < 0)
		fail_errno(mount_point);
	inner_fd = openat(outer_fd, INNER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (inner_fd < 0)
		fail_errno(INNER);
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
	int holder;

	/* Each role waits for the one before it. */
	for (holder = MAKER; holder + 1 < ROLES; holder++) {
		held[holder].lower_ns += shared->answer_ns - shared->blocked_ns[holder + 1];
		held[holder].upper_ns += returned_ns[holder] - shared->let_go_ns[holder + 1];
	}
	rounds++;
}

static void make_directories(struct worker *self)
{
	char name[32];
	int role;

	for (role = MOVER; role < ROLES; role++)
		while (!shared->thread_id[role])
			sched_yield();
	while (workload_running()) {
		snprintf(name, sizeof(name), "%llu", (unsigned long long)self->ops++);
		if (mkdirat(inner_fd, name, 0700))
			fail_errno(name);
		returned_ns[MAKER] = now_ns();
		for (role = MOVER; role < ROLES; role++)
			wait_for_post(&shared->done[role]);
		add_up_round();
	}
	finished = true;
	for (role = MOVER; role < ROLES; role++)
		sem_post(&shared->go[role]);
}

static void take_turn(int role)
{
	char entries[4096];

	switch (role) {
	case MOVER:
		if (!renameat(outer_fd, "nothing", inner_fd, "nothing") || errno != ENOENT)
			fail_errno("renameat");
		break;
	case LISTER:
		if (syscall(SYS_getdents64, outer_fd, entries, sizeof(entries)) < 0)
			fail_errno("getdents64");
		break;
	default:
		lseek(outer_fd, 0, SEEK_CUR);
	}
}

static void wait_in_turn(struct worker *self)
{
	shared->thread_id[self->index] = (int)syscall(SYS_gettid);
	for (;;) {
		wait_for_post(&shared->go[self->index]);
		if (finished)
			return;
		take_turn((int)self->index);
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
	report_u64("inner_ns_lower", held[MAKER].lower_ns);
	report_u64("inner_ns_upper", held[MAKER].upper_ns);
	report_u64("outer_ns_lower", held[MOVER].lower_ns);
	report_u64("outer_ns_upper", held[MOVER].upper_ns);
	report_u64("position_ns_lower", held[LISTER].lower_ns);
	report_u64("position_ns_upper", held[LISTER].upper_ns);
}

int main(int argc, char **argv)
{
	static const struct workload slow_dir = {
		.name = "slow-dir",
		.about = "a chain of three locks: a file's position, for a directory, for another, for a slow file "
			 "system",
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
