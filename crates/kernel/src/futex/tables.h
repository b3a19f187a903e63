/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the futex programs and their loader share: the tables of exact totals and the records of sampled waits.
 *
 * Every CPU has two buffers of tables, drained as those of the contention programs are (`contention/tables.h`). Samples
 * carry bytes of stacks that must be unwound outside the kernel, so they go through a ring buffer.
 *
 * The order of the enums is repeated in `tables.rs`; the layout of the structures is generated from this file.
 */
#ifndef LOCKMETER_FUTEX_TABLES_H
#define LOCKMETER_FUTEX_TABLES_H

#include "copied_stack.h"
#include "past_sleeps.h"

#define COMM_LENGTH 16

/* Room in one buffer of one CPU, some 220 KB. */
#define TOTALS 2048
#define FOLDED 512

/* Slots looked at before a table counts as full. Every table has this many more, so that no search wraps around. */
#define PROBES 12

/* Losses, counted per buffer. */
enum loss {
	LOSS_TASK_FOLDED,
	LOSS_TOTALS_FULL,
	LOSS_OVER_BUDGET,
	LOSS_RING_FULL,
	LOSS_CAUSES,
};

/* Exact totals of one futex word. `tag` is a hash of the key; 0 marks a free slot. */
struct futex_total {
	__u64 tag;
	__u64 word;
	__u64 cgroup;
	__u32 tgid;
	__u16 operation;
	__u16 bucket;
	char comm[COMM_LENGTH];
	__u64 count;
	__u64 total_ns;
	__u64 max_ns;
};

struct futex_buffer {
	struct futex_total totals[TOTALS + PROBES];
	struct futex_total folded[FOLDED + PROBES];
	__u64 losses[LOSS_CAUSES];
	__u64 stack_ns;
	__u64 stacks_taken;
	__u64 totals_used;
	__u64 random;
};

/* In `operation`, beside what the call asked for: nobody woke the sleeper, and the call had a time limit. */
#define OPERATION_TIMED_OUT 0x4000
/* The sleeper came again for the same word, and slept for nothing else between: what was counted as timed out was part of a wait. */
#define OPERATION_RETRIED 0x2000

enum record_kind {
	/* A word's first sleep since the last drain: tells what kind of lock it is. */
	RECORD_BEGIN = 1,
	/* The wake-up that ends a sampled wait. */
	RECORD_WOKEN = 2,
	/* Its end. */
	RECORD_END = 3,
};

/* Who woke the sleeper. */
enum waker {
	/* A timer, a signal: nobody who released anything. */
	WAKER_OTHER = 0,
	/* A futex call of the same process, or of one that maps the same word. */
	WAKER_FUTEX = 1,
	/* The exit of a thread of the same process. */
	WAKER_EXIT = 2,
};

struct sleep_record {
	__u32 kind;
	__u32 tid;
	__u32 tgid;
	__u32 operation;
	__u64 begin_ns;
	__u64 word;
	/* What the sleeper expected in the word. */
	__u64 expected;
};

struct begin_record {
	struct sleep_record sleep;
	/* The process that forked this one, if it maps the same files still; 0 if it has run a program since. */
	__u32 parent;
	__u32 unused;
	struct copied_stack sleeper;
};

struct woken_record {
	struct sleep_record sleep;
	__u64 woken_ns;
	__u64 waited_ns;
	__u64 period_ns;
	__u32 waker;
	__u32 waker_tid;
	__u32 waker_tgid;
	__u32 unused;
	char waker_comm[COMM_LENGTH];
	struct past_sleep waker_sleeps[PAST_SLEEPS];
	struct copied_stack sleeper;
	struct copied_stack releaser;
};

struct end_record {
	struct sleep_record sleep;
	__u64 total_ns;
	__u64 cgroup;
	char comm[COMM_LENGTH];
};

#endif
