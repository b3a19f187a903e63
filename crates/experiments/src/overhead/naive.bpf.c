// SPDX-License-Identifier: GPL-2.0-only
/*
 * What nobody should do: times every acquisition of mmap_lock, contended or not, with two readings of the clock, a stack and a
 * histogram in a hash map. It exists to be measured beside metering that looks at contended acquisitions only.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Map types and flags that lockmeter's own programs do without. */
#define HASH 1
#define STACK_TRACE 7
#define DEPTH 32
#define FAST_STACK_COMPARE (1 << 9)

struct times {
	__u64 asked_ns;
	__u64 had_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct times);
} tasks SEC(".maps");

struct {
	__uint(type, STACK_TRACE);
	__uint(max_entries, 16384);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, DEPTH * sizeof(__u64));
} stacks SEC(".maps");

struct key {
	__s32 stack;
	__u16 bucket;
	__u16 what;
};

struct {
	__uint(type, HASH);
	__uint(max_entries, 65536);
	__type(key, struct key);
	__type(value, __u64);
} histogram SEC(".maps");

/* Read by the loader to tell that something was timed at all. */
__u64 timed = 0;

static __always_inline __u16 bucket_of(__u64 ns)
{
	__u16 bucket = 0;

	for (int bit = 32; bit; bit >>= 1) {
		if (ns >> bit) {
			ns >>= bit;
			bucket += bit;
		}
	}
	return bucket;
}

static __always_inline void count(__s32 stack, __u64 ns, __u16 what)
{
	struct key key = {.stack = stack, .bucket = bucket_of(ns), .what = what};
	__u64 one = 1, *found = bpf_map_lookup_elem(&histogram, &key);

	if (found)
		__sync_fetch_and_add(found, 1);
	else
		bpf_map_update_elem(&histogram, &key, &one, BPF_ANY);
}

SEC("tp_btf/mmap_lock_start_locking")
int BPF_PROG(asks)
{
	struct times *times =
		bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (times)
		times->asked_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int BPF_PROG(has)
{
	struct times *times = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);
	__u64 now = bpf_ktime_get_ns();

	if (!times)
		return 0;
	count(bpf_get_stackid(ctx, &stacks, FAST_STACK_COMPARE), now - times->asked_ns, 0);
	times->had_ns = now;
	__sync_fetch_and_add(&timed, 1);
	return 0;
}

SEC("tp_btf/mmap_lock_released")
int BPF_PROG(releases)
{
	struct times *times = bpf_task_storage_get(&tasks, bpf_get_current_task_btf(), 0, 0);

	if (!times || !times->had_ns)
		return 0;
	count(bpf_get_stackid(ctx, &stacks, FAST_STACK_COMPARE), bpf_ktime_get_ns() - times->had_ns, 1);
	times->had_ns = 0;
	return 0;
}
