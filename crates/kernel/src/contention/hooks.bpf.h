/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds by function hooks: what the programs do that run when a lock was acquired, and before one is released. How they are hooked
 * is said in fentry.bpf.h and kprobe.bpf.h. Loaded only where the kernel allows hooks, and only for those functions that it has.
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

/*
 * No event takes so long: an interrupt came, or a hypervisor took the CPU away. One such, counted 64 times, would switch hooks off that
 * take little.
 */
#define INTERRUPTED_NS 100000

/* What the hooks cost without stacks: those of locks that sleep, and of those that spin, to switch these off before they hurt. */
__u64 hook_events[2] = {};
__u64 hook_ns[2] = {};
__u32 spin_hooks_off = 0;

static __always_inline int spins(__u32 kind)
{
	return kind == KIND_SPIN || kind == KIND_RWLOCK;
}

/*
 * Since 6.14. What an interrupt does while a hook counts, or another task if this one is preempted, would not be counted: the kernel
 * runs no program twice at a time on one CPU.
 */
extern void bpf_local_irq_save(unsigned long *flags) __ksym __weak;
extern void bpf_local_irq_restore(unsigned long *flags) __ksym __weak;
extern int LINUX_KERNEL_VERSION __kconfig;

/* Before 6.15 the verifier lets nobody call a function that it checks by itself, as count_part() is, with interrupts off. */
static __always_inline int can_keep_interrupts_off(void)
{
	if (!bpf_local_irq_save)
		return 0;
	/* What the verifier finds is never reached is left out: so where the function is missing, the rest costs nothing. */
	barrier();
	return !by_kprobe && LINUX_KERNEL_VERSION >= KERNEL_VERSION(6, 15, 0);
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
	__u64 spent_ns;

	if (!begin_ns)
		return;
	__sync_fetch_and_add(&hook_events[spinning], TIMED_EVENTS);
	spent_ns = bpf_ktime_get_ns() - begin_ns;
	if (!took_stack && spent_ns < INTERRUPTED_NS)
		__sync_fetch_and_add(&hook_ns[spinning], spent_ns * TIMED_EVENTS);
}

/* How a lock that a hook saw is found: by kprobes always by its thread, too, for a hold begins before the lock is had. */
static __always_inline __u64 tag_of_hooked(__u64 lock, __u32 mode, const struct task_struct *task)
{
	return tag_of_hold(lock, by_kprobe ? MODE_READ : mode, task);
}

static __always_inline void count_acquired(__u64 lock, __u32 mode)
{
	struct task_struct *task = bpf_get_current_task_btf();

	if (in_scope(task))
		begin_hold(tag_of_hooked(lock, mode, task), bpf_ktime_get_ns(), 1);
}

/* Only while this CPU counts. */
static __always_inline const struct who *who_releases(struct task_struct *task, struct cpu_state *cpu)
{
	struct known_who *known = &cpu->releaser;

	if (!is_known(known, task, (__u64)task->cgroups))
		who_waits(task, &known->who);
	return &known->who;
}

/* Returns whether a stack was taken. */
static __always_inline int count_released(void *ctx, __u64 lock, __u32 kind, __u32 mode, struct cpu_state *cpu)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct half *half;
	__u64 begin_ns, now;
	int took_stack;

	if (!in_scope(task))
		return 0;
	begin_ns = end_hold(tag_of_hooked(lock, mode, task));
	if (!begin_ns)
		return 0;
	now = bpf_ktime_get_ns();
	adapt_period(now);
	half = this_hold_half();
	if (!half || now - begin_ns < min_hold_ns || !begin_counting(cpu, half))
		return 0;
	took_stack = count_held(ctx, class_of(lock, cpu, half), lock, META(kind, mode, 0), now - begin_ns, 1,
				who_releases(task, cpu), cpu, half);
	end_counting(cpu);
	return took_stack;
}

static __always_inline int hook_ran(void *ctx, __u64 lock, __u32 kind, __u32 mode, int acquired)
{
	struct cpu_state *cpu;
	unsigned long interrupts;
	int took_stack = 0;
	__u64 begin_ns;

	if (paused || (spins(kind) && *(volatile __u32 *)&spin_hooks_off))
		return 0;
	if (can_keep_interrupts_off())
		bpf_local_irq_save(&interrupts);
	cpu = this_cpu();
	if (cpu) {
		begin_ns = begin_event(cpu, spins(kind));
		if (acquired)
			count_acquired(lock, mode);
		else
			took_stack = count_released(ctx, lock, kind, mode, cpu);
		end_event(spins(kind), begin_ns, took_stack);
	}
	if (can_keep_interrupts_off())
		bpf_local_irq_restore(&interrupts);
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

static __always_inline int is_held(__u64 lock, __u32 mode)
{
	return !!find_held(tag_of_hooked(lock, mode, bpf_get_current_task_btf()));
}

#endif
