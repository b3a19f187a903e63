/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds by function hooks: what the programs do that run when a lock was acquired, and before one is released. How they are hooked
 * is said in fentry.bpf.c and kprobe.bpf.c. Loaded only where the kernel allows hooks, and only for those functions that it has.
 *
 * Locks that spin are acquired and released everywhere, also inside the helpers that other programs call. So nothing here touches
 * anything but arrays.
 */
#ifndef LOCKMETER_HOOKS_BPF_H
#define LOCKMETER_HOOKS_BPF_H

#include "../class_cache.bpf.h"
#include "../scope.bpf.h"
#include "hold_counting.bpf.h"
#include "open_holds.bpf.h"

/* Shorter holds are not counted. */
const volatile __u64 min_hold_ns __weak = 0;

/* How many events stand for one whose time in here is measured. A power of two. */
#define TIMED_EVENTS 128

/*
 * No event takes so long: an interrupt came, or a hypervisor took the CPU away. One such, counted 64 times, would switch hooks off that
 * take little.
 */
#define INTERRUPTED_NS 100000

/* What the hooks cost without stacks: those of locks that sleep, and of those that spin. By it the loader switches them off before they hurt. */
__u64 hook_events[2] __weak = {};
__u64 hook_ns[2] __weak = {};
__u32 hooks_off[2] __weak = {};

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
 * Whether the time of a release in here is measured, and since when; an acquisition takes no longer. Events are counted in bunches, or the
 * counter itself would be what all CPUs wait for.
 */
static __always_inline __u64 begin_event(struct cpu_state *cpu, int spinning)
{
	return ++cpu->hook_events[spinning] % (TIMED_EVENTS / 2) ? 0 : bpf_ktime_get_ns();
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

/* After a while without a timed hold its group may be one that has few. */
__hidden void end_gaps(struct cpu_state *cpu);

/* Only while this CPU counts. */
static __always_inline const struct who *who_releases(struct task_struct *task, struct cpu_state *cpu)
{
	struct known_who *known = &cpu->releaser;

	if (!is_known(known, task, (__u64)task->cgroups)) {
		who_waits(task, &known->who);
		if (cpu->gaps_of != *(volatile __u32 *)&generation)
			end_gaps(cpu);
	}
	return &known->who;
}

/* Nearly all. */
static __always_inline void count_untimed(__u64 lock, __u32 kind_mode, struct cpu_state *cpu)
{
	struct buffer *buffer = this_buffer(&hold_buffers);

	if (!buffer || !begin_counting(cpu, buffer))
		return;
	count_one(buffer, class_of(lock, cpu, buffer), kind_mode, HAPPENED_UNTIMED,
		  who_releases(bpf_get_current_task_btf(), cpu));
	end_counting(cpu);
}

/* Any other hold. Returns whether a stack was taken. */
__hidden int count_timed(void *ctx, __u64 lock, __u32 kind_mode, __u64 key, struct cpu_state *cpu);

static __always_inline int is_off(__u32 kind)
{
	return paused || *(volatile __u32 *)&hooks_off[spins(kind)];
}

/* `key`: what the hold is found by. */
static __always_inline int hook_acquired(__u64 lock, __u32 kind, __u64 key)
{
	struct cpu_state *cpu;
	unsigned long interrupts;

	if (is_off(kind))
		return 0;
	if (can_keep_interrupts_off())
		bpf_local_irq_save(&interrupts);
	cpu = this_cpu();
	if (cpu && runs_in_scope())
		open_hold(cpu, spins(kind), lock, key);
	if (can_keep_interrupts_off())
		bpf_local_irq_restore(&interrupts);
	return 0;
}

static __always_inline int hook_released(void *ctx, __u64 lock, __u32 kind, __u32 mode, __u64 key)
{
	struct cpu_state *cpu;
	unsigned long interrupts;
	__u64 begin_ns, tick;
	int took_stack = 0;

	if (is_off(kind))
		return 0;
	if (can_keep_interrupts_off())
		bpf_local_irq_save(&interrupts);
	cpu = this_cpu();
	if (cpu && runs_in_scope()) {
		tick = bpf_jiffies64();
		begin_ns = begin_event(cpu, spins(kind));
		if (close_untimed(&cpu->open_holds[spins(kind)], key, tick))
			count_untimed(lock, META(kind, mode, 0), cpu);
		else
			took_stack = count_timed(ctx, lock, META(kind, mode, 0), key, cpu);
		end_event(spins(kind), begin_ns, took_stack);
	}
	if (can_keep_interrupts_off())
		bpf_local_irq_restore(&interrupts);
	return 0;
}

/* Of a lock that sleeps: the task that runs here has it. */
static __always_inline int is_held(__u64 key)
{
	struct cpu_state *cpu = this_cpu();

	return cpu && (find_open(&cpu->open_holds[SLEEPING], key) >= 0 || find_put_away(key));
}

#endif
