/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the latency programs and their loader share: the tables that the programs fill and the loader drains.
 *
 * Every CPU has two buffers, as in contention/tables.h. A slot holds the whole histogram of one handler or function, so that an
 * event touches two lines of one slot and looks nothing else up.
 */
#ifndef LOCKMETER_LATENCY_TABLES_H
#define LOCKMETER_LATENCY_TABLES_H

/* Room in one buffer of one CPU. Together about 0.54 MB; two buffers a CPU. */
#define RUNNERS 160
#define LONG_RUNS 128

/* Slots looked at before a table counts as full. It has this many more, so that no search wraps around. */
#define PROBES 12

/* Powers of two of nanoseconds; the last holds all that is longer than 9 minutes. */
#define BUCKETS 40

#define NAME_LENGTH 32
#define COMM_LENGTH 16

/* Different locks remembered for one run. */
#define RUN_WAITS 4
/* Frames kept of where one waited, those of the programs and of the lock included. */
#define WAIT_FRAMES 16

/* What ran. Kinds above WORK have slots of their own but are no kinds of the model. */
enum runner {
	RUNNER_IRQ = 1,
	RUNNER_SOFTIRQ = 2,
	RUNNER_TASKLET = 3,
	RUNNER_TIMER = 4,
	RUNNER_HRTIMER = 5,
	RUNNER_WORK = 6,
	/* Time that a work item was off the CPU between its begin and its end. */
	RUNNER_WORK_ASLEEP = 7,
};

/* Interrupts of the CPU itself have no number in /proc/interrupts but these names; they follow the numbers of devices. */
#define VECTOR_NUMBERS 0xff00
enum vector {
	VECTOR_LOCAL_TIMER,
	VECTOR_RESCHEDULE,
	VECTOR_CALL_FUNCTION,
	VECTOR_IRQ_WORK,
	VECTOR_THERMAL,
};

/*
 * What ran, in 64 bits: the kind in the top byte; below it the address of the function, whose own top byte is all ones in
 * the kernel, or the number of the softirq. Of an interrupt 16 bits of its number and the low 40 bits of the handler's
 * address, for devices may share a number.
 */
#define RUNNER_KEY(runner, id) ((__u64)(runner) << 56 | ((__u64)(id)&0x00ffffffffffffffULL))
#define IRQ_ID(number, handler) (((__u64)(number)&0xffff) << 40 | ((__u64)(handler)&0xffffffffffULL))

/* Losses, counted per CPU. */
enum run_loss {
	RUN_LOSS_RUNS_FULL,
	RUN_LOSS_RUN_UNPAIRED,
	RUN_LOSS_QUEUEING_NOT_SEEN,
	RUN_LOSS_LONG_RUNS_FULL,
	RUN_LOSS_NO_TASK_STORAGE,
	RUN_LOSS_CACHES_FULL,
	RUN_LOSSES,
};

/*
 * What is timed only in windows where it comes so often that timing all of it would cost too much. The kernel counts these by
 * itself, so only their times rest on windows.
 */
enum window {
	WINDOW_ALWAYS, /* everything else */
	WINDOW_SOFTIRQS,
	WINDOW_VECTORS,
	WINDOW_IRQS,
	WINDOWS,
};

/* A window's state in the low bits, above them its number, which grows each time it is opened. */
#define WINDOW_BITS 2
#define WINDOW_OF(state) ((state) & ((1 << WINDOW_BITS) - 1))
enum window_state {
	WINDOW_SHUT, /* its programs may be detached at any time */
	WINDOW_OPEN,
	WINDOW_CLOSING, /* what has begun may end */
};

/* The programs, in the order in which the loader counts their runs. */
enum run_program {
	RUN_PROGRAM_IRQ_ENTRY,
	RUN_PROGRAM_IRQ_EXIT,
	RUN_PROGRAM_SOFTIRQ_RAISE,
	RUN_PROGRAM_SOFTIRQ_ENTRY,
	RUN_PROGRAM_SOFTIRQ_EXIT,
	RUN_PROGRAM_TASKLET_ENTRY,
	RUN_PROGRAM_TASKLET_EXIT,
	RUN_PROGRAM_TIMER_ENTRY,
	RUN_PROGRAM_TIMER_EXIT,
	RUN_PROGRAM_HRTIMER_ENTRY,
	RUN_PROGRAM_HRTIMER_EXIT,
	RUN_PROGRAM_WORK_QUEUE,
	RUN_PROGRAM_WORK_START,
	RUN_PROGRAM_WORK_END,
	RUN_PROGRAM_LOCAL_TIMER_ENTRY,
	RUN_PROGRAM_LOCAL_TIMER_EXIT,
	RUN_PROGRAM_RESCHEDULE_ENTRY,
	RUN_PROGRAM_RESCHEDULE_EXIT,
	RUN_PROGRAM_CALL_ENTRY,
	RUN_PROGRAM_CALL_EXIT,
	RUN_PROGRAM_CALL_SINGLE_ENTRY,
	RUN_PROGRAM_CALL_SINGLE_EXIT,
	RUN_PROGRAM_IRQ_WORK_ENTRY,
	RUN_PROGRAM_IRQ_WORK_EXIT,
	RUN_PROGRAM_THERMAL_ENTRY,
	RUN_PROGRAM_THERMAL_EXIT,
	RUN_PROGRAM_LOCK_BEGIN,
	RUN_PROGRAM_LOCK_END,
	RUN_PROGRAMS,
};

/* `own_ns`: without what was called and is counted in a slot of its own. */
struct run_bucket {
	__u64 count;
	__u64 total_ns;
	__u64 max_ns;
	__u64 own_ns;
};

/* Delays of timers are counted in ticks, for that is all that the kernel knows: the loader turns them into time. */
struct runner_slot {
	__u64 key; /* 0 marks a free slot */
	char name[NAME_LENGTH];
	struct run_bucket runs[BUCKETS];
	struct run_bucket delays[BUCKETS];
};

/* The waits for one lock, and the stack of the longest of them. */
struct run_wait {
	__u64 class;
	__u64 total_ns;
	__u64 max_ns;
	__u32 count;
	__u32 kind_mode;
	__u64 frames[WAIT_FRAMES];
};

struct long_run {
	__u64 key; /* written last; 0 while it is being written */
	__u64 begin_ns;
	__u64 run_ns;
	__u64 asleep_ns;
	__u64 delay_ns; /* all ones: not known */
	__u32 tgid;
	__u32 unused;
	char comm[COMM_LENGTH];
	struct run_wait waits[RUN_WAITS];
};

struct run_buffer {
	struct runner_slot runners[RUNNERS + PROBES];
	struct long_run long_runs[LONG_RUNS];
	__u64 losses[RUN_LOSSES];
	__u64 long_runs_used;
	/* Slots in use, to drain early when the table fills. Interrupts may make this a little too small. */
	__u64 runners_used;
};

#endif
