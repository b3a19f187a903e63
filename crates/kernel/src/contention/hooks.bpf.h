/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds by function hooks: after each function that acquires a lock, and before each that releases one. Loaded only where the
 * kernel allows hooks, and only those functions that it has.
 *
 * Locks that spin are acquired and released everywhere, also inside the helpers that other programs call. So nothing here touches
 * anything but arrays.
 */
#ifndef LOCKMETER_HOOKS_BPF_H
#define LOCKMETER_HOOKS_BPF_H

#include "holds.bpf.h"
#include "identity.bpf.h"
#include "scope.bpf.h"

/* Shorter holds are not counted. */
const volatile __u64 min_hold_ns = 0;

/* How many events stand for one whose time in here is measured. A power of two. */
#define TIMED_EVENTS 64

/* What the hooks cost without stacks: those of locks that sleep, and of those that spin, to switch these off before they hurt. */
__u64 hook_events[2] = {};
__u64 hook_ns[2] = {};
__u32 spin_hooks_off = 0;

static __always_inline int spins(__u32 kind)
{
	return kind == KIND_SPIN || kind == KIND_RWLOCK;
}

/*
 * Since 6.11. A task that is preempted in a program leaves it busy: what another task does on that CPU meanwhile would not be
 * counted. Whoever holds or has just released a spinlock is not preempted anyway.
 */
extern void bpf_preempt_disable(void) __ksym __weak;
extern void bpf_preempt_enable(void) __ksym __weak;
extern int LINUX_KERNEL_VERSION __kconfig;

/* Before 6.15 the verifier lets nobody call a function that it checks by itself, as count_part() is, with preemption disabled. */
static __always_inline int may_be_preempted(__u32 kind)
{
	return !spins(kind) && bpf_preempt_disable && LINUX_KERNEL_VERSION >= KERNEL_VERSION(6, 15, 0);
}

/*
 * Whether this event's time in here is measured, and since when. Events are counted in bunches, or the counter itself would be
 * what all CPUs wait for.
 */
static __always_inline __u64 begin_event(struct cpu_state *cpu, int spinning)
{
	return ++cpu->hook_events[spinning] % TIMED_EVENTS ? 0 : bpf_ktime_get_ns();
}

static __always_inline void end_event(int spinning, __u64 begin_ns, int took_stack)
{
	if (!begin_ns)
		return;
	__sync_fetch_and_add(&hook_events[spinning], TIMED_EVENTS);
	if (!took_stack)
		__sync_fetch_and_add(&hook_ns[spinning], (bpf_ktime_get_ns() - begin_ns) * TIMED_EVENTS);
}

static __always_inline void count_acquired(__u64 lock, __u32 mode, struct half *half)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct held_table *table = held_table();

	half->runs[PROGRAM_HOOK_ACQUIRED]++;
	if (table && in_scope(task))
		begin_hold(table, tag_of_hold(lock, mode, task), bpf_ktime_get_ns(), half);
}

/* Returns whether a stack was taken. */
static __always_inline int count_released(void *ctx, __u64 lock, __u32 kind, __u32 mode, struct cpu_state *cpu,
					  struct half *half)
{
	struct wait hold = {.instance = lock, .kind_mode = META(kind, mode, 0)};
	struct task_struct *task = bpf_get_current_task_btf();
	struct held_table *table = held_table();
	__u64 begin_ns, now, stack = 0;

	half->runs[PROGRAM_HOOK_RELEASED]++;
	if (!table || !in_scope(task))
		return 0;
	begin_ns = end_hold(table, tag_of_hold(lock, mode, task), half);
	if (!begin_ns)
		return 0;
	now = bpf_ktime_get_ns();
	adapt_period(now);
	hold.total_ns = now - begin_ns;
	if (hold.total_ns >= min_hold_ns && begin_counting(cpu, half)) {
		hold.class = class_of(lock, cpu, half);
		who_waits(task, &hold.who);
		count_hold(ctx, cpu, half, &hold, HAPPENED_HOLD, &stack);
		end_counting(cpu);
	}
	return !!stack;
}

