/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether a task, a softirq or an interrupt runs on this CPU: its preempt_count says it (include/linux/preempt.h). Nothing else needs to
 * be traced for it.
 */
#ifndef LOCKMETER_CONTEXT_BPF_H
#define LOCKMETER_CONTEXT_BPF_H

#include "lock_kind.bpf.h"
#include <bpf/bpf_core_read.h>

/* Bits of preempt_count. That one bit is set while a softirq runs; merely to forbid softirqs adds twice as much. */
#define SERVING_SOFTIRQ 0x100
#define HARDIRQ_BITS 0xf0000
#define NMI_BITS 0xf00000

/* On x86-64 it is a variable of its own, but from Linux 6.2 to 6.14, where it lies in a struct. */
struct pcpu_hot {
	int preempt_count;
} __attribute__((preserve_access_index));

extern const int __preempt_count __ksym __weak;
extern const struct pcpu_hot pcpu_hot __ksym __weak;

/* One of `enum context`; 0 where this kernel does not show its preempt_count. */
static __always_inline __u32 running_context(void)
{
	__u32 count;

	if (&pcpu_hot)
		count = ((const struct pcpu_hot *)bpf_this_cpu_ptr(&pcpu_hot))->preempt_count;
	else if (&__preempt_count)
		count = *(const int *)bpf_this_cpu_ptr(&__preempt_count);
	else
		return 0;
	if (count & NMI_BITS)
		return CONTEXT_NMI;
	if (count & HARDIRQ_BITS)
		return CONTEXT_HARDIRQ;
	return count & SERVING_SOFTIRQ ? CONTEXT_SOFTIRQ : CONTEXT_TASK;
}

#endif
