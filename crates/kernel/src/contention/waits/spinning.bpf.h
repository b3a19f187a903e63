/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits for locks that spin: on a short stack of the CPU, because interrupts can nest them.
 */
#ifndef LOCKMETER_SPINNING_BPF_H
#define LOCKMETER_SPINNING_BPF_H

#include "../class_cache.bpf.h"
#include "../counting.bpf.h"
#include "context.bpf.h"

static __always_inline void begin_spinning(struct task_struct *task, __u64 lock, __u32 flags, struct cpu_state *cpu,
					   struct buffer *buffer)
{
	struct spin_wait *wait;
	__u32 depth;

	if (cpu->resumed != *(volatile __u32 *)&resumed) {
		cpu->resumed = *(volatile __u32 *)&resumed;
		cpu->depth = 0;
	}
	depth = cpu->depth;
	/* Spinning forbids preemption: an entry of another task was left by an end that was not seen. */
	if (depth && depth <= NESTED_SPINS && cpu->spins[depth - 1].tid != (__u32)task->pid) {
		__sync_fetch_and_add(&buffer->losses[LOSS_BEGIN_WITHOUT_END], depth);
		depth = 0;
	}
	if (depth >= NESTED_SPINS) {
		lose(buffer, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&buffer->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SPINS);
		depth = 0;
	}
	wait = &cpu->spins[depth];
	wait->inner = depth && cpu->spins[(depth - 1) % NESTED_SPINS].kind_mode % 256 == KIND_RWLOCK &&
		      lock - cpu->spins[(depth - 1) % NESTED_SPINS].lock < 8;
	wait->lock = lock;
	wait->nested_ns = 0;
	wait->tid = task->pid;
	wait->kind_mode = kind_mode_of(flags) | running_context(cpu->preempt_count_at) << CONTEXT_SHIFT;
	if (!wait->inner) {
		wait->class = class_of(lock, cpu, buffer);
		draw(&cpu->random, &wait->threshold_ns, &wait->period_ns);
		buffer->opened++;
	}
	who_waits(task, &wait->who);
	wait->begin_ns = bpf_ktime_get_ns();
	cpu->depth = depth + 1;
	adapt_period(wait->begin_ns);
}

/* Takes this CPU's innermost spinning wait for the lock off the stack. */
static __always_inline enum found end_spinning(struct task_struct *task, __u64 lock, struct cpu_state *cpu,
					       struct buffer *buffer, struct wait *wait)
{
	struct spin_wait *spin;
	__u32 at = cpu->depth;

	for (int i = 0; i < NESTED_SPINS && at; i++) {
		spin = &cpu->spins[(at - 1) % NESTED_SPINS];
		if (spin->lock == lock && spin->tid == (__u32)task->pid)
			break;
		at--;
	}
	if (!at)
		return FOUND_NOTHING;
	if (cpu->depth > at)
		__sync_fetch_and_add(&buffer->losses[LOSS_BEGIN_WITHOUT_END], cpu->depth - at);
	at = (at - 1) % NESTED_SPINS;
	spin = &cpu->spins[at];
	if (spin->inner) {
		cpu->depth = at;
		return FOUND_INNER;
	}
	wait->class = spin->class;
	wait->total_ns = bpf_ktime_get_ns() - spin->begin_ns;
	wait->spin_ns = wait->total_ns > spin->nested_ns ? wait->total_ns - spin->nested_ns : 0;
	wait->is_sampled = wait->total_ns >= spin->threshold_ns;
	wait->period_ns = spin->period_ns;
	wait->kind_mode = spin->kind_mode;
	wait->who = spin->who;
	/* From here on an interrupt may take the slot. */
	barrier();
	cpu->depth = at;
	if (at)
		cpu->spins[(at - 1) % NESTED_SPINS].nested_ns += wait->total_ns;
	return FOUND_WAIT;
}

#endif
