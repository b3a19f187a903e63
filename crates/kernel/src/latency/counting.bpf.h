/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counting a run that has ended: into the histograms of what ran, and, if it was long, one by one.
 */
#ifndef LOCKMETER_LATENCY_COUNTING_BPF_H
#define LOCKMETER_LATENCY_COUNTING_BPF_H

#include "state.bpf.h"
#include "waits.bpf.h"

static __always_inline __u32 bucket_of(__u64 duration)
{
	__u32 bucket = log2_of(duration);

	return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

/*
 * One kind of runner always counts on the same level, and on one level a CPU does one thing at a time: a bucket needs no
 * atomics. A slot does when it is taken: an interrupt may want the same one.
 */
static __always_inline void add_duration(struct run_bucket *bucket, __u64 duration, __u64 own_ns)
{
	bucket->count++;
	bucket->total_ns += duration;
	bucket->own_ns += own_ns;
	if (duration > bucket->max_ns)
		bucket->max_ns = duration;
}

static __always_inline struct runner_slot *slot_of_runner(struct run_buffer *buffer, __u64 key, const char *name)
{
	__u32 first = slot_of(mix(key), RUNNERS);

	for (__u32 i = 0; i < PROBES; i++) {
		struct runner_slot *slot = &buffer->runners[first + i];
		__u64 seen = slot->key;

		if (seen == key)
			return slot;
		if (!seen) {
			seen = __sync_val_compare_and_swap(&slot->key, 0, key);
			if (!seen) {
				buffer->runners_used++;
				if (name)
					bpf_probe_read_kernel_str(slot->name, NAME_LENGTH, name);
				return slot;
			}
			if (seen == key)
				return slot;
		}
	}
	lose_run(buffer, RUN_LOSS_RUNS_FULL);
	return 0;
}

/* `own_ns`: of `run_ns`, without what was called and is counted by itself. `name`: of an interrupt, in kernel memory. */
static __always_inline void count_run(struct run_buffer *buffer, __u64 key, __u64 run_ns, __u64 own_ns, __u64 delay,
				      const char *name)
{
	struct runner_slot *slot = slot_of_runner(buffer, key, name);

	if (!slot)
		return;
	add_duration(&slot->runs[bucket_of(run_ns)], run_ns, own_ns);
	if (delay != UNKNOWN_NS)
		add_duration(&slot->delays[bucket_of(delay)], delay, 0);
}

static __always_inline int is_long(__u64 run_ns, const struct lock_waits *waits)
{
	return threshold_ns && (run_ns >= threshold_ns || waits->total_ns >= threshold_ns);
}

/* What a long run was, beside its waits. */
struct single_run {
	__u64 key;
	__u64 begin_ns;
	__u64 run_ns;
	__u64 asleep_ns;
	__u64 delay;
};

/* Rare, and not inlined: it is no part of what an event costs. */
static __noinline int list_long_run(struct run_buffer *buffer, struct single_run *run, struct lock_waits *waits)
{
	struct task_struct *task;
	struct long_run *listed;
	__u64 at;

	if (!buffer || !run || !waits)
		return 0;
	task = bpf_get_current_task_btf();
	at = __sync_fetch_and_add(&buffer->long_runs_used, 1);
	if (at >= LONG_RUNS) {
		lose_run(buffer, RUN_LOSS_LONG_RUNS_FULL);
		return 0;
	}
	listed = &buffer->long_runs[at];
	listed->begin_ns = run->begin_ns;
	listed->run_ns = run->run_ns;
	listed->asleep_ns = run->asleep_ns;
	listed->delay_ns = run->delay;
	listed->tgid = task->tgid;
	__builtin_memcpy(listed->comm, task->comm, COMM_LENGTH);
	copy_words((__u64 *)listed->waits, (const __u64 *)waits->waits, sizeof(listed->waits) / 8);
	listed->key = run->key;
	return 0;
}

#endif
