/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Waits for futexes: what the programs that keep the threads' time do about those of them that sleep in a futex call, without
 * touching the processes.
 *
 * A thread that goes to sleep in a futex call begins a wait; the switch back to it ends the wait and counts it, exactly. A
 * task that switches is known to be in a futex call by the registers that it saved when it entered the kernel, so no system
 * call becomes slower. A call that returns at once (EAGAIN) never gets here: it waited for nobody.
 *
 * A wake-up copies the user stacks of a sampled sleeper and of the task that wakes it; the sleeper's only if both share
 * memory. Sampling is in proportion to the waited time, as in the contention programs. The stacks are copied at the wake-up,
 * when it is known how long the wait was; those that nobody of the process wakes (timeouts, signals) leave no stack behind.
 * So the first sleep on every word since the last drain is copied, too: by these stacks the loader tells mutexes from
 * condition variables.
 */
#ifndef LOCKMETER_FUTEX_WAITS_BPF_H
#define LOCKMETER_FUTEX_WAITS_BPF_H

#include "budget.bpf.h"
#include "double_buffer.bpf.h"
#include "past_sleeps.bpf.h"
#include "table_slot.bpf.h"
#include "tables.h"
#include <bpf/bpf_helpers.h>

#define TASK_INTERRUPTIBLE 1
/* Of `jobctl`: it is to stop, for a signal that another thread of its process took, for a debugger, or for a control group. */
#define JOBCTL_TO_STOP (1UL << 17 | 1UL << 19 | 1UL << 20 | 1UL << 23)
/* Of `signal->flags`: all threads of the process end. */
#define SIGNAL_GROUP_EXIT 4
/* Of `flags`: forked, and no program run since. */
#define PF_FORKNOEXEC 0x40

/* System calls of x86-64. */
#define CALL_EXIT 60
#define CALL_FUTEX 202
#define CALL_EXIT_GROUP 231
#define CALL_FUTEX_WAITV 449
#define CALL_FUTEX_WAKE 454
#define CALL_FUTEX_WAIT 455
#define CALL_FUTEX_REQUEUE 456

#define FUTEX_WAIT 0
#define FUTEX_LOCK_PI 6
#define FUTEX_WAIT_BITSET 9
#define FUTEX_WAIT_REQUEUE_PI 11
#define FUTEX_LOCK_PI2 13
#define FUTEX_COMMAND 0x7f
#define FUTEX_PRIVATE 0x80

/* A thread whose wait a signal has interrupted, and which has run for longer since, has ended it. */
#define LONGEST_HANDLER_NS 1000000

/* Words remembered as introduced since the last drain. A power of two. */
#define INTRODUCED 4096

/* Processes told apart by their ids' hashes. A power of two. */
#define ANNOUNCED 4096

/* Set by the loader before the programs are loaded: whether waits for futexes are counted. */
const volatile __u8 with_futexes = 1;

/* Written by the loader while the programs run. */
__u32 generation = 1;	   /* grows at each drain: words are introduced again */
__u64 counted_from_ns = 0; /* waits are no part of the recording until then */

/* A thread's last sleep in a futex call. It goes on if it began when the thread's present state did. */
struct futex_sleep {
	__u64 begin_ns;
	/* How long its wait had been before: before a signal interrupted it. */
	__u64 slept_ns;
	/* How long that has been when a signal interrupted it, if it has neither gone on nor ended since; 0 otherwise. What its thread had
	 * run by then. */
	__u64 interrupted_after_ns;
	__u64 ran_ns;
	__u64 word;
	__u64 threshold_ns;
	__u64 period_ns;
	/* How long it was, once it has timed out; 0 if it did not, or if the thread has slept for something else since. */
	__u64 timed_out_ns;
	__u32 operation;
	__u16 sampled;
	/* One of these; 0 if nobody woke it by a futex call, or by exiting. */
	__u16 released;
};

#define RELEASED 1
/* Its process was ending already. */
#define RELEASED_TO_END 2

__u64 introduced[INTRODUCED];

