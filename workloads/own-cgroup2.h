/*
 * The version 2 hierarchy of control groups, mounted in a mount namespace of this program's own.
 */
#ifndef OWN_CGROUP2_H
#define OWN_CGROUP2_H

#include <sys/mount.h>

#include "workload.h"

static char cgroup2_dir[PATH_MAX + 32];

static inline void mount_cgroup2(void)
{
	snprintf(cgroup2_dir, sizeof(cgroup2_dir), "%s/cgroup", workload_dir());
	if (mkdir(cgroup2_dir, 0700))
		fail_errno(cgroup2_dir);
	if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		not_possible_here("needs a mount namespace of its own: %s; run it as root", strerror(errno));
	if (mount("cgroup2", cgroup2_dir, "cgroup2", 0, NULL)) {
		cgroup2_dir[0] = '\0';
		not_possible_here("cannot mount cgroup2: %s", strerror(errno));
	}
}

static inline void unmount_cgroup2(void)
{
	if (cgroup2_dir[0])
		umount(cgroup2_dir);
}

#endif
