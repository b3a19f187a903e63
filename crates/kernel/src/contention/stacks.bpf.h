/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Taking a stack and keeping it once.
 */
#ifndef LOCKMETER_STACKS_BPF_H
#define LOCKMETER_STACKS_BPF_H

#include "state.bpf.h"

/* The kernel clears what is left of `frames` beyond `depth`, so no loop here depends on it. */
static __always_inline __u64 store_stack(const __u64 *frames, __u32 depth, struct buffer *buffer)
{
	__u64 hash = depth;

	for (__u32 i = 0; i < STACK_DEPTH; i++)
		hash = (hash ^ hash >> 29 ^ frames[i]) * 0xd6e8feb86659fd93ULL;
	hash = mix(hash) | 1;
	for (__u32 i = 0; i < PROBES; i++) {
		struct stack_slot *slot = &buffer->stacks[slot_of(hash, STACKS) + i];
		__u64 seen = *(volatile __u64 *)&slot->hash;

		if (!seen)
			seen = __sync_val_compare_and_swap(&slot->hash, 0, hash);
		if (seen == hash)
			return hash;
		if (!seen) {
			buffer->stacks_used++;
			__builtin_memcpy(slot->frames, frames, sizeof(slot->frames));
			slot->depth = depth;
			return hash;
		}
	}
	lose(buffer, LOSS_STACKS_FULL);
	return 0;
}

/* Takes the kernel stack of the one that runs here; 0 if it was not to be had. */
static __always_inline __u64 take_stack(void *ctx, struct cpu_state *cpu, struct buffer *buffer)
{
	__u64 begin, spent, hash = 0;
	__u32 level;
	long size;

	if (over_budget()) {
		lose(buffer, LOSS_OVER_BUDGET);
		return 0;
	}
	begin = bpf_ktime_get_ns();
	level = __sync_fetch_and_add(&cpu->scratch_level, 1);
	if (level < SCRATCH_LEVELS) {
		__u64 *frames = cpu->scratch[level];

		size = bpf_get_stack(ctx, frames, sizeof(cpu->scratch[0]), 0);
		if (size <= 0) {
			lose(buffer, LOSS_STACK_FAILED);
		} else {
			if (size == sizeof(cpu->scratch[0]))
				lose(buffer, LOSS_STACK_TOO_DEEP);
			hash = store_stack(frames, (__u32)size / 8, buffer);
		}
	} else {
		lose(buffer, LOSS_STACK_FAILED);
	}
	__sync_fetch_and_add(&cpu->scratch_level, -1);
	spent = bpf_ktime_get_ns() - begin;
	__sync_fetch_and_add(&stack_spent_ns, spent);
	__sync_fetch_and_add(&buffer->stack_ns, spent);
	__sync_fetch_and_add(&buffer->stacks_taken, 1);
	return hash;
}

#endif