static __always_inline int hook_ran(void *ctx, __u64 lock, __u32 kind, __u32 mode, int acquired)
{
	struct half *half;
	struct cpu_state *cpu;
	int took_stack = 0;
	__u64 begin_ns;

	if (paused || (spins(kind) && *(volatile __u32 *)&spin_hooks_off))
		return 0;
	if (may_be_preempted(kind))
		bpf_preempt_disable();
	half = this_hold_half();
	cpu = this_cpu();
	if (half && cpu) {
		begin_ns = begin_event(cpu, spins(kind));
		if (acquired)
			count_acquired(lock, mode, half);
		else
			took_stack = count_released(ctx, lock, kind, mode, cpu, half);
		end_event(spins(kind), begin_ns, took_stack);
	}
	if (may_be_preempted(kind))
		bpf_preempt_enable();
	return 0;
}

static __always_inline int hook_acquired(void *ctx, __u64 lock, __u32 kind, __u32 mode)
{
	return hook_ran(ctx, lock, kind, mode, 1);
}

static __always_inline int hook_released(void *ctx, __u64 lock, __u32 kind, __u32 mode)
{
	return hook_ran(ctx, lock, kind, mode, 0);
}

/* The first argument as a number, which the verifier lets us calculate with. */
static __always_inline __u64 lock_of(void *ctx)
{
	__u64 lock = 0;

	bpf_get_func_arg(ctx, 0, &lock);
	return lock;
}

static __always_inline __u64 result_of(void *ctx)
{
	__u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return result;
}

static __always_inline int is_held(__u64 lock, __u32 mode)
{
	struct held_table *table = held_table();

	return table && find_held(table, tag_of_hold(lock, mode, bpf_get_current_task_btf()));
}

#define ACQUIRES(function, kind, mode)                                                                                 \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return hook_acquired(ctx, lock_of(ctx), kind, mode);                                                   \
	}

/* Returns 0, or why it gave up. */
#define ACQUIRES_OR_FAILS(function, kind, mode)                                                                        \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return (__u32)result_of(ctx) ? 0 : hook_acquired(ctx, lock_of(ctx), kind, mode);                       \
	}

/* Returns whether it has the lock. */
#define TRIES(function, kind, mode)                                                                                    \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return (__u32)result_of(ctx) ? hook_acquired(ctx, lock_of(ctx), kind, mode) : 0;                       \
	}

/* Calls a function that has a hook, or has the compiler put it in its place: then nobody else has seen this acquisition. */
#define WRAPS(function, kind, mode)                                                                                    \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return is_held(lock_of(ctx), mode) ? 0 : hook_acquired(ctx, lock_of(ctx), kind, mode);                 \
	}

#define WRAPS_TRIES(function, kind, mode)                                                                              \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		if (!(__u32)result_of(ctx) || is_held(lock_of(ctx), mode))                                             \
			return 0;                                                                                      \
		return hook_acquired(ctx, lock_of(ctx), kind, mode);                                                   \
	}

#define RELEASES(function, kind, mode)                                                                                 \
	SEC("fentry/" #function)                                                                                       \
	int releases_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return hook_released(ctx, lock_of(ctx), kind, mode);                                                   \
	}

