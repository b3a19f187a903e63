// SPDX-License-Identifier: GPL-2.0
/*
 * Holds of mmap_lock, from its own tracepoints. Each fires right after an acquisition, or try, and right before a release.
 *
 * mmap_lock_start_locking is not used: what it could tell beyond contention_begin is how long an acquisition takes that is
 * not contended, and a clock read for each.
 *
 * A downgrade fires "acquired" for reading while the lock is held for writing, and no release.
 */
#include "../first_argument.bpf.h"
#include "../holds/hold_counting.bpf.h"
#include "../scope.bpf.h"
#include "memory_cgroup.bpf.h"
#include "untimed_holds.bpf.h"
#include <bpf/bpf_tracing.h>

/*
 * Of a group, one hold is timed in so much time. That takes some 150 ns longer than counting it: if all groups of a CPU are busy, it is half a
 * per cent of its time.
 */
#define MMAP_HOLD_INTERVAL_NS 500000

/* Of an rwsem's count: a writer has it. */
#define RWSEM_WRITER_LOCKED 1

static __always_inline __u64 mmap_lock_of(__u64 mm)
{
	return mm + bpf_core_field_offset(struct mm_struct, mmap_lock);
}

static __always_inline void end_mmap_hold(void *ctx, struct task_struct *task, __u64 mm, struct cpu_state *cpu,
					  struct buffer *buffer, __u32 mode)
{
	__u32 kind_mode = META(KIND_RWSEM, mode, 0);
	__u64 now = 0;
	struct ended_hold ended = end_drawn_hold(cpu, tag_of_hold(mm, mode, task->pid), &now);

	if (!ended.seen)
		return;
	if (ended.stands_for)
		adapt_period(now);
	if (!begin_counting(cpu, buffer))
		return;
	if (ended.stands_for)
		count_held(ctx, CLASS_MMAP_LOCK, mmap_lock_of(mm), kind_mode, now - ended.begin_ns, &ended,
			   who_uses_mm(task, mm, &cpu->mmap_holder), cpu, buffer);
	else
		count_one(buffer, CLASS_MMAP_LOCK, kind_mode, HAPPENED_UNTIMED,
			  who_uses_mm(task, mm, &cpu->mmap_holder));
	end_counting(cpu);
}

static __always_inline void count_failed_try(struct task_struct *task, __u64 mm, struct cpu_state *cpu,
					     struct buffer *buffer, __u32 mode)
{
	if (!begin_counting(cpu, buffer))
		return;
	count_one(buffer, CLASS_MMAP_LOCK, META(KIND_RWSEM, mode, 0), HAPPENED_FAILED,
		  who_uses_mm(task, mm, &cpu->mmap_holder));
	end_counting(cpu);
}

/*
 * Whether a lock that is said to be acquired for reading is held for writing: then this is a downgrade, of which the kernel tells
 * before it is one. Real-time kernels keep who has the lock elsewhere: there a writer must be known.
 */
static __always_inline int is_downgrade(struct cpu_state *cpu, __u64 mm, __u64 tag_of_writer)
{
	if (bpf_core_field_exists(struct rw_semaphore, count))
		return READ_NUMBER(struct mm_struct, mm, mmap_lock.count.counter) & RWSEM_WRITER_LOCKED;
	return is_marked(cpu, tag_of_writer) || find_held(tag_of_writer);
}

static __always_inline void begin_mmap_hold(struct cpu_state *cpu, __u64 mm, __u32 mode, const struct task_struct *task)
{
	struct hold_group *group = group_of(cpu, mm, mode);
	__u32 contended = was_waited_for(cpu, SLEEPING, mmap_lock_of(mm)) ? HELD_CONTENDED : 0, stands_for;
	__u64 tag = tag_of_hold(mm, mode, task->pid), now;

	if (is_passed_over(group)) {
		mark_untimed(cpu, tag);
		return;
	}
	stands_for = draw_gap(cpu, group);
	now = read_clock(cpu, bpf_jiffies64());
	adapt_group(group, now, MMAP_HOLD_INTERVAL_NS);
	begin_hold(tag, now, stands_for | contended);
}

static __always_inline int mmap_acquired_by(void *ctx, int write, int success)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 mode = write ? MODE_WRITE : MODE_READ;
	struct buffer *buffer = this_buffer(&hold_buffers);
	struct cpu_state *cpu = this_cpu();
	__u64 mm = first_argument(ctx);

	if (paused || !buffer || !cpu)
		return 0;
	buffer->runs[PROGRAM_MMAP_ACQUIRED]++;
	if (!in_scope(task))
		return 0;
	if (!success) {
		count_failed_try(task, mm, cpu, buffer, mode);
		return 0;
	}
	if (!write && is_downgrade(cpu, mm, tag_of_hold(mm, MODE_WRITE, task->pid)))
		end_mmap_hold(ctx, task, mm, cpu, buffer, MODE_WRITE);
	begin_mmap_hold(cpu, mm, mode, task);
	return 0;
}

static __always_inline int mmap_released_by(void *ctx, int write)
{
	struct task_struct *task = bpf_get_current_task_btf();
	__u32 mode = write ? MODE_WRITE : MODE_READ;
	struct buffer *buffer = this_buffer(&hold_buffers);
	struct cpu_state *cpu = this_cpu();
	__u64 mm = first_argument(ctx);

	if (paused || !buffer || !cpu)
		return 0;
	buffer->runs[PROGRAM_MMAP_RELEASED]++;
	if (!in_scope(task))
		return 0;
	end_mmap_hold(ctx, task, mm, cpu, buffer, mode);
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
