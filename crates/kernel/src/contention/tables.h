/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the contention programs and their loader share: the tables that the programs fill and the loader drains.
 *
 * Every CPU has two buffers. The programs fill the active one; to drain, the loader makes the other one active, waits
 * until no program can still be writing (an RCU grace period), reads the old buffer and clears it. So a table needs room
 * for one interval only, nothing is ever deleted while the programs run, and no map lock exists to contend on.
 *
 * The loader's view of these structures is generated from this file's type information; only the order of the enums is
 * repeated in `tables.rs`.
 */
#ifndef LOCKMETER_TABLES_H
#define LOCKMETER_TABLES_H

#include "lock_kind.bpf.h"

#define COMM_LENGTH 16

/* Room in one buffer of one CPU. Together about 0.85 MB; two buffers a CPU. */
#define TOTALS 3072
#define FOLDED 768
#define SAMPLES 1536
#define STACKS 896
#define STACK_DEPTH 48

/* Slots looked at before a table counts as full. Every table has this many more, so that no search wraps around. */
#define PROBES 12

/* How the blocker is known, as the recorder sees it; the loader refines "woken" by the functions on the stack. */
enum blocker {
	BLOCKER_NEVER_SLEPT = 0,
	BLOCKER_WOKEN = 1,
	BLOCKER_NOT_SAMPLED = 2,
	BLOCKER_WAKEUP_NOT_SEEN = 3,
	BLOCKER_STACK_LOST = 4,
	BLOCKER_HANDOVER = 5,
	BLOCKER_EARLIER = 6,
};

/* Losses, counted per buffer. */
enum loss {
	LOSS_TASK_FOLDED,
	LOSS_TOTALS_FULL,
	LOSS_SAMPLES_FULL,
	LOSS_STACKS_FULL,
	LOSS_STACK_TOO_DEEP,
	LOSS_STACK_FAILED,
	LOSS_OVER_BUDGET,
	LOSS_END_WITHOUT_BEGIN,
	LOSS_BEGIN_WITHOUT_END,
	LOSS_NESTED_TOO_DEEP,
	LOSS_NO_TASK_STORAGE,
	LOSS_CACHES_FULL,
	LOSS_HOLD_UNMATCHED,
	LOSS_HOLD_RELEASE_UNSEEN,
	LOSS_HELD_FULL,
	LOSS_HOLD_INTERRUPTED,
	LOSS_CAUSES,
};

/* The programs, as indices of `runs`. */
enum program {
	PROGRAM_BEGIN,
	PROGRAM_END,
	PROGRAM_WAKING,
	PROGRAM_MMAP_ACQUIRED,
	PROGRAM_MMAP_RELEASED,
	PROGRAM_SWITCH,
	PROGRAMS,
};

/* What a total or a sample says happened, in the highest byte of `meta`; 0 there is a wait. */
enum happened {
	HAPPENED_HOLD = 2,
	HAPPENED_CONTENDED_HOLD = 5,
	HAPPENED_CONTENDED_ACQUISITION = 7, /* what that lock's hold adds to the holds */
	HAPPENED_FAILED = 16,
	HAPPENED_HOLDER = 17, /* and what follows: one for each of `enum part` */
	/* Not in the data model: the loader makes holds of them. */
	HAPPENED_UNTIMED = 32, /* a hold that was counted and not timed */
	/* As many holds as a timed one stands for beside itself, each of its length. `spin_ns` holds what they add to the variance: the sum
	 * of that number × (that number + 1). */
	HAPPENED_STOOD_FOR = 33,
};

/* What a holder did while others waited. */
enum part { PART_RUNNING, PART_RUNNABLE, PART_IO, PART_LOCK, PART_RECLAIM, PART_ASLEEP, PARTS };

/* Marks the id of a control group of the memory controller's own hierarchy (version 1). */
#define CGROUP_OF_MEMORY_HIERARCHY (1ULL << 63)

/* Exact totals. `tag` is a hash of the key; 0 marks a free slot. */
struct total_slot {
	__u64 tag;
	__u64 class;
	__u64 cgroup;
	__u32 tgid;
	__u32 meta;
	char comm[COMM_LENGTH];
	__u64 count;
	__u64 total_ns;
	__u64 spin_ns;
	__u64 max_ns;
};

/* What sampled waits stand for. `weight` counts waits in 1/1024ths. */
struct sample_slot {
	__u64 tag;
	__u64 class;
	__u64 instance;
	__u64 site;
	__u64 blocker;
	__u64 cgroup;
	__u32 tgid;
	__u32 meta;
	char comm[COMM_LENGTH];
	__u16 blocker_source;
	/* What the blocker did for most of the time, as the threads' time says it; 0: not known. */
	__u16 blocker_state;
	__u32 blocker_tgid;
	char blocker_comm[COMM_LENGTH];
	__u32 owner_tgid;
	__u32 stacks;
	char owner_comm[COMM_LENGTH];
	/* Whom the blocker waited for itself: the lock, and the stack of who had it. 0: nobody, as far as is known. */
	__u64 root_class;
	__u64 root_stack;
	__u32 root_kind_mode;
	__u32 root_state;
	__u64 weight;
	__u64 total_ns;
	__u64 spin_ns;
	__u64 max_ns;
};

/* A stack, found by the hash of its frames. */
struct stack_slot {
	__u64 hash;
	__u64 depth;
	__u64 frames[STACK_DEPTH];
};

/* The lock that a task waited for longest while it held another, and who released it. */
struct next_lock {
	__u64 class;
	__u64 waited_ns; /* 0: none */
	__u64 end_ns;
	__u32 kind_mode;
	__u32 tgid;
	__u32 tid;
	__u32 unused;
	char comm[COMM_LENGTH];
};

/* A single contended hold: the longest of an interval are kept. */
struct slow_hold {
	__u64 total_ns; /* 0: a free place */
	__u64 end_ns;
	__u64 class;
	__u64 stack;
	__u64 spent_ns[PARTS];
	__u32 kind_mode;
	__u32 tgid;
	__u32 tid;
	__u32 unused;
	char comm[COMM_LENGTH];
	struct next_lock next;
};

/* Room for them, for each CPU and interval: for each power of two from 1 µs up. */
#define SLOW_HOLD_SHIFT 10
#define SLOW_HOLD_BUCKETS 16
#define SLOW_HOLDS_OF_BUCKET 4
#define SLOW_HOLDS (SLOW_HOLD_BUCKETS * SLOW_HOLDS_OF_BUCKET)

struct buffer {
	struct total_slot totals[TOTALS + PROBES];
	struct total_slot folded[FOLDED + PROBES];
	struct sample_slot samples[SAMPLES + PROBES];
	struct stack_slot stacks[STACKS + PROBES];
	struct slow_hold slow_holds[SLOW_HOLDS];
	__u64 losses[LOSS_CAUSES];
	__u64 runs[PROGRAMS];
	__u64 opened;
	__u64 closed;
	__u64 stack_ns;
	__u64 stacks_taken;
	/* Slots in use, to drain early when one table fills. Interrupts may make these a little too small. */
	__u64 totals_used;
	__u64 samples_used;
	__u64 stacks_used;
};

/* Waits that the loader tells the programs of at a time. */
#define OLDER_WAITS 64

/* A wait that nobody saw begin. */
struct older_wait {
	__u64 lock;
	/* From when on it counts. */
	__u64 begin_ns;
	__u32 kind_mode;
	__u32 tid;
	/* How often the task had left its CPU when it was found asleep. */
	__u32 switches;
	__u32 unused;
};

#endif
