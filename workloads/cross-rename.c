/*
 * The rename mutex of a file system: threads that move files from one directory to another and back.
 *
 * Such a rename takes super_block.s_vfs_rename_mutex (lock_rename) before the locks of the two directories. Each thread has a file of
 * its own; the directories are everybody's.
 */
#include "workload.h"

static void directory(char *path, size_t bytes, const char *which)
{
	snprintf(path, bytes, "%s/%s", workload_run->temporary_dir, which);
}

static void move_there_and_back(struct worker *self)
{
	char here[PATH_MAX + 8], there[PATH_MAX + 8], from[PATH_MAX + 32], to[PATH_MAX + 32];
	int fd;

	directory(here, sizeof(here), "here");
	directory(there, sizeof(there), "there");
	snprintf(from, sizeof(from), "%s/%u", here, self->index);
	snprintf(to, sizeof(to), "%s/%u", there, self->index);
	fd = open(from, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
	if (fd < 0)
		fail_errno(from);
	close(fd);
	while (workload_running()) {
		if (rename(from, to) || rename(to, from))
			fail_errno(from);
		self->ops++;
	}
}

static void make_directories(void)
{
	char path[PATH_MAX + 8];

	workload_dir();
	for (int i = 0; i < 2; i++) {
		directory(path, sizeof(path), i ? "there" : "here");
		if (mkdir(path, 0700))
			fail_errno(path);
	}
}

int main(int argc, char **argv)
{
	static const struct workload cross_rename = {
		.name = "cross-rename",
		.about = "threads move files between two directories (the file system's s_vfs_rename_mutex)",
		.threads = 4,
		.min_threads = 2,
		.accepts = WORKLOAD_DIR,
		.setup = make_directories,
		.worker = move_there_and_back,
	};

	return workload_main(argc, argv, &cross_rename);
}
