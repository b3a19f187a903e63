/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs that keep the threads' time and their loader share.
 *
 * The layout of the structures is generated from this file; `codes.rs` compares the numbers with the model's.
 */
#ifndef LOCKMETER_THREADS_TABLES_H
#define LOCKMETER_THREADS_TABLES_H

#include "../futex/tables.h"
#include "../spinning/tables.h"
#include "copied_stack.h"
#include "thread_state.h"

/* System calls told apart; one with a higher number counts as `other`. */
#define CALLS 512

/* Frames kept of a kernel stack. */
#define KERNEL_FRAMES 24

/* Bytes read about the word that a futex call waits on, and how far before it they begin. */
#define AROUND_BYTES 64
#define AROUND_BEFORE 16

/* Generations of parents that are followed up to a metered process. */
#define GENERATIONS 64

/* Whose threads. */
enum thread_scope { THREADS_OF_ALL, THREADS_OF_TARGETS, THREADS_OF_CGROUP };

/* The programs, as indices of `runs`. */
enum thread_program { PROGRAM_SWITCH, PROGRAM_WAKING, PROGRAM_CONTENTION, PROGRAM_SAMPLE, PROGRAMS };

/* Of one CPU; they only grow. */
struct thread_counts {
	__u64 runs[PROGRAMS];
	/* Threads that no room was found for. */
	__u64 untracked;
	/* Threads whose end found the ring buffer full. */
	__u64 exits_lost;
};

/* What one thread did so far. */
struct thread_time {
	/* Told apart from all threads before and after it. */
	__u64 id;
	__u32 tid;
	__u32 tgid;
	__u64 cgroup;
	char comm[COMM_LENGTH];
	/* Up to `since_ns`. */
	__u64 spent_ns[STATES];
	/* When its present state began. */
	__u64 since_ns;
	/* When it was last woken: later than `since_ns` if it is about to run. */
	__u64 woken_ns;
	/* How often its state has changed. */
	__u64 changes;
	__u32 state;
	__u32 unused;
};

/* A thread that has ended. */
struct thread_end {
	struct thread_time time;
	/* When its last sleep began, if it was killed or its process ended, and nothing else is known to have ended the sleep; 0 otherwise. */
	__u64 cut_sleep_ns;
};

/* A thread as the iterator finds it: what has changed since the last time. */
struct thread_look {
	/* Of this record. */
	__u32 bytes;
	/* Whether the stacks follow. */
	__u32 has_stacks;
	struct thread_time time;
	/* How long it had slept, at least, when it was first seen, if it sleeps still; 0 otherwise. */
	__u64 before_ns;
	/* The system call that it sleeps in; CALLS if in none. */
	__u32 call;
	/* The process that forked this one, if it maps the same files still; 0 if it has run a program since. */
	__u32 parent;
	/* The kernel lock that it waits for, when that wait began, and the thread that the lock names as its owner. */
	__u64 lock;
	__u64 lock_since_ns;
	__u32 lock_flags;
	__u32 owner_tid;
	__u32 owner_tgid;
	__u32 unused;
	/* Of the kernel: the task, and where its stack ends while it sleeps. */
	__u64 task;
	__u64 stack_pointer;
	/* The futex word that it waits for; 0 if it waits for none. */
	__u64 futex;
	/* The word that it waited for last, with the operation, and when it was released from that; 0 if it was not. */
	__u64 last_word;
	__u64 released_ns;
	/* When it woke another thread last, but by a futex call. */
	__u64 woke_ns;
	/* Whom it woke then, and who woke it last so. */
	__u32 wakee_tid;
	__u32 waker_tid;
	__u32 last_operation;
	/* How often it has left its CPU. */
	__u32 switches;
	/* From here on only with stacks. */
	__u32 kernel_bytes;
	__u32 around_bytes;
	__u64 kernel[KERNEL_FRAMES];
	/* Of a futex call. */
	__u64 word;
	__u64 expected;
	__u64 operation;
	/* Whether the call ends by itself. */
	__u64 timeout;
	__u8 around[AROUND_BYTES];
	struct copied_stack user;
};

#endif