/* Processes whose first sleep has woken the loader, which reads what they map while they sleep. */
__u32 announced[ANNOUNCED];

/* So that the loader's types include the records. */
struct begin_record *type_of_begin_record;
struct woken_record *type_of_woken_record;
struct end_record *type_of_end_record;

DOUBLE_BUFFER(struct futex_buffer) buffers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} records SEC(".maps");

static __always_inline void lose(struct futex_buffer *buffer, enum loss cause)
{
	__sync_fetch_and_add(&buffer->losses[cause], 1);
}

static __always_inline struct pt_regs *registers_of(struct task_struct *task)
{
	return (struct pt_regs *)bpf_task_pt_regs(task);
}

/* Whether these are the registers of a futex call that may sleep until the word changes. */
static __always_inline int waits_for_futex(const struct pt_regs *regs)
{
	__u64 call = regs->orig_ax;
	__u32 command;

	if (call != CALL_FUTEX)
		return call == CALL_FUTEX_WAITV || call == CALL_FUTEX_WAIT;
	command = regs->si & FUTEX_COMMAND;
	return command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET || command == FUTEX_LOCK_PI ||
	       command == FUTEX_LOCK_PI2 || command == FUTEX_WAIT_REQUEUE_PI;
}

/* Whether a futex call ends by itself. */
static __always_inline int has_time_limit(const struct pt_regs *regs)
{
	return regs->orig_ax == CALL_FUTEX && regs->r10;
}

static __always_inline enum waker waker_of(const struct pt_regs *regs)
{
	__u64 call = regs->orig_ax;

	if (call == CALL_EXIT || call == CALL_EXIT_GROUP)
		return WAKER_EXIT;
	if (call == CALL_FUTEX_WAKE || call == CALL_FUTEX_REQUEUE)
		return WAKER_FUTEX;
	/* A timer can interrupt a futex call that is about to sleep. */
	return call == CALL_FUTEX && !waits_for_futex(regs) ? WAKER_FUTEX : WAKER_OTHER;
}

/* Whether a thread that was woken is to handle a signal, or to stop. */
static __always_inline int is_interrupted(const struct task_struct *task)
{
	__u64 signals = task->pending.signal.sig[0] | task->signal->shared_pending.signal.sig[0];

	return (signals & ~task->blocked.sig[0]) || task->jobctl & JOBCTL_TO_STOP;
}

/* When a wait began that has lasted without a break until the sleep's. */
static __always_inline __u64 wait_begin_ns(const struct futex_sleep *sleep)
{
	return sleep->begin_ns - sleep->slept_ns;
}

/* How long the part of its wait has been that lies in the recording. */
static __always_inline __u64 slept_until(const struct futex_sleep *sleep, __u64 now_ns)
{
	__u64 from_ns = *(volatile __u64 *)&counted_from_ns;

	if (from_ns < wait_begin_ns(sleep))
		from_ns = wait_begin_ns(sleep);
	return now_ns > from_ns ? now_ns - from_ns : 0;
}

/* Copies from a stack of the process whose memory is mapped right now. */
static __always_inline void copy_stack(struct copied_stack *to, const struct pt_regs *regs)
{
	__u64 begin = regs->sp & ~(CHUNK_BYTES - 1ULL);
	__u32 bytes = 0;

	to->ip = regs->ip;
	to->sp = regs->sp;
	to->bp = regs->bp;
	for (int i = 0; i < CHUNKS; i++) {
		if (bpf_probe_read_user(&to->copy[i * CHUNK_BYTES], CHUNK_BYTES, (void *)(begin + i * CHUNK_BYTES)))
			break;
		bytes += CHUNK_BYTES;
	}
	to->bytes = bytes;
}

static __always_inline void spent_on_stacks(struct futex_buffer *buffer, __u64 begin_ns, __u32 stacks)
{
	__u64 spent = bpf_ktime_get_ns() - begin_ns;

	__sync_fetch_and_add(&stack_spent_ns, spent);
	__sync_fetch_and_add(&buffer->stack_ns, spent);
	__sync_fetch_and_add(&buffer->stacks_taken, stacks);
}

