/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which tasks may be waiting for a lock that sleeps: almost all wake-ups on a machine are of tasks that wait for none, and one word
 * says so without asking for what is kept of the task.
 *
 * How many wait is counted by a hash of their ids. A task takes back what it has counted, and nothing else; where the end of its wait
 * was missed, it does so after its next one. If it never waits again, wake-ups of a thousandth of all tasks are looked at for nothing.
 */
#ifndef LOCKMETER_WAITING_TASKS_BPF_H
#define LOCKMETER_WAITING_TASKS_BPF_H

#include "../state.bpf.h"

#define WAITING_BITS 10

__u32 waiting[1 << WAITING_BITS] __weak;

static __always_inline __u32 place_of_waiter(const struct task_struct *task)
{
	return (__u32)task->pid * 0x9e3779b1U >> (32 - WAITING_BITS);
}

static __always_inline int may_wait(const struct task_struct *task)
{
	return *(volatile __u32 *)&waiting[place_of_waiter(task)];
}

/* The one that `sleeper` is kept for does not wait. */
static __always_inline void count_out(struct sleeper *sleeper)
{
	if (!sleeper->is_counted)
		return;
	__sync_fetch_and_add(&waiting[sleeper->counted_at % (1 << WAITING_BITS)], -1);
	sleeper->is_counted = 0;
}

/* It waits. If the end of its wait before was missed, it may have another id now: a thread that executes a program has the first one's. */
static __always_inline void count_in(const struct task_struct *task, struct sleeper *sleeper)
{
	__u32 place = place_of_waiter(task);

	if (sleeper->is_counted && sleeper->counted_at == place)
		return;
	count_out(sleeper);
	sleeper->is_counted = 1;
	sleeper->counted_at = place;
	__sync_fetch_and_add(&waiting[place], 1);
}

#endif
