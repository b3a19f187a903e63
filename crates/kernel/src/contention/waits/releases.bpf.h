/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's.
 *
 * Of each lock the last releases are kept that woke a sampled waiter, for these have a stack. Locks are found by a hash; of two that fall on
 * one place, the last one released has it.
 */
#ifndef LOCKMETER_RELEASES_BPF_H
#define LOCKMETER_RELEASES_BPF_H

#include "../counting.bpf.h"

/* Powers of two. */
#define RELEASED_LOCKS 256
#define RELEASES 8

struct release {
	__u64 at_ns; /* 0: it is being written */
	__u64 lock;
	__u64 stack;
	__u32 tgid;
	__u32 unused;
	char comm[COMM_LENGTH];
};

/* The last releases of a lock, each in the place of its number. */
struct lock_releases {
	__u32 count;
	__u32 unused;
	struct release releases[RELEASES];
};

struct lock_releases lock_releases[RELEASED_LOCKS] __weak;

static __always_inline struct lock_releases *releases_of(__u64 lock)
{
	return &lock_releases[mix(lock) % RELEASED_LOCKS];
}

/* The lock that this task waits for was released, by whom the wait says. */
static __always_inline void note_release(const struct sleep_wait *sleep, __u64 now_ns)
{
	struct lock_releases *kept = releases_of(sleep->lock);
	__u32 number = __sync_fetch_and_add(&kept->count, 1);
	struct release *release = &kept->releases[number % RELEASES];

	*(volatile __u64 *)&release->at_ns = 0;
	release->lock = sleep->lock;
	release->stack = sleep->blocker;
	release->tgid = sleep->blocker_tgid;
	__builtin_memcpy(release->comm, sleep->blocker_comm, COMM_LENGTH);
	barrier();
	*(volatile __u64 *)&release->at_ns = now_ns;
}

int count_part_of_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site, __u64 part_ns);
int count_divided_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site);

#endif
