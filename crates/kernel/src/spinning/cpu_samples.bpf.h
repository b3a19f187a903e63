/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What threads in scope do while they have a CPU: a sample of each CPU at a steady rate, by perf's clock of CPUs.
 *
 * A thread that spins for a lock runs, and nothing in the scheduler tells it from one that works. Its code does: so a sample has the
 * program's stack and the code at its innermost end, also of a thread that gives up its CPU or sleeps for a short time, as those do that
 * spin politely. Of what else the kernel does for a thread only that it ran is sampled: the share of spinning in all samples is that in the
 * running time, which is known exactly.
 */
#ifndef LOCKMETER_CPU_SAMPLES_BPF_H
#define LOCKMETER_CPU_SAMPLES_BPF_H

#include "core.h"
#include "../futex/futex_waits.bpf.h"
#include "tables.h"
#include <bpf/bpf_helpers.h>

/* System calls of x86-64. */
#define CALL_SCHED_YIELD 24
#define CALL_NANOSLEEP 35
#define CALL_CLOCK_NANOSLEEP 230

/* The bits of `cs` that say whose code was interrupted. */
#define PRIVILEGE_LEVEL 3

/* As programs at perf events see their context on x86-64. */
struct sampled_event {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss;
	__u64 period;
	__u64 address;
};

/* So that the loader's types include it. */
struct cpu_sample *type_of_cpu_sample;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} cpu_samples SEC(".maps");

/* Samples that found no room. */
__u64 cpu_samples_lost = 0;

static __always_inline enum sample_of sample_of(const struct sampled_event *event, const struct pt_regs *regs)
{
	if ((event->cs & PRIVILEGE_LEVEL) == PRIVILEGE_LEVEL)
		return SAMPLE_OF_PROGRAM;
	switch (regs->orig_ax) {
	case CALL_SCHED_YIELD:
		return SAMPLE_OF_YIELD;
	case CALL_NANOSLEEP:
	case CALL_CLOCK_NANOSLEEP:
		return SAMPLE_OF_SLEEP;
	default:
		return SAMPLE_OF_KERNEL;
	}
}

static __always_inline void describe_sample(struct cpu_sample *sample, struct task_struct *task, enum sample_of of)
{
	sample->tgid = task->tgid;
	sample->parent = task->flags & PF_FORKNOEXEC ? task->group_leader->real_parent->tgid : 0;
	sample->cgroup = task->cgroups->dfl_cgrp->kn->id;
	sample->of = of;
	sample->unused = 0;
	for (int i = 0; i < COMM_LENGTH; i++)
		sample->comm[i] = task->comm[i];
}

/* The code may end with its page, before or behind. What cannot be read is zero. */
static __always_inline void copy_code(struct cpu_sample *sample, __u64 ip)
{
	bpf_probe_read_user(sample->code, CODE_BEFORE, (void *)(ip - CODE_BEFORE));
	bpf_probe_read_user(sample->code + CODE_BEFORE, CODE_BYTES - CODE_BEFORE, (void *)ip);
}

static __always_inline void take_sample(const struct sampled_event *event, struct task_struct *task)
{
	const struct pt_regs *regs = registers_of(task);
	enum sample_of of = sample_of(event, regs);
	struct cpu_sample *sample;

	if (of == SAMPLE_OF_KERNEL) {
		sample = bpf_ringbuf_reserve(&cpu_samples, __builtin_offsetof(struct cpu_sample, argument), 0);
		if (!sample)
			goto lost;
		describe_sample(sample, task, of);
	} else {
		sample = bpf_ringbuf_reserve(&cpu_samples, sizeof(*sample), 0);
		if (!sample)
			goto lost;
		describe_sample(sample, task, of);
		sample->argument = regs->di;
		copy_code(sample, regs->ip);
		copy_stack(&sample->user, regs);
	}
	bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	return;
lost:
	__sync_fetch_and_add(&cpu_samples_lost, 1);
}

#endif
