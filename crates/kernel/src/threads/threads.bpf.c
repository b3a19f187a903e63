// SPDX-License-Identifier: GPL-2.0
/*
 * Keeps the time of every thread in scope, running, runnable, or blocked for a reason, and counts their waits for futexes.
 *
 *   sched_switch           ends what the previous thread and the next one did, to the nanosecond
 *   sched_waking           tells blocked from runnable, and who wakes whom
 *   contention_begin/end   tell a sleep for a kernel lock from others
 *   sample_cpu             at each tick of a CPU's clock: what the thread does that has the CPU
 *   look                   an iterator over all threads: adopts those that began before, and hands over what has changed since it ran
 *                          last, with the stacks of sleeps that it has not met yet
 *
 * The system call of a sleep gives its reason, by a table that the loader fills. Where only a stack can tell, the iterator's does.
 *
 * The switches that a thread takes part in write its account, one at a time; its wake-ups write a single word. So nothing needs a lock. The
 * iterator reads the account as it stands, and again if it was being written.
 */
#include "core.h"
#include "../futex/futex_waits.bpf.h"
#include "../spinning/cpu_samples.bpf.h"
#include "cgroup_scope.bpf.h"
#include "keep_past_sleeps.bpf.h"
#include "lock_class.bpf.h"
#include "lock_kind.bpf.h"
#include "lock_owner.bpf.h"
#include "sleep_reason.bpf.h"
#include "tables.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

/* Of `flags`: a thread of the kernel. */
#define PF_KTHREAD 0x00200000

/* A copy is tried again so often if it was written meanwhile. */
#define TRIES 4

const volatile __u32 scope = THREADS_OF_ALL;
/* Whether children of a target's processes are in scope, too. */
const volatile __u8 with_children = 1;
/* lockmeter's own process, whose threads are in no scope. */
const volatile __u32 own_tgid = 0;

/* Written by the loader while the programs run: whether children of lockmeter itself are in scope. */
__u32 own_children = 0;
/* Stacks that the iterator may still take: of sleeps that have gone on for so long, and of others by chance, in parts of 2^32 - 1. */
__u64 long_sleep_ns = 0;
__u32 long_stacks_left = 0;
__u32 stacks_left = 0;
__u32 stack_chance = 0;
__u64 next_id = 1;

/* Classifies the lock at this address. */
__u64 asked_address = 0;
__u64 told_class = 0;
__u64 class_scratch = 0;
__u64 caches_full = 0;

struct thread {
	struct thread_time time;
	__u64 lock;
	__u64 lock_since_ns;
	__u32 lock_flags;
	__u32 call;
	__u64 before_ns;
	/* `changes` and `woken_ns` when the iterator was here last. */
	__u64 looked;
	__u64 looked_woken_ns;
	/* The begin of the sleep whose stacks were handed over. */
	__u64 described_ns;
	/* The begin of its last sleep. */
	__u64 slept_from_ns;
	/* When it was released from its last sleep for a futex; 0 if it was not. */
	__u64 released_ns;
	/* When it woke another thread last, but by a futex call. */
	__u64 woke_ns;
	/* Whom it woke then, and who woke it last so. */
	__u32 wakee_tid;
	__u32 waker_tid;
	struct futex_sleep futex;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Process ids. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct thread_counts);
} counts SEC(".maps");

/* Threads that have ended. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} exits SEC(".maps");

/* The record in the making: there is one reader. */
struct thread_look current_look;

/* So that the loader's types include them. */
struct thread_counts *type_of_thread_counts;
struct thread_end *type_of_thread_end;

static __always_inline struct thread_counts *counts_here(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&counts, &key);
}

static __always_inline void count_run(enum thread_program program)
{
	struct thread_counts *here = counts_here();

	if (here)
		here->runs[program]++;
}

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	return bpf_task_storage_get(&threads, task, 0, 0);
}

static __always_inline void begin_change(struct thread *thread)
{
	*(volatile __u64 *)&thread->time.changes += 1;
	barrier();
}

static __always_inline void end_change(struct thread *thread)
{
	barrier();
	*(volatile __u64 *)&thread->time.changes += 1;
}

static __always_inline void spend(struct thread *thread, __u32 state, __u64 from_ns, __u64 to_ns)
{
	if (state < STATES && to_ns > from_ns)
		thread->time.spent_ns[state] += to_ns - from_ns;
}

static __always_inline int is_in_futex_wait(const struct thread *thread)
{
	return with_futexes && thread->futex.begin_ns == thread->time.since_ns;
}

