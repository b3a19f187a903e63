/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds of mmap_lock, from its own tracepoints. Each fires right after an acquisition, or try, and right before a release.
 *
 * mmap_lock_start_locking is not used: what it could tell beyond contention_begin is how long an acquisition takes that is
 * not contended, and a clock read for each.
 *
 * A downgrade fires "acquired" for reading while the lock is held for writing, and no release.
 */
#ifndef LOCKMETER_MMAP_BPF_H
#define LOCKMETER_MMAP_BPF_H

#include "first_argument.bpf.h"
#include "holds.bpf.h"
#include "memory_cgroup.bpf.h"
#include "scope.bpf.h"

static __always_inline __u64 mmap_lock_of(__u64 mm)
{
	return mm + bpf_core_field_offset(struct mm_struct, mmap_lock);
}

static __always_inline void count_mmap_hold(void *ctx, struct task_struct *task, __u64 mm, struct half *half,
					    __u64 begin_ns, __u64 now, __u32 mode)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return;
	adapt_period(now);
	if (!begin_counting(cpu, half))
		return;
	count_held(ctx, CLASS_MMAP_LOCK, mmap_lock_of(mm), META(KIND_RWSEM, mode, 0), now - begin_ns,
		   who_uses_mm(task, mm, &cpu->mmap_holder), cpu, half);
	end_counting(cpu);
}

static __always_inline void count_failed_try(struct task_struct *task, __u64 mm, struct half *half, __u32 mode)
{
	struct wait try = {.class = CLASS_MMAP_LOCK, .kind_mode = META(KIND_RWSEM, mode, 0)};
	struct cpu_state *cpu = this_cpu();

	if (!cpu || !begin_counting(cpu, half))
		return;
	try.who = *who_uses_mm(task, mm, &cpu->mmap_holder);
	count_part(half, &try, HAPPENED_FAILED, 0, 0);
	end_counting(cpu);
}

static __always_inline int mmap_acquired_by(void *ctx, int write, int success)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 mode = write ? MODE_WRITE : MODE_READ;
	struct half *half = this_hold_half();
	__u64 mm = first_argument(ctx), now;
	struct held *written;

	if (paused || !half)
		return 0;
	half->runs[PROGRAM_MMAP_ACQUIRED]++;
	if (!in_scope(task))
		return 0;
	if (!success) {
		count_failed_try(task, mm, half, mode);
		return 0;
	}
	now = bpf_ktime_get_ns();
	if (!write) {
		/* Nobody else can hold it for writing now: this is a downgrade. */
		written = find_held(tag_of_hold(mm, MODE_WRITE, task));
		if (written) {
			__u64 begin_ns = end_hold_at(written);

			if (begin_ns)
				count_mmap_hold(ctx, task, mm, half, begin_ns, now, MODE_WRITE);
		}
	}
	begin_hold(tag_of_hold(mm, mode, task), now);
	return 0;
}

static __always_inline int mmap_released_by(void *ctx, int write)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 mode = write ? MODE_WRITE : MODE_READ;
	struct half *half = this_hold_half();
	__u64 mm = first_argument(ctx), begin_ns;

	if (paused || !half)
		return 0;
	half->runs[PROGRAM_MMAP_RELEASED]++;
	if (!in_scope(task))
		return 0;
	begin_ns = end_hold(tag_of_hold(mm, mode, task));
	if (begin_ns)
		count_mmap_hold(ctx, task, mm, half, begin_ns, bpf_ktime_get_ns(), mode);
	return 0;
}

SEC("tp_btf/mmap_lock_acquire_returned")
int BPF_PROG(mmap_acquired, struct mm_struct *mm, _Bool write, _Bool success)
{
	return mmap_acquired_by(ctx, write, success);
}

SEC("tp_btf/mmap_lock_released")
int BPF_PROG(mmap_released, struct mm_struct *mm, _Bool write)
{
	return mmap_released_by(ctx, write);
}

/* Up to Linux 6.13 the tracepoints also hand over the path of the memory control group. */
SEC("tp_btf/mmap_lock_acquire_returned")
int BPF_PROG(mmap_acquired_with_path, struct mm_struct *mm, const char *path, _Bool write, _Bool success)
{
	return mmap_acquired_by(ctx, write, success);
}

SEC("tp_btf/mmap_lock_released")
int BPF_PROG(mmap_released_with_path, struct mm_struct *mm, const char *path, _Bool write)
{
	return mmap_released_by(ctx, write);
}

#endif