static __always_inline void describe_sleep(struct sleep_record *record, enum record_kind kind, struct task_struct *task,
					   const struct futex_sleep *sleep, const struct pt_regs *regs)
{
	record->kind = kind;
	record->tid = task->pid;
	record->tgid = task->tgid;
	record->operation = sleep->operation;
	record->begin_ns = wait_begin_ns(sleep);
	record->word = sleep->word;
	record->expected = regs->dx;
}

/* Sends the stack of a word's first sleep since the last drain. */
static __always_inline void introduce(struct task_struct *task, const struct futex_sleep *sleep,
				      const struct pt_regs *regs, struct futex_buffer *buffer)
{
	__u32 tgid = task->tgid;
	__u64 tag = mix(sleep->word ^ (__u64)tgid << 44) ^ *(volatile __u32 *)&generation;
	__u64 *known = &introduced[mix(tag) % INTRODUCED];
	__u32 *process = &announced[mix(tgid) % ANNOUNCED];
	int is_stranger = *process != tgid;
	struct begin_record *record;

	if (*known == tag || (!is_stranger && over_budget()))
		return;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record)
		return;
	*known = tag;
	describe_sleep(&record->sleep, RECORD_BEGIN, task, sleep, regs);
	record->parent = task->flags & PF_FORKNOEXEC ? task->group_leader->real_parent->tgid : 0;
	record->unused = 0;
	copy_stack(&record->sleeper, regs);
	/* A process that lives shortly could be gone before the loader looks by itself. */
	bpf_ringbuf_submit(record, is_stranger ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP);
	*process = tgid;
	spent_on_stacks(buffer, sleep->begin_ns, 1);
}

/* A wait for several words counts for the first of them. */
struct futex_waiter {
	__u64 value;
	__u64 word;
};

static __always_inline __u64 word_of(const struct pt_regs *regs)
{
	struct futex_waiter first = {};
	__u64 word = regs->di;

	/* Or the compiler makes one load of both words, which the verifier refuses: it has two kinds of pointers. */
	barrier_var(word);
	if (regs->orig_ax == CALL_FUTEX_WAITV && !bpf_probe_read_user(&first, sizeof(first), (void *)word))
		word = first.word;
	return word;
}

/* What is known of a sleep that begins now, or that is met now. */
static __always_inline void begin_sleep(struct futex_sleep *sleep, const struct pt_regs *regs, __u64 word, __u64 now_ns,
					struct futex_buffer *buffer)
{
	/* With its flags: a word shared between processes is another thing than a private one. */
	sleep->operation = regs->orig_ax == CALL_FUTEX ? regs->si & 0xffff : FUTEX_WAIT;
	sleep->word = word;
	sleep->slept_ns = 0;
	sleep->interrupted_after_ns = 0;
	sleep->timed_out_ns = 0;
	sleep->sampled = 0;
	sleep->released = 0;
	draw(&buffer->random, &sleep->threshold_ns, &sleep->period_ns);
	barrier();
	sleep->begin_ns = now_ns;
}

static __always_inline void add_total(struct futex_total *slot, __u64 total_ns)
{
	slot->count++;
	slot->total_ns += total_ns;
	if (total_ns > slot->max_ns)
		slot->max_ns = total_ns;
}

DEFINE_CLAIM_TOTAL(struct futex_total)

union comm {
	char text[COMM_LENGTH];
	__u64 words[2];
};

