/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds of mmap_lock that are not timed: a mark in its CPU's own state says that it is held, until its release counts it. So a
 * release whose acquisition was not seen is still told from one of a hold that is not timed.
 */
#ifndef LOCKMETER_UNTIMED_HOLDS_BPF_H
#define LOCKMETER_UNTIMED_HOLDS_BPF_H

#include "../holds/timed_holds.bpf.h"

static __always_inline __u32 place_of_mark(__u64 tag)
{
	return tag >> 32 & (UNTIMED_MARKS - 1);
}

__hidden void forget_marks(struct cpu_state *cpu);

/* Two holds have one place: the older one goes where timed ones are. */
__hidden void move_mark(__u64 older, __u64 tag);

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
int take_mark_elsewhere(__u64 tag);

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
	if (held) {
		ended.stands_for = held->stands_for & ~HELD_CONTENDED;
		ended.contended = held->stands_for & HELD_CONTENDED;
	}
	ended.begin_ns = end_hold_at(held);
	ended.seen = !!ended.begin_ns;
	return ended;
}

#endif
