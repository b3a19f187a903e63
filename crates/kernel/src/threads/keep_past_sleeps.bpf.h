/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Keeps the last sleeps of each thread, in case that it had a lock for which others waited: past_sleeps.h says which.
 */
#ifndef LOCKMETER_KEEP_PAST_SLEEPS_BPF_H
#define LOCKMETER_KEEP_PAST_SLEEPS_BPF_H

#include "past_sleeps.bpf.h"
#include "tables.h"

/* Shorter ones explain no wait that is worth a look. */
#define LEAST_SLEEP_NS 50000

/* Sleeps of one kind that follow each other sooner are taken together. */
#define LONGEST_GAP_NS 100000000

/* One that is no longer among the last. */
static __always_inline void keep_kind(struct past_sleeps *past, const struct past_sleep *sleep)
{
	struct past_sleep *oldest = &past->sleeps[LAST_SLEEPS];

#pragma clang loop unroll(full)
	for (int i = LAST_SLEEPS; i < PAST_SLEEPS; i++) {
		struct past_sleep *kind = &past->sleeps[i];

		if (kind->did == sleep->did && sleep->begin_ns - kind->end_ns < LONGEST_GAP_NS) {
			kind->end_ns = sleep->end_ns;
			kind->spent_ns += sleep->spent_ns;
			return;
		}
		if (kind->end_ns < oldest->end_ns)
			oldest = kind;
	}
	*oldest = *sleep;
}

/* The thread has not run for so long. */
static __always_inline void keep_sleep(struct task_struct *task, __u32 did, __u64 begin_ns, __u64 end_ns)
{
	struct past_sleeps *past;
	struct past_sleep *sleep;

	if (end_ns < begin_ns + LEAST_SLEEP_NS)
		return;
	past = bpf_task_storage_get(&past_sleeps, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!past)
		return;
	sleep = &past->sleeps[past->kept++ % LAST_SLEEPS];
	if (sleep->spent_ns)
		keep_kind(past, sleep);
	sleep->begin_ns = begin_ns;
	sleep->end_ns = end_ns;
	sleep->spent_ns = end_ns - begin_ns;
	sleep->did = did;
}

/* States of which the call tells more. */
#define TOLD_BY_CALL                                                                                                   \
	(1 << STATE_KERNEL_LOCK | 1 << STATE_FILE_LOCK | 1 << STATE_DISK_IO | 1 << STATE_NETWORK_OR_POLL |             \
	 1 << STATE_PIPE_OR_SOCKET | 1 << STATE_OTHER | 1 << STATE_RECLAIM)

/* What a thread in this state, and in this system call, did. */
static __always_inline __u32 did_of(__u32 state, __u32 call)
{
	if (state <= STATE_WOKEN)
		return STATE_RUNNABLE;
	return state |
	       (TOLD_BY_CALL >> (state & DID_STATE_MASK) & 1 && call < CALLS ? (call + 1) << DID_CALL_SHIFT : 0);
}

#endif