static __always_inline void come_to_cpu(struct task_struct *task, __u64 now_ns)
{
	struct thread *thread = thread_of(task);
	int waited_for_futex;
	__u64 woken_ns;

	if (!thread || thread->time.state >= STATES)
		return;
	waited_for_futex = is_in_futex_wait(thread);
	woken_ns = *(volatile __u64 *)&thread->time.woken_ns;
	if (thread->time.state <= STATE_WOKEN || woken_ns <= thread->time.since_ns || woken_ns > now_ns)
		woken_ns = now_ns;
	if (thread->time.state != STATE_RUNNING)
		keep_sleep(task, did_of(thread->time.state, thread->call), thread->time.since_ns, woken_ns);
	keep_sleep(task, STATE_RUNNABLE, woken_ns, now_ns);
	begin_change(thread);
	spend(thread, thread->time.state, thread->time.since_ns, woken_ns);
	spend(thread, STATE_WOKEN, woken_ns, now_ns);
	thread->time.state = STATE_RUNNING;
	thread->time.since_ns = now_ns;
	thread->before_ns = 0;
	end_change(thread);
	if (waited_for_futex) {
		thread->released_ns = thread->futex.released ? now_ns : 0;
		end_futex_wait(task, &thread->futex, now_ns, thread->time.spent_ns[STATE_RUNNING]);
	}
}

/* What a task has run since it came to the CPU, or before it left. */
static __always_inline __u64 burst_ns(struct task_struct *task)
{
	return task->se.sum_exec_runtime - task->se.prev_sum_exec_runtime;
}

/* Some kernels of virtual machines run no program while a thread of their first process is current, and so nobody hears who comes to the
 * CPU after it. What comes has run since then. */
static __always_inline __u64 came_unheard_ns(struct task_struct *task, const struct thread *thread, __u64 now_ns)
{
	__u64 ran_ns = burst_ns(task);

	return ran_ns < now_ns - thread->time.since_ns ? now_ns - ran_ns : now_ns;
}

