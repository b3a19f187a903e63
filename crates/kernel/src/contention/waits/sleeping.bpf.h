/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits for locks that may sleep: in what is kept of the task, which may change CPUs.
 */
#ifndef LOCKMETER_SLEEPING_BPF_H
#define LOCKMETER_SLEEPING_BPF_H

#include "../class_cache.bpf.h"
#include "../counting.bpf.h"
#include "../holds/contended.bpf.h"
#include "../mmap/memory_cgroup.bpf.h"
#include "lock_owner.bpf.h"
#include "releases.bpf.h"
#include "waiting_tasks.bpf.h"

/* Who owns the lock that is waited for. Readers leave no usable owner. */
static __always_inline void note_owner(struct sleep_wait *wait)
{
	__u32 kind = wait->kind_mode & 0xff;
	__u64 word = read_owner(wait->lock, kind);
	struct task_struct *owner;

	if (kind == KIND_RWSEM && word & READER_OWNED)
		return;
	owner = task_of_owner(word);
	if (!owner)
		return;
	if (bpf_rdonly_cast) {
		owner = bpf_core_cast(owner, struct task_struct);
		wait->owner_tgid = owner->tgid;
		copy_comm(wait->owner_comm, owner);
	} else {
		wait->owner_tgid = BPF_CORE_READ(owner, tgid);
		bpf_core_read(wait->owner_comm, sizeof(wait->owner_comm), &owner->comm);
	}
}

/* How often a task has left its CPU, of its own accord or not. */
static __always_inline __u32 switches_of(struct task_struct *task)
{
	return task->nvcsw + task->nivcsw;
}

static __always_inline __u64 mm_of(__u64 lock)
{
	return lock - bpf_core_field_offset(struct mm_struct, mmap_lock);
}

/* Another object may have an rwsem at the same offset: the loader, which knows the objects' types, drops it. */
static __always_inline int may_be_mmap_lock(__u64 class, __u32 flags)
{
	if (flags & ~(LCB_F_READ | LCB_F_WRITE))
		return 0;
	return class >> 60 != CLASS_SLAB >> 60 || (__u32) class == bpf_core_field_offset(struct mm_struct, mmap_lock);
}

static __always_inline void begin_sleeping(struct task_struct *task, __u64 lock, __u32 flags, struct cpu_state *cpu,
					   struct buffer *buffer)
{
	__u32 spinning = !!(flags & LCB_F_SPIN);
	struct sleeper *sleeper;
	struct sleep_wait *wait;
	__u64 now, class;
	__u32 depth;

	class = class_of(lock, cpu, buffer);
	if (only_mmap_lock && !may_be_mmap_lock(class, flags))
		return;
	sleeper = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!sleeper) {
		lose(buffer, LOSS_NO_TASK_STORAGE);
		return;
	}
	now = bpf_ktime_get_ns();
	if (sleeper->resumed != *(volatile __u32 *)&resumed) {
		sleeper->resumed = *(volatile __u32 *)&resumed;
		sleeper->depth = 0;
	}
	depth = sleeper->depth;
	if (depth) {
		wait = &sleeper->waits[(depth - 1) % NESTED_SLEEPS];
		if (wait->lock == lock) {
			/* A mutex goes from spinning to sleeping and back within one wait. */
			if (flags & LCB_F_MUTEX && wait->spinning != spinning) {
				if (wait->spinning)
					wait->spin_ns += now - wait->phase_begin_ns;
				wait->phase_begin_ns = now;
				wait->spinning = spinning;
				wait->slept |= !spinning;
				return;
			}
			/* Nothing else begins twice: the end of the wait before was not seen. */
			lose(buffer, LOSS_BEGIN_WITHOUT_END);
			depth--;
		}
	}
	if (depth >= NESTED_SLEEPS) {
		lose(buffer, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&buffer->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SLEEPS);
		depth = 0;
	}
	wait = &sleeper->waits[depth % NESTED_SLEEPS];
	wait->lock = lock;
	wait->begin_ns = now;
	wait->phase_begin_ns = now;
	wait->spin_ns = 0;
	wait->spinning = spinning;
	wait->slept = !spinning;
	wait->blocker = 0;
	wait->blocker_tgid = 0;
	wait->releaser_tid = 0;
	wait->releaser_tgid = 0;
	wait->blocker_source = BLOCKER_WAKEUP_NOT_SEEN;
	wait->kind_mode = kind_mode_of(flags);
	wait->switches = switches_of(task);
	wait->class = class;
	draw(&cpu->random, &wait->threshold_ns, &wait->period_ns);
	wait->owner_tgid = 0;
	note_owner(wait);
	if (only_mmap_lock)
		wait->who = *who_uses_mm(task, mm_of(lock), &cpu->mmap_waiter);
	else
		who_waits(task, &wait->who);
	sleeper->depth = depth + 1;
	count_in(task, sleeper);
	buffer->opened++;
	if (contended_holds)
		lock_is_waited_for(task, wait);
	adapt_period(now);
}

