// SPDX-License-Identifier: GPL-2.0
/*
 * Reads kernel memory on request: run once for each read, attached to nothing.
 *
 * Names of locks need it: a slab cache's name, a per-CPU area's base.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define PEEK_LENGTH 256

__u64 address = 0;
__u32 length = 0;
__s32 failed = 0;
__u64 current_task = 0;
__u64 current_task_cache = 0;
__u8 bytes[PEEK_LENGTH];

const volatile __u8 has_get_kmem_cache = 0;

extern struct kmem_cache *bpf_get_kmem_cache(__u64 address) __ksym __weak;

SEC("syscall")
int peek(void *ctx)
{
	__u32 wanted = length;

	if (wanted > PEEK_LENGTH)
		wanted = PEEK_LENGTH;
	failed = bpf_probe_read_kernel(bytes, wanted, (const void *)address);
	return 0;
}

/* Tells two addresses from which everything else can be found: this task and the slab cache it lies in. */
SEC("syscall")
int find_task(void *ctx)
{
	current_task = bpf_get_current_task();
	if (has_get_kmem_cache && bpf_get_kmem_cache)
		current_task_cache = (__u64)bpf_get_kmem_cache(current_task);
	return 0;
}