/* Totals are written by sched_switch alone, each CPU's by that CPU, which it cannot interrupt: nothing needs an atomic. */
static __always_inline void count_total(struct futex_buffer *buffer, const struct futex_sleep *sleep, __u32 tgid,
					__u64 total_ns, __u64 cgroup, const union comm *comm)
{
	__u32 bucket = log2_of(total_ns);
	__u64 word_hash = mix(sleep->word ^ mix((__u64)tgid << 32 | sleep->operation << 8 | bucket));
	__u64 tag = mix(word_hash ^ cgroup) ^ mix(comm->words[0] + 2) ^ mix(comm->words[1] + 3);
	struct futex_total *slot;
	int is_new = 0;

	slot = claim_total(buffer->totals, TOTALS, tag | 1, &is_new);
	if (slot && is_new) {
		buffer->totals_used++;
		slot->cgroup = cgroup;
		__builtin_memcpy(slot->comm, comm->text, COMM_LENGTH);
	}
	if (!slot) {
		/* Too many threads' names: count the word alone. */
		slot = claim_total(buffer->folded, FOLDED, word_hash | 1, &is_new);
		lose(buffer, slot ? LOSS_TASK_FOLDED : LOSS_TOTALS_FULL);
	}
	if (!slot)
		return;
	if (is_new) {
		slot->word = sleep->word;
		slot->tgid = tgid;
		slot->operation = sleep->operation;
		slot->bucket = bucket;
	}
	add_total(slot, total_ns);
}

static __always_inline void read_comm(struct task_struct *task, union comm *comm)
{
	for (int i = 0; i < COMM_LENGTH; i++)
		comm->text[i] = task->comm[i];
}

static __noinline void count_sleep(struct futex_buffer *buffer, const struct futex_sleep *sleep,
				   struct task_struct *task, __u64 total_ns)
{
	union comm comm;

	read_comm(task, &comm);
	count_total(buffer, sleep, task->tgid, total_ns, task->cgroups->dfl_cgrp->kn->id, &comm);
}

/* A wait that a signal has interrupted has not gone on: then that was its end. */
static __always_inline void end_interrupted_wait(struct task_struct *task, struct futex_sleep *sleep)
{
	struct futex_buffer *buffer = this_buffer(&buffers);

	if (buffer && sleep->interrupted_after_ns)
		count_sleep(buffer, sleep, task, sleep->interrupted_after_ns);
	sleep->interrupted_after_ns = 0;
}

/* The running thread goes to sleep. `ran_ns`: what it has run in all. */
static __always_inline void begin_futex_wait(struct task_struct *task, struct futex_sleep *sleep,
					     const struct pt_regs *regs, __u64 now_ns, __u64 ran_ns)
{
	struct futex_buffer *buffer = this_buffer(&buffers);
	__u64 word;

	if (!buffer)
		return;
	word = word_of(regs);
	/* Its signal handled, it waits on: in the same call, or in one that the program made in its place. */
	if (sleep->interrupted_after_ns && word == sleep->word && ran_ns - sleep->ran_ns < LONGEST_HANDLER_NS) {
		sleep->slept_ns = sleep->interrupted_after_ns;
		sleep->interrupted_after_ns = 0;
		barrier();
		sleep->begin_ns = now_ns;
		return;
	}
	end_interrupted_wait(task, sleep);
	/* A condition has two words, side by side. */
	if (sleep->timed_out_ns && word >> 3 == sleep->word >> 3) {
		sleep->operation |= OPERATION_RETRIED;
		count_sleep(buffer, sleep, task, sleep->timed_out_ns);
	}
	begin_sleep(sleep, regs, word, now_ns, buffer);
	adapt_period(now_ns);
	introduce(task, sleep, regs, buffer);
}

/* The thread ends, or sleeps for something else: its last wait for a futex does not go on. */
static __always_inline void futex_waits_are_over(struct task_struct *task, struct futex_sleep *sleep)
{
	end_interrupted_wait(task, sleep);
	sleep->timed_out_ns = 0;
}

