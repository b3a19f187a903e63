// SPDX-License-Identifier: GPL-2.0
/*
 * The class of a lock that is not in the cache.
 */
#include "class_cache.bpf.h"

__hidden __noinline __u64 learn_class(__u64 address, struct class_entry *entry, struct cpu_state *cpu,
				      struct buffer *buffer)
{
	__u64 class = look_up_class(address, &cpu->cache_address, &buffer->losses[LOSS_CACHES_FULL]);

	/* An interrupt between these stores must find no half-written entry. */
	*(volatile __u64 *)&entry->address = 0;
	*(volatile __u64 *)&entry->class = class;
	*(volatile __u32 *)&entry->generation = *(volatile __u32 *)&generation;
	*(volatile __u64 *)&entry->address = address;
	return class;
}
