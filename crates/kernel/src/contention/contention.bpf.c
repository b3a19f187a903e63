// SPDX-License-Identifier: GPL-2.0
/*
 * Meters lock contention from three tracepoints.
 *
 *   contention_begin   starts the clock of a wait and takes the lock's identity
 *   sched_waking       takes the stack of whoever wakes a sleeping waiter: the blocker
 *   contention_end     counts the wait, exactly; takes the waiter's stack if the wait was drawn for the sample
 *
 * Which waits are sampled. At its begin every wait draws a threshold, uniform in [0, period); it is sampled if it lasts
 * longer. So a wait of d ns is sampled with probability min(1, d / period) and stands for max(1, period / d) waits:
 * stacks are spent in proportion to waited time, which is what a report ranks by, and the estimates are unbiased. The
 * period adapts to keep the time spent on stacks within the budget.
 *
 * Nothing here takes a lock or allocates, except task-local storage the first time a task sleeps on a lock.
 */
#include "counting.bpf.h"
#include "identity.bpf.h"
#include "scope.bpf.h"
#include <bpf/bpf_tracing.h>
#include "contended.bpf.h"
#include "fentry.bpf.h"
#include "kprobe.bpf.h"
#include "mmap.bpf.h"
#include "waiting.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void begin_spinning(struct task_struct *task, __u64 lock, __u32 flags, struct cpu_state *cpu,
					   struct half *half)
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
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], depth);
		depth = 0;
	}
	if (depth >= NESTED_SPINS) {
		lose(half, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SPINS);
		depth = 0;
	}
	wait = &cpu->spins[depth];
	wait->inner = depth && cpu->spins[(depth - 1) % NESTED_SPINS].kind_mode % 256 == KIND_RWLOCK &&
		      lock - cpu->spins[(depth - 1) % NESTED_SPINS].lock < 8;
	wait->lock = lock;
	wait->nested_ns = 0;
	wait->tid = task->pid;
	wait->kind_mode = kind_mode_of(flags);
	if (!wait->inner) {
		wait->class = class_of(lock, cpu, half);
		draw(&cpu->random, &wait->threshold_ns, &wait->period_ns);
		half->opened++;
	}
	who_waits(task, &wait->who);
	wait->begin_ns = bpf_ktime_get_ns();
	cpu->depth = depth + 1;
	adapt_period(wait->begin_ns);
}

/*
 * The task that a mutex or rwsem names as its owner: low bits are flags; readers leave no usable owner. It may exit while
 * this looks at it, which neither way of reading minds. Plain loads, where the kernel can be told of a type, take a fifth
 * of the time of reads by helper.
 */
static __always_inline void read_owner(struct sleep_wait *wait)
{
	__u32 kind = wait->kind_mode & 0xff;
	void *lock = (void *)wait->lock;
	struct task_struct *owner;
	__u64 word;

	if (kind != KIND_MUTEX && kind != KIND_RWSEM)
		return;
	if (!bpf_rdonly_cast)
		word = kind == KIND_MUTEX ? BPF_CORE_READ((struct mutex *)lock, owner.counter)
					  : BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
	else if (kind == KIND_MUTEX)
		word = bpf_core_cast(lock, struct mutex)->owner.counter;
	else
		word = bpf_core_cast(lock, struct rw_semaphore)->owner.counter;
	if (kind == KIND_RWSEM && word & 1)
		return;
	owner = (struct task_struct *)(word & ~7ULL);
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
					   struct half *half)
{
	__u32 spinning = !!(flags & LCB_F_SPIN);
	struct sleeper *sleeper;
	struct sleep_wait *wait;
	__u64 now, class;
	__u32 depth;

	class = class_of(lock, cpu, half);
	if (only_mmap_lock && !may_be_mmap_lock(class, flags))
		return;
	sleeper = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!sleeper) {
		lose(half, LOSS_NO_TASK_STORAGE);
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
			lose(half, LOSS_BEGIN_WITHOUT_END);
			depth--;
		}
	}
	if (depth >= NESTED_SLEEPS) {
		lose(half, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SLEEPS);
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
	read_owner(wait);
	if (only_mmap_lock)
		wait->who = *who_uses_mm(task, mm_of(lock), &cpu->mmap_waiter);
	else
		who_waits(task, &wait->who);
	sleeper->depth = depth + 1;
	count_in(task, sleeper);
	half->opened++;
	if (contended_holds)
		lock_is_waited_for(task, wait);
	adapt_period(now);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *cpu = this_cpu();
	struct half *half = this_half();

	if (paused || !cpu || !half)
		return 0;
	half->runs[PROGRAM_BEGIN]++;
	if (!in_scope(task))
		return 0;
	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN && only_mmap_lock)
		return 0;
	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN) {
		begin_spinning(task, (__u64)lock, flags, cpu, half);
		return 0;
	}
	if (by_kprobe)
		hooked_waits((__u64)lock, task);
	begin_sleeping(task, (__u64)lock, flags, cpu, half);
	return 0;
}

