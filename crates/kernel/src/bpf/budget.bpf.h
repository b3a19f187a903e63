/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which waits get their stacks taken: the period that keeps them within their share of CPU time.
 */
#ifndef LOCKMETER_BUDGET_BPF_H
#define LOCKMETER_BUDGET_BPF_H

#include "core.h"
#include <bpf/bpf_helpers.h>

/* Set by the loader before the programs are loaded. */
const volatile __u32 cpus __weak = 1;
const volatile __u32 stack_budget_ppm __weak = 10000;
const volatile __u8 every_stack __weak = 0;

/* Period bounds: 1 s keeps period * 2^32 within 64 bits. */
#define PERIOD_MAX_NS (1ULL << 30)
#define PERIOD_START_NS 20000ULL
#define PERIOD_MIN_NS 64ULL
#define EPOCH_NS 20000000ULL

/* The budget, shared by all CPUs and touched only when a stack is taken or an epoch ends. */
__u64 period_ns __weak = PERIOD_START_NS;
__u64 longest_period_ns __weak = PERIOD_START_NS; /* since the last drain */
__u64 stack_spent_ns __weak = 0;
__u64 epoch_begin_ns __weak = 0;
__u64 epoch_spent_ns __weak = 0;

/* At the end of an epoch one CPU adapts the period to what stacks cost in it. */
static __always_inline void adapt_period(__u64 now)
{
	__u64 begin = *(volatile __u64 *)&epoch_begin_ns;
	__u64 spent, allowed, period;

	if (every_stack || now < begin + EPOCH_NS)
		return;
	if (__sync_val_compare_and_swap(&epoch_begin_ns, begin, now) != begin)
		return;
	if (!begin)
		return;
	spent = *(volatile __u64 *)&stack_spent_ns - epoch_spent_ns;
	epoch_spent_ns += spent;
	allowed = (now - begin) / 1000 * cpus * stack_budget_ppm / 1000;
	period = period_ns;
	if (spent > allowed)
		period = period * (spent > allowed * 8 ? 8 : 2) + PERIOD_MIN_NS;
	else if (spent * 4 > allowed * 3)
		; /* close enough */
	else if (spent * 4 < allowed)
		period = period / 2;
	else
		period -= period / 8;
	if (period < PERIOD_MIN_NS)
		period = 0;
	if (period > PERIOD_MAX_NS)
		period = PERIOD_MAX_NS;
	period_ns = period;
	if (period > longest_period_ns)
		longest_period_ns = period;
}

/* The upper half is what is random. `state` is used by no other CPU. */
static __always_inline __u64 next_random(__u64 *state)
{
	return *state = *state * 6364136223846793005ULL + 1442695040888963407ULL;
}

static __always_inline void draw(__u64 *random, __u64 *threshold_ns, __u64 *period)
{
	__u64 now_period = every_stack ? 0 : *(volatile __u64 *)&period_ns;

	*period = now_period;
	*threshold_ns = now_period * (next_random(random) >> 32) >> 32;
}

/* A burst may not spend more than four epochs' worth in one. */
static __always_inline int over_budget(void)
{
	__u64 allowed = EPOCH_NS / 1000 * cpus * stack_budget_ppm / 1000;

	return !every_stack && *(volatile __u64 *)&stack_spent_ns - *(volatile __u64 *)&epoch_spent_ns > 4 * allowed;
}

#endif
