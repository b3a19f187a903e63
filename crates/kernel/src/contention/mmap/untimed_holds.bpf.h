/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds of mmap_lock that are not timed: a mark in its CPU's own state says that it is held, until its release counts it. So a
 * release whose acquisition was not seen is still told from one of a hold that is not timed.
 *
 * Long ones are not left to chance. A mark says when its CPU last read the clock before. If the kernel's clock has not ticked since, and
 * nobody has read it, the hold was shorter than a tick. Else the clock is read, and a hold of a tick or more stands for itself alone,
 * from that reading on. So does one that was drawn: what a drawn one stands for are shorter ones. The clock is read for timed holds, and
 * once a tick: where holds are left untimed, the reading before a hold is mostly less than MMAP_HOLD_INTERVAL_NS old.
 */
#ifndef LOCKMETER_UNTIMED_HOLDS_BPF_H
#define LOCKMETER_UNTIMED_HOLDS_BPF_H

#include "../holds/timed_holds.bpf.h"

/* Set by the loader: how often the kernel's clock ticks. */
const volatile __u64 tick_ns __weak = 10000000;

static __always_inline __u64 read_clock(struct cpu_state *cpu, __u64 tick)
{
	cpu->clock_tick = tick;
	return cpu->clock_ns = bpf_ktime_get_ns();
}

static __always_inline __u32 place_of_mark(__u64 tag)
{
	return tag >> 32 & (UNTIMED_MARKS - 1);
}

__hidden void forget_marks(struct cpu_state *cpu);

/* Two holds have one place: the older one goes where timed ones are. */
__hidden void move_mark(__u64 older, __u64 tag, __u64 after_ns);

/* A hold begins that is not timed. */
static __always_inline void mark_untimed(struct cpu_state *cpu, __u64 tag)
{
	__u32 place = place_of_mark(tag);
	__u64 older, tick = bpf_jiffies64();

	if (cpu->marks_since != *(volatile __u32 *)&watched)
		forget_marks(cpu);
	if (tick != cpu->clock_tick)
		read_clock(cpu, tick);
	older = *(volatile __u64 *)&cpu->untimed_marks[place];
	if (older)
		move_mark(older, tag, cpu->marked_after_ns[place]);
	*(volatile __u64 *)&cpu->marked_after_ns[place] = cpu->clock_ns;
	*(volatile __u64 *)&cpu->untimed_marks[place] = tag;
}

/* Whether a hold that is not timed began on this CPU and has not ended. */
static __always_inline int is_marked(struct cpu_state *cpu, __u64 tag)
{
	return *(volatile __u64 *)&cpu->untimed_marks[place_of_mark(tag)] == tag &&
	       cpu->marks_since == *(volatile __u32 *)&watched;
}

/* Of a task that has changed its CPU since, or of another one than acquired the lock: after which reading its hold was marked; 0: it was not. */
__u64 take_mark_elsewhere(__u64 tag);

/* The lock is about to be released. `now`: the clock, if it had to be read. */
static __always_inline struct ended_hold end_drawn_hold(struct cpu_state *cpu, __u64 tag, __u64 *now)
{
	__u64 tick = bpf_jiffies64();
	struct ended_hold ended = {.seen = 1};
	struct held *held;

	if (is_marked(cpu, tag)) {
		ended.begin_ns = *(volatile __u64 *)&cpu->marked_after_ns[place_of_mark(tag)];
		*(volatile __u64 *)&cpu->untimed_marks[place_of_mark(tag)] = 0;
		if (tick == cpu->clock_tick && ended.begin_ns == cpu->clock_ns)
			return ended;
	} else {
		held = find_held(tag);
		if (held) {
			ended.stands_for = held->stands_for & ~HELD_CONTENDED;
			ended.contended = held->stands_for & HELD_CONTENDED;
		}
		ended.begin_ns = held ? end_hold_at(held) : take_mark_elsewhere(tag);
		ended.seen = !!ended.begin_ns;
	}
	if (!ended.seen)
		return ended;
	*now = read_clock(cpu, tick);
	if (*now - ended.begin_ns >= tick_ns)
		ended.stands_for = 1;
	return ended;
}

#endif
