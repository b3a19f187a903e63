/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The waits for locks that fall into a run. Metered only where long runs are listed, to say what made them long.
 */
#ifndef LOCKMETER_LATENCY_WAITS_BPF_H
#define LOCKMETER_LATENCY_WAITS_BPF_H

#include "state.bpf.h"

static __always_inline void forget_waits(struct lock_waits *waits)
{
	waits->lock = 0;
	waits->used = 0;
	waits->total_ns = 0;
	for (int i = 0; i < RUN_WAITS; i++)
		waits->waits[i].count = 0;
}

/* Locks beyond the last place are counted in the total alone. */
static __always_inline void add_wait(struct lock_waits *waits, __u64 class, __u32 kind_mode, __u64 wait_ns, __u32 count)
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
		}
		wait->total_ns += wait_ns;
		wait->count += count;
		waits->used = 1;
		return;
	}
}

/* What a called function waited for, its caller has waited for. */
static __always_inline void pass_on_waits(struct lock_waits *outer, const struct lock_waits *inner)
{
	if (!inner->used)
		return;
	for (int i = 0; i < RUN_WAITS; i++)
		if (inner->waits[i].count)
			add_wait(outer, inner->waits[i].class, inner->waits[i].kind_mode, inner->waits[i].total_ns,
				 inner->waits[i].count);
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

static __always_inline void end_wait(struct lock_waits *waits, __u64 lock)
{
	if (waits->lock != lock)
		return;
	waits->lock = 0;
	add_wait(waits, waits->class, waits->kind_mode, bpf_ktime_get_ns() - waits->begin_ns, 1);
}

#endif
