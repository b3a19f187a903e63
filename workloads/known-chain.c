/*
 * A chain of two locks whose root is known: the one that waits for the first lock waits in truth for the one that has the second.
 *
 *   reader     lists a directory into a page that is not there: it sleeps with the directory's i_rwsem held, shared
 *   creator    creates a file there: it waits for i_rwsem, and lets no more readers in
 *   lister     lists the directory by another open file: it has that file's f_pos_lock and waits for i_rwsem
 *   seeker     lseek()s in the lister's open file: it waits for f_pos_lock, which the lister keeps because of the reader
 *   conductor  sees them blocked one after another, sleeps hold_ns, and supplies the page
 */
#include <dirent.h>

#include "absent-page.h"
#include "workload.h"

enum { CONDUCTOR, READER, CREATOR, LISTER, SEEKER, ROLES };

/* How often the conductor looks whether a thread is blocked. */
#define LOOK_AGAIN_NS (50 * NSEC_PER_USEC)

static int reader_fd, lister_fd;
static char created[PATH_MAX + 32];
static sem_t go[ROLES], done;
static atomic_int thread_ids[ROLES];
static atomic_bool finished;
static uint64_t rounds, seek_ns;

static int open_directory(void)
{
	int fd = open(workload_dir(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		fail_errno(workload_dir());
	return fd;
}

static void prepare(void)
{
	int role;

	for (role = 0; role < ROLES; role++)
		sem_init(&go[role], 0, 0);
	sem_init(&done, 0, 0);
	snprintf(created, sizeof(created), "%s/created", workload_dir());
	reader_fd = open_directory();
	lister_fd = open_directory();
	register_absent_page();
}

static void list(int fd, char *into)
{
	lseek(fd, 0, SEEK_SET);
	if (syscall(SYS_getdents64, fd, into, page_bytes) < 0)
		fail_errno("getdents64");
}

static void create(void)
{
	int fd = open(created, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

	if (fd < 0)
		fail_errno(created);
	close(fd);
	unlink(created);
}

static void seek(void)
{
	uint64_t begin_ns = now_ns();

	lseek(lister_fd, 0, SEEK_CUR);
	seek_ns += now_ns() - begin_ns;
}

static void play(struct worker *self)
{
	char page[4096];

	thread_ids[self->index] = (int)syscall(SYS_gettid);
	for (;;) {
		wait_for_post(&go[self->index]);
		if (finished)
			return;
		switch (self->index) {
		case READER:
			list(reader_fd, absent_page);
			break;
		case CREATOR:
			create();
			break;
		case LISTER:
			list(lister_fd, page);
			break;
		default:
			seek();
		}
		self->ops++;
		sem_post(&done);
	}
}

/* In a wait for a lock of these a task is in state D. */
static bool is_blocked(int role)
{
	char path[64], status[512], *state;
	ssize_t length;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", thread_ids[role]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		not_possible_here("needs /proc: mount it first");
	length = read(fd, status, sizeof(status) - 1);
	close(fd);
	status[length > 0 ? length : 0] = '\0';
	state = strrchr(status, ')');
	return state && state[1] == ' ' && state[2] == 'D';
}

static void conduct_round(void)
{
	int role;

	sem_post(&go[READER]);
	wait_for_fault();
	for (role = CREATOR; role < ROLES; role++) {
		sem_post(&go[role]);
		while (!is_blocked(role))
			sleep_until_ns(now_ns() + LOOK_AGAIN_NS);
	}
	sleep_until_ns(now_ns() + workload_run->hold_ns);
	supply_page();
	for (role = READER; role < ROLES; role++)
		wait_for_post(&done);
	remove_page();
	rounds++;
}

static void conduct(void)
{
	int role;

	for (role = READER; role < ROLES; role++)
		while (!thread_ids[role])
			sched_yield();
	while (workload_running())
		conduct_round();
	finished = true;
	for (role = READER; role < ROLES; role++)
		sem_post(&go[role]);
}

static void play_role(struct worker *self)
{
	if (self->index == CONDUCTOR)
		conduct();
	else
		play(self);
}

static void report_waits(void)
{
	report_u64("rounds", rounds);
	report_u64("seek_ns", seek_ns);
}

int main(int argc, char **argv)
{
	static const struct workload known_chain = {
		.name = "known-chain",
		.about = "a chain of two locks whose root it knows (file.f_pos_lock behind inode.i_rwsem)",
		.threads = ROLES,
		.min_threads = ROLES,
		.hold_ns = 20 * NSEC_PER_MSEC,
		.accepts = WORKLOAD_DIR | WORKLOAD_HOLD,
		.setup = prepare,
		.worker = play_role,
		.report = report_waits,
	};

	return workload_main(argc, argv, &known_chain);
}
