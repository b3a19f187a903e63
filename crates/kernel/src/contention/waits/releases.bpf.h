/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Divides a wait among those who had the lock meanwhile: from one release to the next, the lock was the next releaser's. And says whom
 * these waited for themselves: the root.
 *
 * Of each lock the last releases are kept that woke a sampled waiter, for these have a stack. Locks are found by a hash; of two that fall on
 * one place, the last one released has it.
 */
#ifndef LOCKMETER_RELEASES_BPF_H
#define LOCKMETER_RELEASES_BPF_H

#include "../counting.bpf.h"
#include "past_sleeps.bpf.h"

/* Powers of two. */
#define RELEASED_LOCKS 256
#define RELEASES 8

struct release {
	__u64 at_ns; /* 0: it is being written */
	__u64 lock;
	__u64 stack;
	__u32 tgid;
	__u32 state; /* what the releaser did while it had the lock and another one waited; 0: not known */
	char comm[COMM_LENGTH];
	/* What the releaser itself waited for last. */
	struct past_wait past_wait;
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

/* What the running task did for most of the time since then, as the threads' time says it; 0: it is not known. */
__u32 mostly_did(__u64 since_ns, __u64 now_ns);

/* The running task released the lock that another one waits for, whose wait says who that is. */
static __always_inline void note_release(const struct sleep_wait *sleep, __u64 now_ns)
{
	struct lock_releases *kept = releases_of(sleep->lock);
	__u32 number = __sync_fetch_and_add(&kept->count, 1);
	struct release *release = &kept->releases[number % RELEASES];
	const struct release *before = &kept->releases[(number - 1) % RELEASES];
	__u64 since_ns = sleep->begin_ns;
	struct sleeper *releaser;

	if (before->lock == sleep->lock && before->at_ns > since_ns)
		since_ns = before->at_ns;
	releaser = bpf_task_storage_get(&sleepers, bpf_get_current_task_btf(), 0, 0);
	/* While it waited for this lock itself it did not have it. */
	if (releaser) {
		const struct sleep_wait *last = &releaser->waits[releaser->depth % NESTED_SLEEPS];

		if (last->lock == sleep->lock && last->phase_begin_ns > since_ns)
			since_ns = last->phase_begin_ns;
	}
	*(volatile __u64 *)&release->at_ns = 0;
	release->lock = sleep->lock;
	release->stack = sleep->blocker;
	release->tgid = sleep->blocker_tgid;
	release->state = mostly_did(since_ns, now_ns);
	__builtin_memcpy(release->comm, sleep->blocker_comm, COMM_LENGTH);
	if (releaser)
		release->past_wait = releaser->past_wait;
	else
		release->past_wait.end_ns = 0;
	barrier();
	*(volatile __u64 *)&release->at_ns = now_ns;
}

/* As much shorter a wait does not take the place of another, until as much time has passed as that one took. */
#define MUCH_SHORTER 8

/* A wait follows another closely if this part of it is longer than what lies between them. */
#define CLOSELY 4

/*
 * A wait of a task has ended, most of which this was to blame for. Of the task's waits the one is kept that is the likeliest to explain why
 * others wait for it: the last one, unless it was much shorter. Waits that follow each other closely and have one root are kept as one: as
 * long as all together, and ended by the last. Whether another is much shorter than these, the last of them says: a row of many, each as
 * long as the next one that has another root, must not keep that one out.
 */
static __always_inline void keep_past_wait(struct past_wait *past, const struct wait *wait, const struct root *root)
{
	__u64 end_ns = wait->begin_ns + wait->total_ns, lasted_ns = past->last_ns;
	__u64 gap_ns = wait->begin_ns - past->end_ns;

	if (lasted_ns && wait->begin_ns >= past->end_ns && gap_ns < wait->total_ns / CLOSELY &&
	    past->root.class == root->class && past->root.stack == root->stack && past->lock == wait->instance) {
		past->begin_ns += gap_ns;
		past->end_ns = end_ns;
		past->last_ns = wait->total_ns;
		return;
	}
	if (lasted_ns / MUCH_SHORTER > wait->total_ns && past->end_ns + lasted_ns > end_ns)
		return;
	past->lock = wait->instance;
	past->begin_ns = wait->begin_ns;
	past->end_ns = end_ns;
	past->last_ns = wait->total_ns;
	past->root = *root;
}

int count_part_of_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site, __u64 part_ns);
int count_divided_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site);

#endif
