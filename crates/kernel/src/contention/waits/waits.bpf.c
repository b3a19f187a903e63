// SPDX-License-Identifier: GPL-2.0
/*
 * Meters lock contention from three tracepoints.
 *
 *   contention_begin   starts the clock of a wait and takes the lock's identity
 *   sched_waking       takes the stack of the one that wakes a sleeping waiter: the blocker
 *   contention_end     counts the wait, exactly; takes the waiter's stack if the wait was drawn for the sample
 *
 * Which waits are sampled. At its begin every wait draws a threshold, uniform in [0, period); it is sampled if it lasts
 * longer. So a wait of d ns is sampled with probability min(1, d / period) and stands for max(1, period / d) waits:
 * stacks are spent in proportion to waited time, which is what a report ranks by, and the estimates are unbiased. The
 * period adapts to keep the time spent on stacks within the budget.
 *
 * Nothing here takes a lock or allocates, except task-local storage the first time a task sleeps on a lock.
 */
#include "../holds/kprobe_waits.bpf.h"
#include "../scope.bpf.h"
#include "sleeping.bpf.h"
#include "spinning.bpf.h"
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

static __always_inline void finish_wait(void *ctx, struct cpu_state *cpu, struct buffer *buffer, struct wait *wait,
					struct blame *blame, struct past_wait *past)
{
	__u64 site;

	count_total(buffer, wait, wait->kind_mode | log2_of(wait->total_ns) << 16, &wait->who);
	buffer->closed++;
	if (!wait->is_sampled)
		return;
	site = take_stack(ctx, cpu, buffer);
	if (blame->source == BLOCKER_WOKEN || blame->source == BLOCKER_STACK_LOST)
		count_divided_wait(buffer, wait, blame, site);
	else
		count_part_of_wait(buffer, wait, blame, site, wait->total_ns);
	if (past && blame->root.class)
		keep_past_wait(past, wait, &blame->root);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *cpu = this_cpu();
	struct buffer *buffer = this_buffer(&buffers);

	if (paused || !cpu || !buffer)
		return 0;
	buffer->runs[PROGRAM_BEGIN]++;
	if (!in_scope(task))
		return 0;
	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN && only_mmap_lock)
		return 0;
	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN) {
		begin_spinning(task, (__u64)lock, flags, cpu, buffer);
		return 0;
	}
	if (by_kprobe)
		hooked_waits((__u64)lock, task);
	begin_sleeping(task, (__u64)lock, flags, cpu, buffer);
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int failed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct blame blame = {.source = BLOCKER_NEVER_SLEPT};
	struct wait wait = {.instance = (__u64)lock};
	struct cpu_state *cpu = this_cpu();
	struct buffer *buffer = this_buffer(&buffers);
	enum found found = FOUND_NOTHING;
	struct past_wait *past = 0;

	if (paused || !cpu || !buffer)
		return 0;
	buffer->runs[PROGRAM_END]++;
	if (cpu->depth)
		found = end_spinning(task, (__u64)lock, cpu, buffer, &wait);
	if (!failed && !by_kprobe)
		*(volatile __u64 *)&cpu->waited_for[found == FOUND_NOTHING ? SLEEPING : SPINNING] = (__u64)lock;
	if (found == FOUND_NOTHING && by_kprobe)
		hooked_waited((__u64)lock, task, failed, 1);
	if (found == FOUND_NOTHING)
		found = end_sleeping(task, (__u64)lock, failed, buffer, &wait, &blame, &past);
	if (found == FOUND_WAIT)
		finish_wait(ctx, cpu, buffer, &wait, &blame, past);
	else if (found == FOUND_NOTHING && scope == SCOPE_ALL && !only_mmap_lock)
		lose(buffer, LOSS_END_WITHOUT_BEGIN);
	return 0;
}

/* The one that wakes a waiter that is long enough asleep is its blocker: its stack is the unlock that ended the wait. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *wakee)
{
	struct buffer *buffer = this_buffer(&buffers);
	struct account *waiter = 0;
	struct sleeper *sleeper = 0;
	struct sleep_wait *sleep;
	__u64 now;

	if (paused || !buffer)
		return 0;
	buffer->runs[PROGRAM_WAKING]++;
	if (contended_holds)
		waiter = account_of(wakee->pid);
	if (may_wait(wakee))
		sleeper = bpf_task_storage_get(&sleepers, wakee, 0, 0);
	if (!sleeper || !sleeper->depth) {
		if (waiter)
			task_wakes(waiter, bpf_ktime_get_ns());
		return 0;
	}
	sleep = &sleeper->waits[(sleeper->depth - 1) % NESTED_SLEEPS];
	if (!sleep->slept)
		return 0;
	now = bpf_ktime_get_ns();
	blame_waker(ctx, sleep, now, buffer);
	if (contended_holds)
		count_contended_hold(ctx, sleep, waiter, wakee->pid, now);
	if (waiter)
		task_wakes(waiter, now);
	return 0;
}

/* Children of a followed process are followed. Loaded only when the scope asks for it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_children, struct task_struct *parent, struct task_struct *child)
{
	struct sleeper *sleeper;

	if (child->pid != child->tgid)
		return 0;
	sleeper = bpf_task_storage_get(&sleepers, parent->group_leader, 0, 0);
	if (!sleeper || !sleeper->followed)
		return 0;
	sleeper = bpf_task_storage_get(&sleepers, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (sleeper)
		sleeper->followed = 1;
	return 0;
}