enum found { FOUND_NOTHING, FOUND_WAIT, FOUND_INNER };

/* Takes this CPU's innermost spinning wait for the lock off the stack. */
static __always_inline enum found end_spinning(struct task_struct *task, __u64 lock, struct cpu_state *cpu,
					       struct half *half, struct wait *wait)
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
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], cpu->depth - at);
	at = (at - 1) % NESTED_SPINS;
	spin = &cpu->spins[at];
	if (spin->inner) {
		cpu->depth = at;
		return FOUND_INNER;
	}
	wait->class = spin->class;
	wait->total_ns = bpf_ktime_get_ns() - spin->begin_ns;
	wait->spin_ns = wait->total_ns > spin->nested_ns ? wait->total_ns - spin->nested_ns : 0;
	wait->threshold_ns = spin->threshold_ns;
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

/* Takes this task's innermost sleeping wait for the lock off its stack. */
static __always_inline enum found end_sleeping(struct task_struct *task, __u64 lock, int failed, struct half *half,
					       struct wait *wait, struct blame *blame)
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
		lose(half, LOSS_BEGIN_WITHOUT_END);
		at = 0;
	}
	sleep = &sleeper->waits[at];
	sleeper->depth = at;
	if (!at)
		count_out(sleeper);
	now = bpf_ktime_get_ns();
	if (contended_holds)
		lock_was_waited_for(task, sleep, failed, now);
	wait->class = sleep->class;
	wait->total_ns = now - sleep->begin_ns;
	wait->spin_ns = sleep->spin_ns + (sleep->spinning ? now - sleep->phase_begin_ns : 0);
	/* It found the lock free before it slept: nobody woke it, and it was on its CPU all the while. */
	if (sleep->blocker_source == BLOCKER_WAKEUP_NOT_SEEN && sleep->switches == switches_of(task)) {
		sleep->slept = 0;
		wait->spin_ns = wait->total_ns;
	}
	wait->threshold_ns = sleep->threshold_ns;
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

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock, int failed)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct blame blame = {.source = BLOCKER_NEVER_SLEPT};
	struct wait wait = {.instance = (__u64)lock};
	struct cpu_state *cpu = this_cpu();
	struct half *half = this_half();
	enum found found = FOUND_NOTHING;

	if (paused || !cpu || !half)
		return 0;
	half->runs[PROGRAM_END]++;
	if (cpu->depth)
		found = end_spinning(task, (__u64)lock, cpu, half, &wait);
	if (found == FOUND_NOTHING && by_kprobe)
		hooked_waited((__u64)lock, task, failed);
	if (found == FOUND_NOTHING)
		found = end_sleeping(task, (__u64)lock, failed, half, &wait, &blame);
	if (found == FOUND_WAIT)
		finish_wait(ctx, cpu, half, &wait, &blame);
	else if (found == FOUND_NOTHING && scope == SCOPE_ALL && !only_mmap_lock)
		lose(half, LOSS_END_WITHOUT_BEGIN);
	return 0;
}

static __always_inline void blame_waker(void *ctx, struct sleep_wait *sleep, __u64 now, struct half *half)
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
	stack = take_stack(ctx, cpu, half);
	sleep->blocker = stack;
	sleep->blocker_source = stack ? BLOCKER_WOKEN : BLOCKER_STACK_LOST;
	sleep->blocker_tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(&sleep->blocker_comm, sizeof(sleep->blocker_comm));
}

/* Whoever wakes a waiter that is long enough asleep is its blocker: its stack is the unlock that ended the wait. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *wakee)
{
	struct half *half = this_half();
	struct account *waiter = 0;
	struct sleeper *sleeper = 0;
	struct sleep_wait *sleep;
	__u64 now;

	if (paused || !half)
		return 0;
	half->runs[PROGRAM_WAKING]++;
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
	blame_waker(ctx, sleep, now, half);
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
