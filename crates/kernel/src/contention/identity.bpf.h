/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The classes of locks met lately, remembered by their address until the next drain.
 */
#ifndef LOCKMETER_IDENTITY_BPF_H
#define LOCKMETER_IDENTITY_BPF_H

#include "state.bpf.h"

static __always_inline __u64 class_of(__u64 address, struct cpu_state *cpu, struct half *half)
{
	struct class_entry *entry = &cpu->classes[address * 0x9e3779b97f4a7c15ULL >> (64 - CLASS_CACHE_BITS)];
	__u32 now = *(volatile __u32 *)&generation;
	__u64 class;

	if (entry->address == address && entry->generation == now)
		return entry->class;
	class = look_up_class(address, &cpu->cache_address, &half->losses[LOSS_CACHES_FULL]);
	/* An interrupt between these stores must find no half-written entry. */
	*(volatile __u64 *)&entry->address = 0;
	*(volatile __u64 *)&entry->class = class;
	*(volatile __u32 *)&entry->generation = now;
	*(volatile __u64 *)&entry->address = address;
	return class;
}

#endif
