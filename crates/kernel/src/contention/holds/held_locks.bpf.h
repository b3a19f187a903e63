/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which locks are held since when.
 *
 * A lock that is held has a place in one table without locks, found by the lock alone where it has one holder at a time, by
 * lock and thread where readers share it. So a writer's lock may be released by another task, nothing is allocated, and the
 * programs may run anywhere, under any lock.
 */
#ifndef LOCKMETER_HELD_LOCKS_BPF_H
#define LOCKMETER_HELD_LOCKS_BPF_H

#include "../counting.bpf.h"

/* Locks held at the same time. A power of two. */
#define HELD 16384

/* Where one of them may lie: this many places, two on a line. */
#define HELD_PROBES 6

/* A lock whose release was missed, and that was freed since, would keep its place: one held so long may be driven out. */
#define HELD_STALE_NS 10000000000ULL

/* Set by the loader: holds begin when a function is entered, as kprobe.bpf.c tells. */
const volatile __u8 by_kprobe __weak = 0;

/* In `stands_for`: the acquisition had to wait. */
#define HELD_CONTENDED 0x8000

struct held {
	__u64 tag; /* 0: free */
	__u64 begin_ns;
	__u32 resumed;
	__u16 displaced;  /* since ever: a lock whose first place this is found it taken, and lies in one of the next */
	__u16 stands_for; /* this many holds; 0: it is not timed. The highest bit is HELD_CONTENDED */
	__u64 lock;	  /* of a call whose return is awaited */
};

struct held_table {
	struct held slots[HELD + HELD_PROBES];
};

/* This and the next map exist only where holds are metered. A section of its own: programs know its place and need not look it up. */
struct held_table held_locks __weak SEC(".bss.held_locks");

/* As `buffers`, and drained with them. Apart from them, because the end of a wait may interrupt the counting of a hold. */
DOUBLE_BUFFER(struct buffer) hold_buffers __weak SEC(".maps");

static __always_inline __u64 tag_of_hold(__u64 lock, __u32 mode, __u32 tid)
{
	return mix(mode == MODE_READ ? lock ^ (__u64)tid << 40 : lock) | 1;
}

/* Counts a loss of holds where it is not worth looking the buffer up before. */
static __always_inline void lose_hold(enum loss cause)
{
	struct buffer *buffer = this_buffer(&hold_buffers);

	if (buffer)
		lose(buffer, cause);
}

static __always_inline struct held *first_place(__u64 tag)
{
	return &held_locks.slots[tag >> 40 & (HELD - 1)];
}

/* Where a lock lies that is not in its first place; 0 if nowhere. */
__hidden struct held *find_further(struct held *first, __u64 tag);

static __always_inline struct held *find_held(__u64 tag)
{
	struct held *first = first_place(tag);

	if (*(volatile __u64 *)&first->tag == tag)
		return first;
	return *(volatile __u16 *)&first->displaced ? find_further(first, tag) : 0;
}

__hidden struct held *claim_held(__u64 tag, __u64 now);

/* Its place is free from now on. */
static __always_inline void free_held(struct held *held)
{
	*(volatile __u64 *)&held->begin_ns = 0;
	*(volatile __u64 *)&held->tag = 0;
}

/* Where a lock shall lie that was just acquired. */
__hidden struct held *find_or_claim(__u64 tag, __u64 now);

enum { SLEEPING, SPINNING };

/* A lock was just acquired, whichever: whether this CPU waited for it. */
static __always_inline int was_waited_for(struct cpu_state *cpu, __u32 stack, __u64 lock)
{
	__u64 waited_for = *(volatile __u64 *)&cpu->waited_for[stack];

	if (!waited_for)
		return 0;
	*(volatile __u64 *)&cpu->waited_for[stack] = 0;
	return waited_for == lock;
}

/* The lock was just acquired. How many holds this one stands for matters only to those who ask when it ends. */
static __always_inline void begin_hold(__u64 tag, __u64 now, __u32 stands_for)
{
	struct held *held = first_place(tag);

	/* Mostly its first place is free, and no lock ever had to lie elsewhere. */
	if (*(volatile __u64 *)&held->tag || *(volatile __u16 *)&held->displaced ||
	    __sync_val_compare_and_swap(&held->tag, 0, tag)) {
		held = find_or_claim(tag, now);
		if (!held)
			return;
	}
	held->begin_ns = now;
	held->stands_for = stands_for;
	held->resumed = *(volatile __u32 *)&watched;
}

/* The lock is about to be released: since when it was held, 0 if its acquisition was not seen. */
static __always_inline __u64 end_hold_at(struct held *held)
{
	__u64 begin_ns = 0;

	if (held) {
		if (held->resumed == *(volatile __u32 *)&watched)
			begin_ns = held->begin_ns;
		free_held(held);
	}
	if (!begin_ns)
		lose_hold(LOSS_HOLD_UNMATCHED);
	return begin_ns;
}

static __always_inline __u64 end_hold(__u64 tag)
{
	return end_hold_at(find_held(tag));
}

#endif
