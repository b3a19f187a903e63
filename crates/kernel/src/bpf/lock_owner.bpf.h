/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The task that a lock names as its owner. It may exit while a program looks at it, which neither way of reading minds.
 */
#ifndef LOCKMETER_LOCK_OWNER_BPF_H
#define LOCKMETER_LOCK_OWNER_BPF_H

#include "lock_kind.bpf.h"
#include <bpf/bpf_core_read.h>

/* Of an rwsem's owner: it was the last reader that came, which may have left since. */
#define READER_OWNED 1ULL

/* The lowest bits of an owner are flags. */
#define OWNER_FLAGS 7ULL

/*
 * The owner as a mutex or rwsem keeps it, with its flags; 0 for other kinds of locks. Plain loads, where the kernel can be told of a
 * type, take a fifth of the time of reads by helper.
 */
static __always_inline __u64 read_owner(__u64 lock, __u32 kind)
{
	void *at = (void *)lock;

	if (kind == KIND_MUTEX)
		return bpf_rdonly_cast ? bpf_core_cast(at, struct mutex)->owner.counter
				       : BPF_CORE_READ((struct mutex *)at, owner.counter);
	if (kind == KIND_RWSEM)
		return bpf_rdonly_cast ? bpf_core_cast(at, struct rw_semaphore)->owner.counter
				       : BPF_CORE_READ((struct rw_semaphore *)at, owner.counter);
	return 0;
}

static __always_inline struct task_struct *task_of_owner(__u64 owner)
{
	return (struct task_struct *)(owner & ~OWNER_FLAGS);
}

#endif