static __always_inline void leave_cpu(struct task_struct *task, __u32 task_state, _Bool preempt, __u64 now_ns)
{
	struct thread *thread = thread_of(task);
	const struct pt_regs *regs = 0;

	if (!thread || thread->time.state >= STATES)
		return;
	if (thread->time.state != STATE_RUNNING)
		come_to_cpu(task, came_unheard_ns(task, thread, now_ns));
	begin_change(thread);
	spend(thread, STATE_RUNNING, thread->time.since_ns, now_ns);
	if (preempt || !task_state) {
		thread->time.state = STATE_RUNNABLE;
	} else {
		regs = registers_of(task);
		thread->time.state = reason_of(task, thread->lock, task_state, regs, &thread->call);
		thread->slept_from_ns = now_ns;
	}
	thread->time.since_ns = now_ns;
	thread->before_ns = 0;
	end_change(thread);
	/* What sleeps uninterruptibly in a futex call waits for a page, not for the word. */
	if (with_futexes && regs && task_state & TASK_INTERRUPTIBLE && waits_for_futex(regs))
		begin_futex_wait(task, &thread->futex, regs, now_ns, thread->time.spent_ns[STATE_RUNNING]);
	else if (with_futexes && regs && !(task_state & (TASK_STOPPED | TASK_TRACED)))
		futex_waits_are_over(task, &thread->futex);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(thread_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	__u64 now_ns = bpf_ktime_get_ns();

	count_run(PROGRAM_SWITCH);
	if (prev->pid)
		leave_cpu(prev, prev_state, preempt, now_ns);
	if (next->pid)
		come_to_cpu(next, now_ns);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(thread_waking, struct task_struct *wakee)
{
	struct task_struct *here = bpf_get_current_task_btf();
	struct thread *thread = thread_of(wakee), *waker = thread_of(here);
	__u64 now_ns = 0;

	count_run(PROGRAM_WAKING);
	/* Who releases a lock asks nobody for anything. */
	if (waker && waker_of(registers_of(here)) != WAKER_FUTEX) {
		now_ns = bpf_ktime_get_ns();
		waker->woke_ns = now_ns;
		waker->wakee_tid = wakee->pid;
		if (thread)
			thread->waker_tid = here->pid;
	}
	if (!thread)
		return 0;
	if (!now_ns)
		now_ns = bpf_ktime_get_ns();
	*(volatile __u64 *)&thread->time.woken_ns = now_ns;
	if (is_in_futex_wait(thread))
		wake_futex_waiter(wakee, &thread->futex, now_ns);
	return 0;
}

SEC("perf_event")
int sample_cpu(struct sampled_event *event)
{
	struct task_struct *task = bpf_get_current_task_btf();

	count_run(PROGRAM_SAMPLE);
	if (thread_of(task))
		take_sample(event, task);
	return 0;
}

SEC("tp_btf/contention_begin")
int BPF_PROG(thread_contention_begin, void *lock, unsigned int flags)
{
	struct thread *thread;

	/* A thread that spins runs. */
	if (flags & LCB_F_SPIN)
		return 0;
	count_run(PROGRAM_CONTENTION);
	thread = thread_of(bpf_get_current_task_btf());
	if (!thread)
		return 0;
	thread->lock_flags = flags;
	thread->lock_since_ns = bpf_ktime_get_ns();
	thread->lock = (__u64)lock;
	return 0;
}

SEC("tp_btf/contention_end")
int BPF_PROG(thread_contention_end, void *lock, int ret)
{
	struct thread *thread = thread_of(bpf_get_current_task_btf());

	if (thread && thread->lock == (__u64)lock)
		thread->lock = 0;
	return 0;
}

static __always_inline int descends_from_target(struct task_struct *task)
{
	struct task_struct *at = BPF_CORE_READ(task, group_leader);

	for (int i = 0; i < GENERATIONS; i++) {
		__u32 tgid = BPF_CORE_READ(at, tgid);

		if (bpf_map_lookup_elem(&targets, &tgid))
			return 1;
		if (tgid <= 1 || !with_children)
			return 0;
		at = BPF_CORE_READ(at, real_parent, group_leader);
	}
	return 0;
}

static __always_inline int is_in_scope(struct task_struct *task)
{
	if (task->flags & PF_KTHREAD || task->tgid == (int)own_tgid)
		return 0;
	if (scope == THREADS_OF_TARGETS)
		return descends_from_target(task);
	return scope == THREADS_OF_ALL || lies_in_cgroup(task);
}

static __always_inline struct thread *begin_thread(struct task_struct *task, __u32 state, __u64 now_ns)
{
	struct thread *thread = bpf_task_storage_get(&threads, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct thread_counts *here;

	if (!thread) {
		here = counts_here();
		if (here)
			here->untracked++;
		return 0;
	}
	begin_change(thread);
	thread->time.id = __sync_fetch_and_add(&next_id, 1);
	thread->time.tid = task->pid;
	thread->time.tgid = task->tgid;
	thread->time.since_ns = now_ns;
	thread->time.state = state;
	thread->call = CALLS;
	end_change(thread);
	return thread;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(thread_begins, struct task_struct *parent, struct task_struct *child)
{
	int is_process = child->pid == child->tgid;

	if (child->flags & PF_KTHREAD)
		return 0;
	if (parent->tgid == (int)own_tgid) {
		if (!is_process || (scope != THREADS_OF_ALL && !*(volatile __u32 *)&own_children))
			return 0;
	} else if (scope != THREADS_OF_ALL && (!thread_of(parent) || (is_process && !with_children))) {
		return 0;
	}
	begin_thread(child, STATE_WOKEN, bpf_ktime_get_ns());
	return 0;
}

static __always_inline void describe(struct task_struct *task, struct thread_time *time)
{
	time->tid = task->pid;
	time->cgroup = task->cgroups->dfl_cgrp->kn->id;
	for (int i = 0; i < COMM_LENGTH; i++)
		time->comm[i] = task->comm[i];
}

/* Whether a thread that ends with its process was not released from its last sleep before. Only releases by futexes are known. */
static __always_inline int is_cut(struct task_struct *task, const struct thread *thread)
{
	const struct futex_sleep *futex = &thread->futex;
	int was_released = with_futexes && futex->begin_ns == thread->slept_from_ns && futex->released == RELEASED;

	return task->signal->flags & SIGNAL_GROUP_EXIT && !was_released;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(thread_ends, struct task_struct *task)
{
	struct thread *thread = thread_of(task);
	__u64 now_ns = bpf_ktime_get_ns();
	struct thread_counts *here;
	struct thread_end *record;

	if (!thread || thread->time.state >= STATES)
		return 0;
	if (with_futexes)
		futex_waits_are_over(task, &thread->futex);
	begin_change(thread);
	spend(thread, thread->time.state, thread->time.since_ns, now_ns);
	thread->time.state = STATES;
	thread->time.since_ns = now_ns;
	end_change(thread);
	record = bpf_ringbuf_reserve(&exits, sizeof(*record), 0);
	if (record) {
		__builtin_memcpy(&record->time, &thread->time, sizeof(record->time));
		describe(task, &record->time);
		record->cut_sleep_ns = is_cut(task, thread) ? thread->slept_from_ns : 0;
		bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
		return 0;
	}
	here = counts_here();
	if (here)
		here->exits_lost++;
	return 0;
}

/*
 * How long a sleeping thread has slept already, at least: since it last came to a CPU, less what it ran there. Where the kernel does not
 * keep that, since it was last charged for running, by a clock that stands still on a CPU while interrupts and other guests have it.
 */
static __always_inline __u64 slept_ns(struct task_struct *task)
{
	struct task_struct *here = bpf_get_current_task_btf();
	__u64 begin = task->se.exec_start, now = here->se.exec_start;

	if (bpf_core_field_exists(struct task_struct, sched_info.last_arrival)) {
		begin = BPF_CORE_READ(task, sched_info.last_arrival) + burst_ns(task);
		now = BPF_CORE_READ(here, sched_info.last_arrival);
	}
	return now > begin ? now - begin : 0;
}

/* A thread that began before the programs were attached, or that has come into the control group. */
static __always_inline struct thread *adopt(struct task_struct *task, __u64 now_ns)
{
	struct futex_buffer *buffer = with_futexes ? this_buffer(&buffers) : 0;
	__u32 task_state = task->__state;
	const struct pt_regs *regs;
	struct thread *thread;

	thread = begin_thread(task, task->on_cpu ? STATE_RUNNING : STATE_RUNNABLE, now_ns);
	if (!thread || task->on_cpu || !task_state)
		return thread;
	regs = registers_of(task);
	begin_change(thread);
	thread->time.state = reason_of(task, thread->lock, task_state, regs, &thread->call);
	thread->slept_from_ns = now_ns;
	/* Never 0, which says that it has run since. */
	thread->before_ns = slept_ns(task) ?: 1;
	end_change(thread);
	/* The part of its wait that is seen counts. */
	if (buffer && task_state & TASK_INTERRUPTIBLE && waits_for_futex(regs))
		begin_sleep(&thread->futex, regs, regs->di, now_ns, buffer);
	return thread;
}

static __always_inline int copy_time(struct thread_look *to, struct thread *thread)
{
	for (int i = 0; i < TRIES; i++) {
		__u64 changes = *(volatile __u64 *)&thread->time.changes;

		barrier();
		__builtin_memcpy(&to->time, &thread->time, sizeof(to->time));
		to->before_ns = thread->before_ns;
		to->call = thread->call;
		to->lock = thread->lock;
		to->lock_since_ns = thread->lock_since_ns;
		to->lock_flags = thread->lock_flags;
		to->futex = is_in_futex_wait(thread) ? thread->futex.word : 0;
		to->last_word = thread->futex.word;
		to->last_operation = thread->futex.operation;
		to->released_ns = thread->released_ns;
		to->woke_ns = thread->woke_ns;
		to->wakee_tid = thread->wakee_tid;
		to->waker_tid = thread->waker_tid;
		barrier();
		if (!(changes & 1) && *(volatile __u64 *)&thread->time.changes == changes) {
			to->time.changes = changes;
			return 1;
		}
	}
	return 0;
}

static __always_inline void find_owner(struct thread_look *look)
{
	__u32 kind = kind_mode_of(look->lock_flags) & 0xff;
	__u64 owner = look->lock ? read_owner(look->lock, kind) : 0;
	struct task_struct *task = task_of_owner(owner);

	look->owner_tid = 0;
	look->owner_tgid = 0;
	if (!task || (kind == KIND_RWSEM && owner & READER_OWNED))
		return;
	look->owner_tid = BPF_CORE_READ(task, pid);
	look->owner_tgid = BPF_CORE_READ(task, tgid);
}

static __always_inline void copy_user_stack(struct thread_look *look, struct task_struct *task)
{
	const struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	__u64 begin = regs->sp & ~(CHUNK_BYTES - 1ULL);
	__u32 bytes = 0;

	look->user.ip = regs->ip;
	look->user.sp = regs->sp;
	look->user.bp = regs->bp;
	for (int i = 0; i < CHUNKS; i++) {
		if (bpf_copy_from_user_task(&look->user.copy[i * CHUNK_BYTES], CHUNK_BYTES,
					    (void *)(begin + i * CHUNK_BYTES), task, 0))
			break;
		bytes += CHUNK_BYTES;
	}
	look->user.bytes = bytes;
	look->word = 0;
	look->timeout = 0;
	look->around_bytes = 0;
	if (look->call != CALL_FUTEX && look->call != CALL_FUTEX_WAITV && look->call != CALL_FUTEX_WAIT)
		return;
	look->word = regs->di;
	look->expected = regs->dx;
	look->operation = look->call == CALL_FUTEX ? regs->si & 0xffff : 0;
	look->timeout = look->call == CALL_FUTEX ? regs->r10 != 0 : 0;
	if (look->call == CALL_FUTEX_WAITV) {
		/* The first of several words. */
		__u64 first[2] = {};

		if (!bpf_copy_from_user_task(first, sizeof(first), (void *)look->word, task, 0))
			look->word = first[1];
		return;
	}
	/* A lock may lie at the very begin of what is mapped. */
	if (!bpf_copy_from_user_task(look->around, AROUND_BYTES, (void *)(look->word - AROUND_BEFORE), task, 0) ||
	    !bpf_copy_from_user_task(look->around + AROUND_BEFORE, AROUND_BYTES - AROUND_BEFORE, (void *)look->word,
				     task, 0))
		look->around_bytes = AROUND_BYTES;
}

/* Whether the stacks of the sleep are to be taken now, and by which right. */
static __always_inline __u32 *stacks_left_for(const struct thread *thread, const struct thread_look *look, __u64 now_ns)
{
	__u64 slept_ns = now_ns - look->time.since_ns + look->before_ns;

	if (look->time.state <= STATE_WOKEN || thread->described_ns == look->time.since_ns)
		return 0;
	if (slept_ns >= long_sleep_ns)
		return long_stacks_left ? &long_stacks_left : 0;
	return stacks_left && bpf_get_prandom_u32() <= stack_chance ? &stacks_left : 0;
}

SEC("iter.s/task")
int look(struct bpf_iter__task *ctx)
{
	struct thread_look *look = &current_look;
	struct task_struct *task = ctx->task;
	struct thread *thread;
	__u64 now_ns, woken_ns;
	long frames_bytes;
	__u32 *left;

	if (!task || !task->pid)
		return 0;
	now_ns = bpf_ktime_get_ns();
	thread = thread_of(task);
	if (!thread) {
		if (!is_in_scope(task))
			return 0;
		thread = adopt(task, now_ns);
		if (!thread)
			return 0;
	}
	woken_ns = *(volatile __u64 *)&thread->time.woken_ns;
	if (*(volatile __u64 *)&thread->time.changes == thread->looked && woken_ns == thread->looked_woken_ns &&
	    (thread->time.state <= STATE_WOKEN || thread->described_ns == thread->time.since_ns))
		return 0;
	if (!copy_time(look, thread) || look->time.state >= STATES)
		return 0;
	describe(task, &look->time);
	look->parent = task->flags & PF_FORKNOEXEC ? BPF_CORE_READ(task, group_leader, real_parent, tgid) : 0;
	find_owner(look);
	look->task = (__u64)task;
	look->switches = task->nvcsw + task->nivcsw;
	look->stack_pointer = BPF_CORE_READ(task, thread.sp);
	look->has_stacks = 0;
	look->bytes = __builtin_offsetof(struct thread_look, kernel_bytes);
	left = stacks_left_for(thread, look, now_ns);
	if (left) {
		frames_bytes = bpf_get_task_stack(task, look->kernel, sizeof(look->kernel), 0);
		look->kernel_bytes = frames_bytes > 0 ? frames_bytes : 0;
		copy_user_stack(look, task);
		/* Of another sleep by now, they would be taken for this one's. */
		if (*(volatile __u64 *)&thread->time.changes == look->time.changes) {
			look->has_stacks = 1;
			look->bytes = sizeof(*look);
		}
	}
	if (look->has_stacks) {
		if (bpf_seq_write(ctx->meta->seq, look, sizeof(*look)))
			return 0;
		if (left)
			*left -= 1;
		thread->described_ns = look->time.since_ns;
	} else if (bpf_seq_write(ctx->meta->seq, look, __builtin_offsetof(struct thread_look, kernel_bytes))) {
		return 0;
	}
	thread->looked = look->time.changes;
	thread->looked_woken_ns = woken_ns;
	return 0;
}

SEC("syscall")
int classify(void *ctx)
{
	told_class = look_up_class(asked_address, &class_scratch, &caches_full);
	return 0;
}
