/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Kinds and modes of locks, and what the kernel's flags say of them.
 */
#ifndef LOCKMETER_LOCK_KIND_BPF_H
#define LOCKMETER_LOCK_KIND_BPF_H

#include "core.h"
#include <bpf/bpf_helpers.h>

enum kind {
	KIND_SPIN = 1,
	KIND_RWLOCK = 2,
	KIND_MUTEX = 3,
	KIND_RWSEM = 4,
	KIND_PERCPU_RWSEM = 5,
	KIND_RT_MUTEX = 6,
	KIND_SEMAPHORE = 7,
	KIND_UNKNOWN = 8,
};

enum mode { MODE_EXCLUSIVE = 1, MODE_READ = 2, MODE_WRITE = 3 };

/* Where a wait that spins was. 0: not known. */
enum context { CONTEXT_TASK = 1, CONTEXT_SOFTIRQ = 2, CONTEXT_HARDIRQ = 3, CONTEXT_NMI = 4 };

/* Four bits of mode lie below. */
#define CONTEXT_SHIFT 12

/* Kind, mode and duration bucket in one word. */
#define META(kind, mode, bucket) ((__u32)(kind) | (__u32)(mode) << 8 | (__u32)(bucket) << 16)

/* Flags of lock:contention_begin, include/trace/events/lock.h. No flag at all is a semaphore. */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

static __always_inline __u32 kind_mode_of(__u32 flags)
{
	__u32 kind, mode = flags & LCB_F_READ ? MODE_READ : flags & LCB_F_WRITE ? MODE_WRITE : MODE_EXCLUSIVE;

	if (flags & ~(LCB_F_SPIN | LCB_F_READ | LCB_F_WRITE | LCB_F_RT | LCB_F_PERCPU | LCB_F_MUTEX))
		kind = KIND_UNKNOWN;
	else if (flags & LCB_F_MUTEX)
		kind = KIND_MUTEX;
	else if (flags & LCB_F_PERCPU)
		kind = KIND_PERCPU_RWSEM;
	else if (flags & LCB_F_RT)
		kind = KIND_RT_MUTEX;
	else if (flags & LCB_F_SPIN)
		kind = mode == MODE_EXCLUSIVE ? KIND_SPIN : KIND_RWLOCK;
	else
		kind = mode == MODE_EXCLUSIVE ? KIND_SEMAPHORE : KIND_RWSEM;
	return META(kind, mode, 0);
}

#endif