/* Takes this task's innermost sleeping wait for the lock off its stack. */
static __always_inline enum found end_sleeping(struct task_struct *task, __u64 lock, int failed, struct buffer *buffer,
					       struct wait *wait, struct blame *blame, struct past_wait **past)
{
	struct sleeper *sleeper;
	struct sleep_wait *sleep;
	__u32 at;
	__u64 now;

	if (!may_wait(task))
		return FOUND_NOTHING;
	sleeper = bpf_task_storage_get(&sleepers, task, 0, 0);
	if (!sleeper || !sleeper->depth)
		return FOUND_NOTHING;
	at = (sleeper->depth - 1) % NESTED_SLEEPS;
	if (sleeper->waits[at].lock != lock) {
		if (!at || sleeper->waits[0].lock != lock)
			return FOUND_NOTHING;
		lose(buffer, LOSS_BEGIN_WITHOUT_END);
		at = 0;
	}
	sleep = &sleeper->waits[at];
	*past = &sleeper->past_wait;
	sleeper->depth = at;
	if (!at)
		count_out(sleeper);
	now = bpf_ktime_get_ns();
	if (contended_holds)
		lock_was_waited_for(task, sleep, failed, now);
	wait->class = sleep->class;
	wait->begin_ns = sleep->begin_ns;
	wait->total_ns = now - sleep->begin_ns;
	wait->spin_ns = sleep->spin_ns + (sleep->spinning ? now - sleep->phase_begin_ns : 0);
	/* Read by note_release: since when it has the lock. */
	sleep->phase_begin_ns = now;
	/* It found the lock free before it slept: nobody woke it, and it was on its CPU all the while. */
	if (sleep->blocker_source == BLOCKER_WAKEUP_NOT_SEEN && sleep->switches == switches_of(task)) {
		sleep->slept = 0;
		wait->spin_ns = wait->total_ns;
	}
	wait->is_sampled = wait->total_ns >= sleep->threshold_ns;
	wait->period_ns = sleep->period_ns;
	wait->kind_mode = sleep->kind_mode;
	wait->who = sleep->who;
	if (sleep->slept) {
		blame->source = sleep->blocker_source;
		blame->stack = sleep->blocker;
		blame->tgid = sleep->blocker_tgid;
		if (blame->tgid)
			__builtin_memcpy(blame->comm, sleep->blocker_comm, COMM_LENGTH);
	}
	blame->owner_tgid = sleep->owner_tgid;
	if (blame->owner_tgid)
		__builtin_memcpy(blame->owner_comm, sleep->owner_comm, COMM_LENGTH);
	return FOUND_WAIT;
}

static __always_inline void blame_waker(void *ctx, struct sleep_wait *sleep, __u64 now, struct buffer *buffer)
{
	struct cpu_state *cpu = this_cpu();
	__u64 stack;

	if (now - sleep->begin_ns < sleep->threshold_ns) {
		sleep->blocker = 0;
		sleep->blocker_source = BLOCKER_NOT_SAMPLED;
		return;
	}
	if (!cpu)
		return;
	/* A waiter that was awake may get the lock meanwhile: then who woke it before is its blocker. */
	stack = take_stack(ctx, cpu, buffer);
	sleep->blocker = stack;
	sleep->blocker_source = stack ? BLOCKER_WOKEN : BLOCKER_STACK_LOST;
	sleep->blocker_tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(&sleep->blocker_comm, sizeof(sleep->blocker_comm));
	note_release(sleep, now);
}

#endif
