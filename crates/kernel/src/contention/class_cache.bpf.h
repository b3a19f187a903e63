/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The classes of locks met lately, remembered by their address until the next drain.
 */
#ifndef LOCKMETER_CLASS_CACHE_BPF_H
#define LOCKMETER_CLASS_CACHE_BPF_H

#include "state.bpf.h"

__hidden __u64 learn_class(__u64 address, struct class_entry *entry, struct cpu_state *cpu, struct buffer *buffer);

static __always_inline __u64 class_of(__u64 address, struct cpu_state *cpu, struct buffer *buffer)
{
	struct class_entry *entry = &cpu->classes[address * 0x9e3779b97f4a7c15ULL >> (64 - CLASS_CACHE_BITS)];

	if (entry->address == address && entry->generation == *(volatile __u32 *)&generation)
		return entry->class;
	return learn_class(address, entry, cpu, buffer);
}

#endif
