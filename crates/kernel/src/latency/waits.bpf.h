/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The waits for locks that fall into a run. Metered only where long runs are listed, to say what made them long.
 */
#ifndef LOCKMETER_LATENCY_WAITS_BPF_H
#define LOCKMETER_LATENCY_WAITS_BPF_H

#include "state.bpf.h"

/* Word by word in a loop that stays one: at once it would not fit on the stack, through which it goes. */
static __always_inline void copy_words(__u64 *to, const __u64 *from, __u32 words)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < words; i++)
		*(volatile __u64 *)&to[i] = from[i];
}

static __always_inline void forget_waits(struct lock_waits *waits)
{
	waits->lock = 0;
	waits->used = 0;
	waits->total_ns = 0;
	for (int i = 0; i < RUN_WAITS; i++)
		waits->waits[i].count = 0;
}

/* The place of a lock among those that a run waited for. Locks beyond the last place are counted in the total alone. */
static __always_inline struct run_wait *add_wait(struct lock_waits *waits, __u64 class, __u32 kind_mode, __u64 wait_ns,
						 __u32 count)
{
	waits->total_ns += wait_ns;
	for (int i = 0; i < RUN_WAITS; i++) {
		struct run_wait *wait = &waits->waits[i];

		if (wait->count && (wait->class != class || wait->kind_mode != kind_mode))
			continue;
		if (!wait->count) {
			wait->class = class;
			wait->kind_mode = kind_mode;
			wait->total_ns = 0;
			wait->max_ns = 0;
			wait->frames[0] = 0;
		}
		wait->total_ns += wait_ns;
		wait->count += count;
		waits->used = 1;
		return wait;
	}
	return 0;
}

/* What a called function waited for, its caller has waited for. */
static __noinline int pass_on_waits(struct lock_waits *outer, struct lock_waits *inner)
{
	if (!outer || !inner)
		return 0;
	for (int i = 0; i < RUN_WAITS; i++) {
		struct run_wait *from = &inner->waits[i], *to;

		if (!from->count)
			continue;
		to = add_wait(outer, from->class, from->kind_mode, from->total_ns, from->count);
		if (to && from->max_ns > to->max_ns) {
			to->max_ns = from->max_ns;
			copy_words(to->frames, from->frames, WAIT_FRAMES);
		}
	}
	return 0;
}

static __always_inline void begin_wait(struct lock_waits *waits, __u64 lock, __u64 class, __u32 kind_mode)
{
	/* A mutex begins twice in one wait: spinning, then asleep. */
	if (waits->lock == lock)
		return;
	waits->class = class;
	waits->kind_mode = kind_mode;
	waits->begin_ns = bpf_ktime_get_ns();
	waits->lock = lock;
}

/* A stack takes some 2 us, so only a lock that cost a part of the threshold worth naming gets one. */
#define PART_WITH_STACK 8

static __always_inline void end_wait(void *ctx, struct lock_waits *waits, __u64 lock)
{
	struct run_wait *wait;
	__u64 wait_ns;

	if (waits->lock != lock)
		return;
	waits->lock = 0;
	wait_ns = bpf_ktime_get_ns() - waits->begin_ns;
	wait = add_wait(waits, waits->class, waits->kind_mode, wait_ns, 1);
	if (!wait || wait->total_ns < threshold_ns / PART_WITH_STACK)
		return;
	if (wait->frames[0] && wait_ns <= wait->max_ns)
		return;
	wait->max_ns = wait_ns;
	__builtin_memset(wait->frames, 0, sizeof(wait->frames));
	if (bpf_get_stack(ctx, wait->frames, sizeof(wait->frames), 0) <= 0)
		wait->frames[0] = 0;
}

#endif
