/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Work items: since when they are queued, and what their workers do with them.
 */
#ifndef LOCKMETER_LATENCY_WORK_ITEMS_BPF_H
#define LOCKMETER_LATENCY_WORK_ITEMS_BPF_H

#include "counting.bpf.h"
#include "waits.bpf.h"

#define PF_WQ_WORKER 0x20

/*
 * Since when an item is queued: 16 bits of its address's hash, then 48 bits of time, which last three days, in one word, so
 * that no CPU sees half of it. An item has two slots, told by other bits of the hash; where both are taken, the
 * older one is lost, and the item that it belonged to has no delay.
 */
__u64 queued[QUEUED];

#define TIME_BITS 48
#define TIME_MASK ((1ULL << TIME_BITS) - 1)

struct slots {
	__u64 tag;
	__u64 *one;
	__u64 *other;
};

static __always_inline struct slots slots_of(__u64 work)
{
	__u64 hash = mix(work);
	struct slots slots = {
		.tag = hash & ~TIME_MASK,
		.one = &queued[hash % QUEUED],
		.other = &queued[hash / QUEUED % QUEUED],
	};

	return slots;
}

static __always_inline int is_of(__u64 word, __u64 tag)
{
	return word && (word & ~TIME_MASK) == tag;
}

static __always_inline void remember_queued(__u64 work)
{
	struct slots slots = slots_of(work);
	__u64 one = *(volatile __u64 *)slots.one, other = *(volatile __u64 *)slots.other;
	__u64 word = slots.tag | (bpf_ktime_get_ns() & TIME_MASK);

	if (is_of(other, slots.tag) ||
	    (one && !is_of(one, slots.tag) && (!other || (one & TIME_MASK) > (other & TIME_MASK))))
		*(volatile __u64 *)slots.other = word;
	else
		*(volatile __u64 *)slots.one = word;
}

/* How long the item was queued, UNKNOWN_NS if nobody saw it. */
static __always_inline __u64 take_queued(__u64 work, __u64 now)
{
	struct slots slots = slots_of(work);
	__u64 *slot = slots.one;
	__u64 word = *(volatile __u64 *)slot;

	if (!is_of(word, slots.tag)) {
		slot = slots.other;
		word = *(volatile __u64 *)slot;
		if (!is_of(word, slots.tag))
			return UNKNOWN_NS;
	}
	*(volatile __u64 *)slot = 0;
	return (now - word) & TIME_MASK;
}

static __always_inline __u64 switches_of(const struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

/*
 * How long this task has been on a CPU up to `now`, up to a constant: what the scheduler has accounted, and the time since. The
 * scheduler's clock leaves out interrupts where the kernel accounts them, by another amount on each CPU, which its other clock
 * tells. An interrupt that accounts meanwhile shows in `exec_start`.
 */
static __always_inline __u64 ran_ns(const struct task_struct *task, __u64 now)
{
	__u64 ran = 0;

	for (int i = 0; i < 3; i++) {
		__u64 accounted_until = *(volatile __u64 *)&task->se.exec_start;
		__u64 left_out = 0;

		ran = task->se.sum_exec_runtime;
		if (bpf_core_field_exists(task->se.cfs_rq))
			left_out = task->se.cfs_rq->rq->clock - task->se.cfs_rq->rq->clock_task;
		ran += now - accounted_until - left_out;
		if (accounted_until == *(volatile __u64 *)&task->se.exec_start)
			break;
	}
	return ran;
}

/* An item in a worker; items of softirqs (BH workqueues) are on their CPU's stack instead. */
static __always_inline void begin_item(struct worker *worker, const struct run_cpu *cpu, const struct task_struct *task,
				       __u64 key, __u64 work)
{
	__u64 now = bpf_ktime_get_ns();

	worker->key = key;
	worker->resumed = *(volatile __u32 *)&resumed;
	worker->delay_ns = take_queued(work, now);
	worker->switches = switches_of(task);
	worker->ran_ns = ran_ns(task, now);
	worker->interrupts_ns = cpu->interrupts_ns;
	worker->begin_ns = now;
	if (threshold_ns)
		forget_waits(&worker->waits);
}

/* A worker that never left its CPU ran all the time but for the interrupts; else the scheduler knows how long. */
static __always_inline __u64 run_of_item(const struct worker *worker, const struct run_cpu *cpu,
					 const struct task_struct *task, __u64 now, __u64 wall_ns)
{
	__u64 interrupts_ns = cpu->interrupts_ns - worker->interrupts_ns;
	__s64 ran;

	if (switches_of(task) == worker->switches)
		return wall_ns > interrupts_ns ? wall_ns - interrupts_ns : 0;
	ran = ran_ns(task, now) - worker->ran_ns;
	if (ran < 0)
		return 0;
	return (__u64)ran < wall_ns ? ran : wall_ns;
}

static __always_inline void end_item(struct worker *worker, struct run_cpu *cpu, struct run_buffer *buffer,
				     const struct task_struct *task)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 wall_ns = now - worker->begin_ns;
	__u64 run_ns = run_of_item(worker, cpu, task, now, wall_ns);
	__u64 asleep_ns = switches_of(task) == worker->switches ? 0 : wall_ns - run_ns;

	count_run(buffer, worker->key, run_ns, run_ns, worker->delay_ns, 0);
	if (asleep_ns)
		count_run(buffer, RUNNER_KEY(RUNNER_WORK_ASLEEP, worker->key), asleep_ns, asleep_ns, UNKNOWN_NS, 0);
	if (worker->delay_ns == UNKNOWN_NS)
		lose_run(buffer, RUN_LOSS_QUEUEING_NOT_SEEN);
	if (is_long(run_ns, &worker->waits)) {
		struct single_run run = {
			.key = worker->key,
			.begin_ns = worker->begin_ns,
			.run_ns = run_ns,
			.asleep_ns = asleep_ns,
			.delay = worker->delay_ns,
		};

		list_long_run(buffer, &run, &worker->waits);
	}
	worker->key = 0;
}

#endif