ACQUIRES(mutex_lock, KIND_MUTEX, MODE_EXCLUSIVE)
WRAPS(mutex_lock_io, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(mutex_lock_interruptible, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(mutex_lock_killable, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(ww_mutex_lock, KIND_MUTEX, MODE_EXCLUSIVE)
ACQUIRES_OR_FAILS(ww_mutex_lock_interruptible, KIND_MUTEX, MODE_EXCLUSIVE)
WRAPS_TRIES(ww_mutex_trylock, KIND_MUTEX, MODE_EXCLUSIVE)
TRIES(mutex_trylock, KIND_MUTEX, MODE_EXCLUSIVE)
RELEASES(mutex_unlock, KIND_MUTEX, MODE_EXCLUSIVE)

ACQUIRES(down_read, KIND_RWSEM, MODE_READ)
ACQUIRES_OR_FAILS(down_read_interruptible, KIND_RWSEM, MODE_READ)
ACQUIRES_OR_FAILS(down_read_killable, KIND_RWSEM, MODE_READ)
TRIES(down_read_trylock, KIND_RWSEM, MODE_READ)
ACQUIRES(down_write, KIND_RWSEM, MODE_WRITE)
ACQUIRES_OR_FAILS(down_write_killable, KIND_RWSEM, MODE_WRITE)
TRIES(down_write_trylock, KIND_RWSEM, MODE_WRITE)
RELEASES(up_read, KIND_RWSEM, MODE_READ)
RELEASES(up_write, KIND_RWSEM, MODE_WRITE)

/* Ends a write hold here, and begins a read hold when it returns. */
RELEASES(downgrade_write, KIND_RWSEM, MODE_WRITE)
ACQUIRES(downgrade_write, KIND_RWSEM, MODE_READ)

/* Readers of a percpu-rwsem touch only a counter of their CPU, inline: no function, no hook. */
ACQUIRES(percpu_down_write, KIND_PERCPU_RWSEM, MODE_WRITE)
RELEASES(percpu_up_write, KIND_PERCPU_RWSEM, MODE_WRITE)

ACQUIRES(_raw_spin_lock, KIND_SPIN, MODE_EXCLUSIVE)
ACQUIRES(_raw_spin_lock_bh, KIND_SPIN, MODE_EXCLUSIVE)
ACQUIRES(_raw_spin_lock_irq, KIND_SPIN, MODE_EXCLUSIVE)
ACQUIRES(_raw_spin_lock_irqsave, KIND_SPIN, MODE_EXCLUSIVE)
TRIES(_raw_spin_trylock, KIND_SPIN, MODE_EXCLUSIVE)
TRIES(_raw_spin_trylock_bh, KIND_SPIN, MODE_EXCLUSIVE)
RELEASES(_raw_spin_unlock, KIND_SPIN, MODE_EXCLUSIVE)
RELEASES(_raw_spin_unlock_bh, KIND_SPIN, MODE_EXCLUSIVE)
RELEASES(_raw_spin_unlock_irq, KIND_SPIN, MODE_EXCLUSIVE)
RELEASES(_raw_spin_unlock_irqrestore, KIND_SPIN, MODE_EXCLUSIVE)

ACQUIRES(_raw_read_lock, KIND_RWLOCK, MODE_READ)
ACQUIRES(_raw_read_lock_bh, KIND_RWLOCK, MODE_READ)
ACQUIRES(_raw_read_lock_irq, KIND_RWLOCK, MODE_READ)
ACQUIRES(_raw_read_lock_irqsave, KIND_RWLOCK, MODE_READ)
TRIES(_raw_read_trylock, KIND_RWLOCK, MODE_READ)
RELEASES(_raw_read_unlock, KIND_RWLOCK, MODE_READ)
RELEASES(_raw_read_unlock_bh, KIND_RWLOCK, MODE_READ)
RELEASES(_raw_read_unlock_irq, KIND_RWLOCK, MODE_READ)
RELEASES(_raw_read_unlock_irqrestore, KIND_RWLOCK, MODE_READ)

ACQUIRES(_raw_write_lock, KIND_RWLOCK, MODE_WRITE)
ACQUIRES(_raw_write_lock_bh, KIND_RWLOCK, MODE_WRITE)
ACQUIRES(_raw_write_lock_irq, KIND_RWLOCK, MODE_WRITE)
ACQUIRES(_raw_write_lock_irqsave, KIND_RWLOCK, MODE_WRITE)
ACQUIRES(_raw_write_lock_nested, KIND_RWLOCK, MODE_WRITE)
TRIES(_raw_write_trylock, KIND_RWLOCK, MODE_WRITE)
RELEASES(_raw_write_unlock, KIND_RWLOCK, MODE_WRITE)
RELEASES(_raw_write_unlock_bh, KIND_RWLOCK, MODE_WRITE)
RELEASES(_raw_write_unlock_irq, KIND_RWLOCK, MODE_WRITE)
RELEASES(_raw_write_unlock_irqrestore, KIND_RWLOCK, MODE_WRITE)

#endif
