// SPDX-License-Identifier: GPL-2.0-only
/*
 * What nobody should do: times how long every acquisition of mmap_lock takes, contended or not, as the mail of 2020 did: two readings of
 * the clock, and a histogram. It exists to be measured beside metering that looks at contended acquisitions only.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* A map type that lockmeter's own programs do without. */
#define PERCPU_ARRAY 6
#define BUCKETS 64

/* When a task asked. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} tasks SEC(".maps");

/* Acquisitions by the power of two of how long they took, on each CPU. */
struct {
	__uint(type, PERCPU_ARRAY);
	__uint(max_entries, BUCKETS);
	__type(key, __u32);
	__type(value, __u64);
} histogram SEC(".maps");

static __always_inline __u32 bucket_of(__u64 ns)
{
	__u32 bucket = 0;

	for (int bit = 32; bit; bit >>= 1) {
		if (ns >> bit) {
			ns >>= bit;
			bucket += bit;
		}
	}
	return bucket;
}

SEC("tp_btf/mmap_lock_start_locking")
int BPF_PROG(asks)
{
	__u64 *asked_ns = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (asked_ns)
		*asked_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int BPF_PROG(has)
{
	__u64 *asked_ns = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
	__u32 bucket;
	__u64 *count;

	if (!asked_ns)
		return 0;
	bucket = bucket_of(bpf_ktime_get_ns() - *asked_ns);
	count = bpf_map_lookup_elem(&histogram, &bucket);
	if (count)
		(*count)++;
	return 0;
}
