// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of counting a hold that are not inline: the verifier would follow them on each path to them, in each of fifty hooks.
 */
#include "hold_counting.bpf.h"

__noinline int count_part(struct buffer *buffer, struct wait *part, __u32 happened, __u64 stack, __u64 weight)
{
	struct blame nobody = {.source = BLOCKER_NEVER_SLEPT};
	__u32 meta;

	if (!buffer || !part)
		return 0;
	meta = part->kind_mode | log2_of(part->total_ns) << 16 | happened << 24;
	count_total(buffer, part, meta, &part->who);
	if (weight)
		count_sample(buffer, part, meta, &part->who, &nobody, stack, weight, part->total_ns);
	return 0;
}

__noinline int count_contended(struct buffer *buffer, struct wait *hold, __u64 stack, __u32 stands_for)
{
	struct blame nobody = {.source = BLOCKER_NEVER_SLEPT};
	struct total_slot *slot;
	__u32 meta;

	if (!buffer || !hold)
		return 0;
	meta = hold->kind_mode | log2_of(hold->total_ns) << 16 | HAPPENED_CONTENDED_ACQUISITION << 24;
	slot = total_of(buffer, hold, meta, &hold->who);
	if (slot) {
		slot->count += stands_for;
		slot->total_ns += hold->total_ns * stands_for;
		if (hold->total_ns > slot->max_ns)
			slot->max_ns = hold->total_ns;
	}
	if (stack)
		count_sample(buffer, hold, meta, &hold->who, &nobody, stack, (__u64)stands_for << 10, hold->total_ns);
	return 0;
}

__noinline int count_stood_for(struct buffer *buffer, struct wait *hold, __u32 others)
{
	struct total_slot *slot;

	if (!buffer || !hold)
		return 0;
	slot = total_of(buffer, hold, hold->kind_mode | log2_of(hold->total_ns) << 16 | HAPPENED_STOOD_FOR << 24,
			&hold->who);
	if (slot) {
		slot->count += others;
		slot->total_ns += hold->total_ns * others;
		slot->spin_ns += (__u64)others * (others + 1);
	}
	return 0;
}
