/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the task that runs on a CPU holds of the locks that are hooked: a stack in the CPU's own state, for mostly the lock that was
 * acquired last is released first. No other CPU writes it, and a hold that is not timed is nothing but its key.
 *
 * A task that leaves its CPU has what it holds put into the table of all, where any CPU finds it, and timed from then on at the latest. So of holds
 * during which their task sleeps, or waits for a CPU, none is missed. Nor is one that lasts some ticks of the kernel's clock, whose
 * count is read as fast as any variable. Both stand for themselves alone, also if they were drawn: what a drawn one stands
 * for are holds that are as short.
 *
 * Locks that spin have a stack of their own, and are all timed: their holder does not leave its CPU, except that the lock of a run queue is
 * handed from task to task.
 */
#ifndef LOCKMETER_OPEN_HOLDS_BPF_H
#define LOCKMETER_OPEN_HOLDS_BPF_H

#include "timed_holds.bpf.h"

/* Set by the loader: there are hooks. */
const volatile __u8 hooked __weak = 0;

/* Of a group, one hold is timed in so much time. Mostly all groups are busy: locks of all kinds are hooked, and long holds are timed in any case. */
#define HOOKED_HOLD_INTERVAL_NS 4000000

/* A hold during which the clock ticked so often lasted for a whole tick at least. */
#define LONG_TICKS 2

/* In `begin_tick`: the acquisition had to wait. So it seems to have begun long ago, and is not taken for a short one. */
#define WAS_CONTENDED (1ULL << 63)

/* When the kernel's clock had ticked how often; set once. */
__u64 known_tick __weak = 0;
__u64 known_tick_ns __weak = 0;

/* Too few ticks do not tell how long one takes. */
#define KNOWN_TICKS 16

/* Locks lie at multiples of 4. */
#define MODE_OF_KEY 3

static __always_inline __u64 key_of_hold(__u64 lock, __u32 mode)
{
	return lock | mode;
}

static __always_inline __u64 tag_of_key(__u64 key, __u32 tid)
{
	return tag_of_hold(key & ~(__u64)MODE_OF_KEY, key & MODE_OF_KEY, tid);
}

/* In the table, of the task that runs here; of a lock that has one holder at a time, of any. */
static __always_inline struct held *find_put_away(__u64 key)
{
	return find_held(tag_of_key(key, bpf_get_current_task_btf()->pid));
}

/* This many ticks take at least this long. */
static __always_inline __u64 ns_of_ticks(__u64 ticks, __u64 tick, __u64 now)
{
	__u64 since = tick - *(volatile __u64 *)&known_tick;

	return since < KNOWN_TICKS ? 0 : ticks * ((now - *(volatile __u64 *)&known_tick_ns) / (since + 1));
}

static __always_inline void know_tick(__u64 now)
{
	if (!*(volatile __u64 *)&known_tick_ns && !__sync_val_compare_and_swap(&known_tick_ns, 0, now))
		*(volatile __u64 *)&known_tick = bpf_jiffies64();
}

/* 0: it is timed. */
static __always_inline __u64 tick_of(const struct open_hold *hold)
{
	return hold->begin_tick & ~WAS_CONTENDED;
}

/* Of a hold that ends on the CPU that it began on. */
static __always_inline struct ended_hold what_is_known(const struct open_hold *hold)
{
	struct ended_hold known = {.seen = 1, .contended = !!(hold->begin_tick & WAS_CONTENDED)};
	__u64 tick = bpf_jiffies64(), begin_tick = tick_of(hold), now, at_least_ns;

	if (!begin_tick) {
		known.begin_ns = hold->begin_ns;
		known.stands_for = (__u32)tick - hold->timed_tick >= LONG_TICKS ? 1 : hold->stands_for;
	} else if (tick - begin_tick >= LONG_TICKS) {
		now = bpf_ktime_get_ns();
		at_least_ns = ns_of_ticks(tick - begin_tick - 1, tick, now);
		known.begin_ns = at_least_ns ? now - at_least_ns : 0;
		known.stands_for = !!at_least_ns;
	}
	return known;
}

/*
 * What follows is in open_holds.bpf.c: the verifier looks at it once for all that call it.
 */

/* All that a CPU's task holds goes into the table. */
int put_away(struct open_holds *open, __u32 tid);

/* A hold of the task that runs here has ended, which lies in the table. */
int take_from_table(__u64 key);

/* Where it lies, from the bottom; negative if it is not among them. */
int find_open(const struct open_holds *open, __u64 key);

/* Not the top one: whether it is there. Then it is on top now. */
int bring_to_top(struct open_holds *open, __u64 key);

