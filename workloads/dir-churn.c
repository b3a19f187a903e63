/*
 * The i_rwsem of one directory: threads that create, rename and unlink files in it.
 *
 * Each of the three takes the directory's inode lock for writing (path_openat with O_CREAT, do_renameat2, do_unlinkat) and
 * holds it while the file system changes the directory.  Which struct the inode lies in depends on the file system of
 * --dir: ext4_inode_info, shmem_inode_info (tmpfs), ...
 */
#include "workload.h"

static void create_rename_unlink(struct worker *self)
{
	const char *dir = workload_run->temporary_dir;
	char name[PATH_MAX + 32], new_name[PATH_MAX + 32];

	snprintf(name, sizeof(name), "%s/%u", dir, self->index);
	snprintf(new_name, sizeof(new_name), "%s/%u.new", dir, self->index);
	while (workload_running()) {
		int fd = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);

		if (fd < 0)
			fail_errno(name);
		close(fd);
		if (rename(name, new_name) || unlink(new_name))
			fail_errno(new_name);
		self->ops++;
	}
}

static void make_dir(void)
{
	workload_dir();
}

int main(int argc, char **argv)
{
	static const struct workload dir_churn = {
		.name = "dir-churn",
		.about = "threads create, rename and unlink files in one directory (its inode's i_rwsem)",
		.threads = 8,
		.min_threads = 1,
		.accepts = WORKLOAD_DIR,
		.setup = make_dir,
		.worker = create_rename_unlink,
	};

	return workload_main(argc, argv, &dir_churn);
}
