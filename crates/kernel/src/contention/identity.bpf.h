/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The classes of locks met lately, remembered by their address until the next drain.
 */
#ifndef LOCKMETER_IDENTITY_BPF_H
#define LOCKMETER_IDENTITY_BPF_H

#include "state.bpf.h"

static __noinline __u64 learn_class(__u64 address, struct class_entry *entry, struct cpu_state *cpu, struct half *half)
{
	__u64 class = look_up_class(address, &cpu->cache_address, &half->losses[LOSS_CACHES_FULL]);

	/* An interrupt between these stores must find no half-written entry. */
	*(volatile __u64 *)&entry->address = 0;
	*(volatile __u64 *)&entry->class = class;
	*(volatile __u32 *)&entry->generation = *(volatile __u32 *)&generation;
	*(volatile __u64 *)&entry->address = address;
	return class;
}

static __always_inline __u64 class_of(__u64 address, struct cpu_state *cpu, struct half *half)
{
	struct class_entry *entry = &cpu->classes[address * 0x9e3779b97f4a7c15ULL >> (64 - CLASS_CACHE_BITS)];

	if (entry->address == address && entry->generation == *(volatile __u32 *)&generation)
		return entry->class;
	return learn_class(address, entry, cpu, half);
}

#endif