/* A lock that spins was acquired. If this CPU has it already, its release was not seen. */
int forget_open(struct open_holds *open, __u64 key);

/* A CPU changes its task: of locks that spin, only that of the run queue is held. The release of any other was not seen. */
int keep_top(struct open_holds *open);

/*
 * Of a lock that one task acquired and another one releases while the first is still on its CPU: whether its acquisition was seen, and
 * since when it was held, if that is known.
 */
int close_elsewhere(__u64 key, struct ended_hold *ended);

static __always_inline struct open_hold *top_of(struct open_holds *open)
{
	return &open->holds[(open->depth - 1) % OPEN_HOLDS];
}

/* A place that is free has no key. */
static __always_inline int is_on_top(const struct open_holds *open, const struct open_hold *top, __u64 key)
{
	return *(volatile __u64 *)&top->key == key && open->resumed == *(volatile __u32 *)&watched;
}

static __always_inline void take_off(struct open_holds *open, struct open_hold *top, __u64 key)
{
	__u32 depth = *(volatile __u32 *)&open->depth;

	/* The task was preempted since its hold was found here, which put it away. Left there, it would be a later one's begin. */
	if (!depth) {
		take_from_table(key);
		return;
	}
	*(volatile __u64 *)&top->key = 0;
	*(volatile __u32 *)&open->depth = depth - 1;
}

/* A lock was acquired, and nobody else can have it: if the table says so, its release was not seen. */
static __always_inline void forget_held(__u64 key)
{
	struct held *held = find_put_away(key);

	if (!held)
		return;
	if (held->resumed == *(volatile __u32 *)&watched)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	free_held(held);
}

__hidden void begin_timing(struct cpu_state *cpu, struct hold_group *group, struct open_hold *hold);

/* A lock was just acquired. */
static __always_inline void open_hold(struct cpu_state *cpu, __u32 stack, __u64 lock, __u64 key)
{
	struct hold_group *group = &cpu->hold_groups[lock * 0x9e3779b97f4a7c15ULL >> (64 - HOLD_GROUP_BITS)];
	struct open_holds *open = &cpu->open_holds[stack];
	struct open_hold *hold;
	__u64 tick = bpf_jiffies64();
	__u32 depth;

	if (stack == SPINNING && open->depth && (key & MODE_OF_KEY) != MODE_READ)
		forget_open(open, key);
	depth = open->depth;
	if (open->resumed != *(volatile __u32 *)&watched || depth >= OPEN_HOLDS) {
		put_away(open, bpf_get_current_task_btf()->pid);
		open->resumed = *(volatile __u32 *)&watched;
		depth = 0;
	}
	barrier_var(depth);
	hold = &open->holds[depth % OPEN_HOLDS];
	/* First of all: then what an interrupt opens lies above. */
	*(volatile __u32 *)&open->depth = depth + 1;
	*(volatile __u64 *)&hold->key = key;
	hold->begin_tick = tick;
	if (stack == SPINNING) {
		hold->begin_tick = 0;
		hold->timed_tick = tick;
		hold->stands_for = 1;
		hold->begin_ns = bpf_ktime_get_ns();
	} else if (!is_passed_over(group)) {
		begin_timing(cpu, group, hold);
	}
	if (was_waited_for(cpu, stack, lock))
		hold->begin_tick |= WAS_CONTENDED;
}

/* A lock is about to be released: whether its hold was one that is not timed, short, and had at once. */
static __always_inline int close_untimed(struct open_holds *open, __u64 key, __u64 tick)
{
	struct open_hold *top = top_of(open);

	if (!is_on_top(open, top, key) || tick - top->begin_tick >= LONG_TICKS)
		return 0;
	take_off(open, top, key);
	return 1;
}

/* The same of any other hold. */
static __always_inline struct ended_hold close_hold(struct open_holds *open, __u64 key, __u32 stack)
{
	__u32 tid = bpf_get_current_task_btf()->pid;
	struct ended_hold ended = {};
	struct open_hold *top;
	struct held *held;

	if (is_on_top(open, top_of(open), key) || bring_to_top(open, key)) {
		top = top_of(open);
		ended = what_is_known(top);
		take_off(open, top, key);
		return ended;
	}
	held = find_held(tag_of_key(key, tid));
	if (!held && stack == SLEEPING && (key & MODE_OF_KEY) != MODE_READ) {
		close_elsewhere(key, &ended);
		if (ended.seen)
			return ended;
	}
	ended.contended = held && held->stands_for & HELD_CONTENDED;
	ended.begin_ns = end_hold_at(held);
	ended.stands_for = 1;
	ended.seen = !!ended.begin_ns;
	return ended;
}

#endif
