/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds: which locks are held since when, and the counting of a hold that has ended.
 *
 * A lock that is held has a place in one table without locks, found by the lock alone where it has one holder at a time, by
 * lock and thread where readers share it. So a writer's lock may be released by another task, nothing is allocated, and the
 * programs may run anywhere, under any lock.
 */
#ifndef LOCKMETER_HOLDS_BPF_H
#define LOCKMETER_HOLDS_BPF_H

#include "counting.bpf.h"

/* Locks held at the same time. A power of two. */
#define HELD 16384

/* Where one of them may lie: so many places, two on a line. */
#define HELD_PROBES 6

/* A lock whose release was missed, and that was freed since, would keep its place: one held so long may be driven out. */
#define HELD_STALE_NS 10000000000ULL

/* Set by the loader: holds begin when a function is entered, as kprobe.bpf.h tells. */
const volatile __u8 by_kprobe = 0;

struct held {
	__u64 tag; /* 0: free */
	__u64 begin_ns;
	__u32 resumed;
	__u16 displaced;  /* since ever: a lock whose first place this is found it taken, and lies in one of the next */
	__u16 stands_for; /* so many holds; 0: it is not timed */
	__u64 lock;	  /* of a call whose return is awaited */
};

struct held_table {
	struct held slots[HELD + HELD_PROBES];
};

/* This and the next map exist only where holds are metered. A section of its own: programs know its place and need not look it up. */
struct held_table held_locks SEC(".bss.held_locks");

/* As `halves`, and drained with them. Apart from them, because the end of a wait may interrupt the counting of a hold. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2); /* two a CPU, set by the loader */
	__type(key, __u32);
	__type(value, struct half);
} hold_halves SEC(".maps");

static __always_inline struct half *this_hold_half(void)
{
	__u32 key = bpf_get_smp_processor_id() * 2 + (*(volatile __u32 *)&active_half & 1);

	return bpf_map_lookup_elem(&hold_halves, &key);
}

static __always_inline __u64 tag_of_hold(__u64 lock, __u32 mode, __u32 tid)
{
	return mix(mode == MODE_READ ? lock ^ (__u64)tid << 40 : lock) | 1;
}

/* Counts a loss of holds where it is not worth looking the half up before. */
static __always_inline void lose_hold(enum loss cause)
{
	struct half *half = this_hold_half();

	if (half)
		lose(half, cause);
}

static __always_inline struct held *first_place(__u64 tag)
{
	return &held_locks.slots[tag >> 40 & (HELD - 1)];
}

/*
 * Where a lock lies that is not in its first place; 0 if nowhere. Not inline, as all that is seldom needed: what is needed always would
 * have to keep its registers in memory.
 */
static __noinline struct held *find_further(struct held *first, __u64 tag)
{
	for (__u32 i = 1; i < HELD_PROBES; i++)
		if (*(volatile __u64 *)&first[i].tag == tag)
			return &first[i];
	return 0;
}

static __always_inline struct held *find_held(__u64 tag)
{
	struct held *first = first_place(tag);

	if (*(volatile __u64 *)&first->tag == tag)
		return first;
	return *(volatile __u16 *)&first->displaced ? find_further(first, tag) : 0;
}

static __noinline struct held *claim_held(__u64 tag, __u64 now)
{
	struct held *first = first_place(tag);
	struct held *stale = 0;
	__u64 stale_tag = 0;

	for (__u32 i = 0; i < HELD_PROBES; i++) {
		struct held *held = &first[i];
		__u64 seen = *(volatile __u64 *)&held->tag;
		__u64 begin_ns = *(volatile __u64 *)&held->begin_ns;

		if (i)
			*(volatile __u16 *)&first->displaced = 1;
		if (!seen && !__sync_val_compare_and_swap(&held->tag, 0, tag))
			return held;
		/* 0: it was claimed this instant. */
		if (seen && begin_ns && begin_ns + HELD_STALE_NS < now) {
			stale = held;
			stale_tag = seen;
		}
	}
	if (!stale || __sync_val_compare_and_swap(&stale->tag, stale_tag, tag) != stale_tag) {
		lose_hold(LOSS_HELD_FULL);
		return 0;
	}
	if (stale->resumed == *(volatile __u32 *)&watched)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	return stale;
}

/* Its place is free from now on. */
static __always_inline void free_held(struct held *held)
{
	*(volatile __u64 *)&held->begin_ns = 0;
	*(volatile __u64 *)&held->tag = 0;
}

