// SPDX-License-Identifier: GPL-2.0
/*
 * What any program at all costs on the tracepoints that lockmeter uses, and how often the lock tracepoints fire.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/contention_begin")
int BPF_PROG(empty_begin, void *lock, unsigned int flags)
{
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(empty_end, void *lock)
{
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(empty_waking, struct task_struct *wakee)
{
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} ends SEC(".maps");

/* The contention rate: a wait has one end, but may have two begins. */
SEC("tp_btf/contention_end")
int BPF_PROG(count_end, void *lock)
{
	__u32 key = 0;
	__u64 *count = bpf_map_lookup_elem(&ends, &key);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
