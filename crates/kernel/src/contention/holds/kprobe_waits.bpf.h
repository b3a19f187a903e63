/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where functions are hooked by kprobes, a hold begins when its task asks for the lock: a wait takes that back, and its end sets it.
 */
#ifndef LOCKMETER_KPROBE_WAITS_BPF_H
#define LOCKMETER_KPROBE_WAITS_BPF_H

#include "open_holds.bpf.h"

/* Marks what has not begun: no count of resumptions that anybody compares with. */
#define NOT_BEGUN(since) (~(since))

/* The current task waits for a lock that it was seen to ask for. */
static __always_inline void hooked_waits(__u64 lock, const struct task_struct *task)
{
	struct cpu_state *cpu = this_cpu();
	struct held *held;

	if (cpu && cpu->open_holds[SLEEPING].depth)
		put_away(&cpu->open_holds[SLEEPING], task->pid);
	held = find_held(tag_of_hold(lock, MODE_READ, task->pid));
	if (held)
		held->resumed = NOT_BEGUN(*(volatile __u32 *)&watched);
}

/* It waits no more. Of a wait that had a tracepoint and a probe, the first counts. */
static __always_inline void hooked_waited(__u64 lock, const struct task_struct *task, int failed, int contended)
{
	__u32 since = *(volatile __u32 *)&watched;
	struct held *held;

	held = find_held(tag_of_hold(lock, MODE_READ, task->pid));
	if (!held)
		return;
	if (failed) {
		free_held(held);
	} else if (held->resumed != since) {
		held->begin_ns = bpf_ktime_get_ns();
		held->resumed = since;
		if (contended)
			held->stands_for |= HELD_CONTENDED;
	}
}

#endif
