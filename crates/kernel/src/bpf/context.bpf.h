/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a task, a softirq or an interrupt runs on this CPU: its preempt_count says it (include/linux/preempt.h). Nothing else needs to
 * be traced for it.
 *
 * The loader finds where it is: programs may name a variable of the kernel only where the kernel lists its variables.
 */
#ifndef LOCKMETER_CONTEXT_BPF_H
#define LOCKMETER_CONTEXT_BPF_H

#include "lock_class.bpf.h"
#include "lock_kind.bpf.h"

/* Bits of preempt_count. That one bit is set while a softirq runs; merely to forbid softirqs adds twice as much. */
#define SERVING_SOFTIRQ 0x100
#define HARDIRQ_BITS 0xf0000
#define NMI_BITS 0xf00000

/* One of `enum context`, by the preempt_count of this CPU; 0 if it is not known where that is. */
static __always_inline __u32 running_context(__u64 preempt_count_at)
{
	__u32 count = 0;

	if (!preempt_count_at)
		return 0;
	if (bpf_rdonly_cast)
		count = bpf_core_cast((const void *)preempt_count_at, struct timespec64)->tv_sec;
	else if (bpf_probe_read_kernel(&count, sizeof(count), (const void *)preempt_count_at))
		return 0;
	if (count & NMI_BITS)
		return CONTEXT_NMI;
	if (count & HARDIRQ_BITS)
		return CONTEXT_HARDIRQ;
	return count & SERVING_SOFTIRQ ? CONTEXT_SOFTIRQ : CONTEXT_TASK;
}

#endif