/* Where a lock shall lie that was just acquired. */
static __noinline struct held *find_or_claim(__u64 tag, __u64 now)
{
	struct held *held = find_held(tag);

	if (!held)
		return claim_held(tag, now);
	if (held->resumed == *(volatile __u32 *)&watched)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	return held;
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

/*
 * An interrupt, or a task that runs in between, may end a hold, too: each CPU counts one at a time. False: somebody is at it.
 */
static __always_inline int begin_counting(struct cpu_state *cpu, struct half *half)
{
	if (*(volatile __u32 *)&cpu->counting) {
		lose(half, LOSS_HOLD_INTERRUPTED);
		return 0;
	}
	*(volatile __u32 *)&cpu->counting = 1;
	return 1;
}

static __always_inline void end_counting(struct cpu_state *cpu)
{
	*(volatile __u32 *)&cpu->counting = 0;
}

/*
 * Not inline: the verifier would follow it on every way that leads here, in each of fifty hooks. Of a hold that was not drawn
 * the weight is 0.
 */
__noinline int count_part(struct half *half, struct wait *part, __u32 happened, __u64 stack, __u64 weight)
{
	struct blame nobody = {.source = BLOCKER_NEVER_SLEPT};
	__u32 meta;

	if (!half || !part)
		return 0;
	meta = part->kind_mode | log2_of(part->total_ns) << 16 | happened << 24;
	count_total(half, part, meta, &part->who);
	if (weight)
		count_sample(half, part, meta, &part->who, &nobody, stack, weight);
	return 0;
}

/* Counts what a timed hold stands for beside itself. */
__noinline int count_stood_for(struct half *half, struct wait *hold, __u32 others)
{
	struct total_slot *slot;

	if (!half || !hold)
		return 0;
	slot = total_of(half, hold, hold->kind_mode | log2_of(hold->total_ns) << 16 | HAPPENED_STOOD_FOR << 24,
			&hold->who);
	if (slot) {
		slot->count += others;
		slot->total_ns += hold->total_ns * others;
	}
	return 0;
}

/* Counts a hold that has drawn its threshold, with its stack if it lasted longer. Returns whether one was taken. */
static __always_inline int count_hold(void *ctx, struct cpu_state *cpu, struct half *half, struct wait *hold,
				      __u32 stands_for)
{
	struct half *waits = this_half();
	__u64 stack = 0, weight = 0;

	if (hold->total_ns >= hold->threshold_ns && waits) {
		stack = take_stack(ctx, cpu, waits);
		weight = weight_of(hold) * stands_for;
	}
	count_part(half, hold, HAPPENED_HOLD, stack, weight);
	if (stands_for > 1)
		count_stood_for(half, hold, stands_for - 1);
	return !!stack;
}

/* A total, if it is where it is looked for first, else 0. Most are. */
static __always_inline struct total_slot *likely_total(struct half *half, __u64 class, __u32 meta,
						       const struct who *who)
{
	__u64 tag = tag_of_total(class, meta, who->hash);
	struct total_slot *slot = &half->totals[slot_of(tag, TOTALS)];

	return slot->tag == tag ? slot : 0;
}

/* Counts what has no length: a try that failed, a hold that was not timed. */
static __always_inline void count_one(struct half *half, __u64 class, __u32 kind_mode, __u32 happened,
				      const struct who *who)
{
	struct total_slot *slot = likely_total(half, class, kind_mode | happened << 24, who);

	if (slot) {
		slot->count++;
	} else {
		struct wait one = {.class = class, .kind_mode = kind_mode, .who = *who};

		count_part(half, &one, happened, 0, 0);
	}
}

/* Adds a hold to its total; 0 if that is to be looked for. */
static __always_inline int add_hold(struct half *half, __u64 class, __u32 kind_mode, const struct who *who,
				    __u64 held_ns)
{
	struct total_slot *slot =
		likely_total(half, class, kind_mode | log2_of(held_ns) << 16 | HAPPENED_HOLD << 24, who);

	if (!slot)
		return 0;
	slot->count++;
	slot->total_ns += held_ns;
	if (held_ns > slot->max_ns)
		slot->max_ns = held_ns;
	return 1;
}

/* Returns whether a stack was taken. */
static __always_inline int count_held(void *ctx, __u64 class, __u64 lock, __u32 kind_mode, __u64 held_ns,
				      __u32 stands_for, const struct who *who, struct cpu_state *cpu, struct half *half)
{
	__u64 threshold_ns, period_ns;

	draw(&cpu->random_of_holds, &threshold_ns, &period_ns);
	if (stands_for > 1 || held_ns >= threshold_ns || !add_hold(half, class, kind_mode, who, held_ns)) {
		struct wait hold = {
			.class = class,
			.instance = lock,
			.total_ns = held_ns,
			.threshold_ns = threshold_ns,
			.period_ns = period_ns,
			.kind_mode = kind_mode,
			.who = *who,
		};

		return count_hold(ctx, cpu, half, &hold, stands_for);
	}
	return 0;
}

#endif