/* The thread runs again. */
static __always_inline void end_futex_wait(struct task_struct *task, struct futex_sleep *sleep, __u64 now_ns,
					   __u64 ran_ns)
{
	struct futex_buffer *buffer = this_buffer(&buffers);
	struct pt_regs *regs = registers_of(task);
	__u64 total_ns = slept_until(sleep, now_ns);
	struct end_record *record;
	union comm comm;
	__u64 cgroup;

	if (!buffer)
		return;
	if (!sleep->released && !sleep->sampled && is_interrupted(task)) {
		sleep->interrupted_after_ns = total_ns ?: 1;
		sleep->ran_ns = ran_ns;
		return;
	}
	if (!sleep->released && has_time_limit(regs)) {
		sleep->operation |= OPERATION_TIMED_OUT;
		sleep->timed_out_ns = total_ns;
	}
	cgroup = task->cgroups->dfl_cgrp->kn->id;
	read_comm(task, &comm);
	count_total(buffer, sleep, task->tgid, total_ns, cgroup, &comm);
	if (!sleep->sampled)
		return;
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		lose(buffer, LOSS_RING_FULL);
		return;
	}
	describe_sleep(&record->sleep, RECORD_END, task, sleep, regs);
	record->total_ns = total_ns;
	record->cgroup = cgroup;
	__builtin_memcpy(record->comm, comm.text, COMM_LENGTH);
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
}

/* Somebody wakes the sleeper. */
static __always_inline void wake_futex_waiter(struct task_struct *wakee, struct futex_sleep *sleep, __u64 now_ns)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct pt_regs *regs = registers_of(wakee), *waker_regs = registers_of(waker);
	struct futex_buffer *buffer = this_buffer(&buffers);
	enum waker by = waker_of(waker_regs);
	const struct past_sleeps *past;
	struct woken_record *record;
	int is_stranger;

	if (!buffer)
		return;
	/* Of another process only who wakes by a futex call can be meant, and only for a word that both map. A timer ends a wait in whatever
	 * process it interrupts. */
	is_stranger = waker->tgid != wakee->tgid;
	if (is_stranger &&
	    (by == WAKER_OTHER ? !has_time_limit(regs)
			       : by != WAKER_FUTEX || (regs->orig_ax == CALL_FUTEX && regs->si & FUTEX_PRIVATE)))
		return;
	if (by != WAKER_OTHER)
		sleep->released = wakee->signal->flags & SIGNAL_GROUP_EXIT ? RELEASED_TO_END : RELEASED;
	else if (is_interrupted(wakee))
		return;
	if (sleep->sampled || slept_until(sleep, now_ns) < sleep->threshold_ns)
		return;
	if (over_budget()) {
		lose(buffer, LOSS_OVER_BUDGET);
		return;
	}
	record = bpf_ringbuf_reserve(&records, sizeof(*record), 0);
	if (!record) {
		lose(buffer, LOSS_RING_FULL);
		return;
	}
	sleep->sampled = 1;
	describe_sleep(&record->sleep, RECORD_WOKEN, wakee, sleep, regs);
	/* The memory that can be read here is the waker's. */
	if (is_stranger)
		record->sleeper.bytes = 0;
	else
		copy_stack(&record->sleeper, regs);
	past = bpf_task_storage_get(&past_sleeps, waker, 0, 0);
	for (int i = 0; i < PAST_SLEEPS; i++) {
		record->waker_sleeps[i].begin_ns = past ? past->sleeps[i].begin_ns : 0;
		record->waker_sleeps[i].end_ns = past ? past->sleeps[i].end_ns : 0;
		record->waker_sleeps[i].spent_ns = past ? past->sleeps[i].spent_ns : 0;
		record->waker_sleeps[i].did = past ? past->sleeps[i].did : 0;
	}
	record->woken_ns = now_ns;
	record->waited_ns = slept_until(sleep, now_ns);
	record->period_ns = sleep->period_ns;
	record->waker = by;
	record->waker_tid = waker->pid;
	record->waker_tgid = waker->tgid;
	record->unused = 0;
	for (int i = 0; i < COMM_LENGTH; i++)
		record->waker_comm[i] = waker->comm[i];
	if (by == WAKER_FUTEX)
		copy_stack(&record->releaser, waker_regs);
	else
		record->releaser.bytes = 0;
	bpf_ringbuf_submit(record, BPF_RB_NO_WAKEUP);
	spent_on_stacks(buffer, now_ns, 2);
}

#endif
