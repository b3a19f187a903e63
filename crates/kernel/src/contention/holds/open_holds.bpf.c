// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of keeping open holds that are not inline. Up to Linux 6.7 the verifier also looks at functions that nobody calls, so
 * those that use maps which exist only where holds are metered check for hooks themselves.
 */
#include "open_holds.bpf.h"

/* Puts a hold into the table. */
__noinline int put_into_table(const struct open_hold *hold, __u64 key, __u32 tid, __u64 now)
{
	if (hooked && hold)
		begin_hold(tag_of_key(key, tid), tick_of(hold) ? now : hold->begin_ns,
			   1 | (hold->begin_tick & WAS_CONTENDED ? HELD_CONTENDED : 0));
	return 0;
}

__noinline int put_away(struct open_holds *open, __u32 tid)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 depth;

	if (!open)
		return 0;
	depth = open->resumed == *(volatile __u32 *)&watched ? open->depth : 0;
	open->depth = 0;
	for (__u32 i = 0; i < OPEN_HOLDS; i++) {
		struct open_hold *hold = &open->holds[i];
		__u64 key = hold->key;

		hold->key = 0;
		if (i < depth && key)
			put_into_table(hold, key, tid, now);
	}
	return 0;
}

__noinline int take_from_table(__u64 key)
{
	struct held *held = hooked ? find_put_away(key) : 0;

	if (held)
		free_held(held);
	return 0;
}

__noinline int find_open(const struct open_holds *open, __u64 key)
{
	if (!open || open->resumed != *(volatile __u32 *)&watched)
		return -1;
	for (int i = 0; i < OPEN_HOLDS; i++)
		if (*(volatile __u64 *)&open->holds[i].key == key)
			return i;
	return -1;
}

__noinline int bring_to_top(struct open_holds *open, __u64 key)
{
	__u32 at = find_open(open, key), depth;
	struct open_hold found;

	if (!open || at >= OPEN_HOLDS)
		return 0;
	found = open->holds[at];
	depth = open->depth;
	for (__u32 i = 1; i < OPEN_HOLDS; i++)
		if (i > at && i < depth)
			open->holds[i - 1] = open->holds[i];
	open->holds[(depth - 1) % OPEN_HOLDS] = found;
	return 1;
}

__noinline int forget_open(struct open_holds *open, __u64 key)
{
	if (!hooked || !open || !bring_to_top(open, key))
		return 0;
	take_off(open, top_of(open), key);
	lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	return 0;
}

__noinline int keep_top(struct open_holds *open)
{
	__u32 depth;

	if (!hooked || !open)
		return 0;
	depth = open->depth;
	if (depth > 1)
		open->holds[0] = *top_of(open);
	open->depth = depth > 0;
	for (__u32 i = 1; i < OPEN_HOLDS; i++) {
		if (i < depth && open->holds[i].key)
			lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
		open->holds[i].key = 0;
	}
	return 0;
}

__noinline int close_elsewhere(__u64 key, struct ended_hold *ended)
{
	__u32 only = 0;

	if (!ended)
		return 0;
	for (__u32 i = 0; i < cpus; i++) {
		struct cpu_state *cpu = bpf_map_lookup_percpu_elem(&cpu_states, &only, i);
		__u32 at = cpu ? find_open(&cpu->open_holds[SLEEPING], key) : OPEN_HOLDS;
		struct open_hold *hold;

		if (!cpu || at >= OPEN_HOLDS)
			continue;
		hold = &cpu->open_holds[SLEEPING].holds[at];
		*ended = what_is_known(hold);
		ended->seen = __sync_val_compare_and_swap(&hold->key, key, 0) == key;
		return 0;
	}
	return 0;
}

__hidden __noinline void begin_timing(struct cpu_state *cpu, struct hold_group *group, struct open_hold *hold)
{
	__u32 stands_for = draw_gap(cpu, group);
	__u64 now;

	forget_held(hold->key);
	now = bpf_ktime_get_ns();
	adapt_group(group, now, HOOKED_HOLD_INTERVAL_NS);
	know_tick(now);
	hold->stands_for = stands_for;
	hold->timed_tick = hold->begin_tick;
	hold->begin_ns = now;
	hold->begin_tick = 0;
}
