/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which holds are timed, of a lock that is taken too often to time them all.
 *
 * A CPU draws at an acquisition, by group of locks: all holds of a group that has few, one in many of a group that has more,
 * at random. One that is drawn stands for as many as it was drawn from, so sums stay unbiased while that number changes. One that
 * is not has no clock read for it, and nothing written that another CPU writes, too.
 */
#ifndef LOCKMETER_TIMED_HOLDS_BPF_H
#define LOCKMETER_TIMED_HOLDS_BPF_H

#include "held_locks.bpf.h"

/* Set by the loader: all are timed. */
const volatile __u8 every_hold __weak = 0;

/* How many are drawn from is found anew after this many timed holds, or after as long as these shall take. */
#define TIMED_HOLDS_LOOK 256

/* HELD_CONTENDED has a place beside it. */
#define MOST_STOOD_FOR (HELD_CONTENDED - 1)

/* A process that seldom holds its lock, and long, is not to be missed because another one storms its own; nor are writers among readers. */
static __always_inline struct hold_group *group_of(struct cpu_state *cpu, __u64 lock, __u32 mode)
{
	return &cpu->hold_groups[(mix(lock) >> 40 ^ mode) & (HOLD_GROUPS - 1)];
}

/* A hold begins: whether it is not to be timed. */
static __always_inline int is_passed_over(struct hold_group *group)
{
	__u32 to_go = group->to_go;

	if (!to_go)
		return 0;
	group->to_go = to_go - 1;
	return 1;
}

/* A hold begins that is timed: how many it stands for. How many follow that are not is random, or a load that repeats itself would be seen in part. */
static __always_inline __u32 draw_gap(struct cpu_state *cpu, struct hold_group *group)
{
	__u32 one_in = group->one_in;

	if (one_in <= 1 || every_hold)
		return 1;
	group->to_go = (next_random(&cpu->random_of_holds) >> 32) * (2 * one_in - 1) >> 32;
	return one_in;
}

/* A hold of the group begins that is timed, of which there shall be one in so much time. */
static __always_inline void adapt_group(struct hold_group *group, __u64 now, __u64 interval_ns)
{
	__u64 elapsed = now - group->since_ns, one_in;

	if (++group->timed < TIMED_HOLDS_LOOK && elapsed < TIMED_HOLDS_LOOK * interval_ns)
		return;
	one_in = group->one_in > 1 ? group->one_in : 1;
	one_in = group->timed * one_in * interval_ns / (elapsed | 1);
	group->one_in = one_in < MOST_STOOD_FOR ? one_in : MOST_STOOD_FOR;
	group->timed = 0;
	group->since_ns = now;
}

struct ended_hold {
	__u64 begin_ns;	  /* 0: its acquisition was not seen, or it was not timed */
	__u32 stands_for; /* 0: it was not timed */
	__u32 seen;
	__u32 contended;
};

#endif
