/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which holds are timed, of a lock that is taken too often to time them all.
 *
 * A CPU draws at an acquisition, by group of locks: all holds of a group that has few, one of so many of a group that has more,
 * at random. One that is drawn stands for as many as it was drawn from, so sums stay unbiased while that number changes. One that
 * is not has no clock read for it, and nothing written that another CPU writes, too: a mark in its CPU's own state says that it is
 * held, until its release counts it. So a release whose acquisition was not seen is still told from one of a hold that is not timed.
 */
#ifndef LOCKMETER_TIMED_HOLDS_BPF_H
#define LOCKMETER_TIMED_HOLDS_BPF_H

#include "holds.bpf.h"

/* Set by the loader: all are timed. */
const volatile __u8 every_hold = 0;

/* How many are drawn from is found anew after so many timed holds, or after as long as these shall take. */
#define TIMED_HOLDS_LOOK 256

#define MOST_STOOD_FOR 65535

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

static __always_inline __u32 place_of_mark(__u64 tag)
{
	return tag >> 32 & (UNTIMED_MARKS - 1);
}

static __noinline int forget_marks(struct cpu_state *cpu)
{
	__builtin_memset(cpu->untimed_marks, 0, sizeof(cpu->untimed_marks));
	cpu->marks_since = *(volatile __u32 *)&watched;
	return 0;
}

/* Two holds have one place: the older one goes where timed ones are. */
static __noinline int move_mark(__u64 older, __u64 tag)
{
	if (older == tag)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	else
		begin_hold(older, bpf_ktime_get_ns(), 0);
	return 0;
}

/* A hold begins that is not timed. */
static __always_inline void mark_untimed(struct cpu_state *cpu, __u64 tag)
{
	volatile __u64 *mark;
	__u64 older;

	if (cpu->marks_since != *(volatile __u32 *)&watched)
		forget_marks(cpu);
	mark = &cpu->untimed_marks[place_of_mark(tag)];
	older = *mark;
	*mark = tag;
	if (older)
		move_mark(older, tag);
}

/* Whether a hold that is not timed began on this CPU and has not ended. */
static __always_inline int is_marked(struct cpu_state *cpu, __u64 tag)
{
	return *(volatile __u64 *)&cpu->untimed_marks[place_of_mark(tag)] == tag &&
	       cpu->marks_since == *(volatile __u32 *)&watched;
}

/* Of a task that has changed its CPU since, or of another one than acquired the lock: whether its hold was marked. */
__noinline int take_mark_elsewhere(__u64 tag)
{
	__u32 key = 0;

	for (__u32 i = 0; i < cpus; i++) {
		struct cpu_state *cpu = bpf_map_lookup_percpu_elem(&cpu_states, &key, i);

		if (cpu && is_marked(cpu, tag))
			return __sync_val_compare_and_swap(&cpu->untimed_marks[place_of_mark(tag)], tag, 0) == tag;
	}
	return 0;
}

struct ended_hold {
	__u64 begin_ns;	  /* 0: its acquisition was not seen, or it was not timed */
	__u32 stands_for; /* 0: it was not timed */
	__u32 seen;
};

/* The lock is about to be released. */
static __always_inline struct ended_hold end_drawn_hold(struct cpu_state *cpu, __u64 tag)
{
	struct ended_hold ended = {.seen = 1};
	struct held *held;

	if (is_marked(cpu, tag)) {
		*(volatile __u64 *)&cpu->untimed_marks[place_of_mark(tag)] = 0;
		return ended;
	}
	held = find_held(tag);
	if (!held && take_mark_elsewhere(tag))
		return ended;
	if (held)
		ended.stands_for = held->stands_for;
	ended.begin_ns = end_hold_at(held);
	ended.seen = !!ended.begin_ns;
	return ended;
}

#endif
