/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counting a hold that has ended.
 */
#ifndef LOCKMETER_HOLD_COUNTING_BPF_H
#define LOCKMETER_HOLD_COUNTING_BPF_H

#include "timed_holds.bpf.h"

/*
 * An interrupt, or a task that runs in between, may end a hold, too: each CPU counts one at a time. False: somebody is at it.
 */
static __always_inline int begin_counting(struct cpu_state *cpu, struct buffer *buffer)
{
	if (*(volatile __u32 *)&cpu->counting) {
		lose(buffer, LOSS_HOLD_INTERRUPTED);
		return 0;
	}
	*(volatile __u32 *)&cpu->counting = 1;
	return 1;
}

static __always_inline void end_counting(struct cpu_state *cpu)
{
	*(volatile __u32 *)&cpu->counting = 0;
}

/* Counts a part of a hold, or all of it. Of a hold that was not drawn the weight is 0. */
int count_part(struct buffer *buffer, struct wait *part, __u32 happened, __u64 stack, __u64 weight);

/* Counts what a timed hold stands for beside itself. */
int count_stood_for(struct buffer *buffer, struct wait *hold, __u32 others);

/* Counts the same hold again, for its acquisition was contended: with its stack, if there was room for one in the budget. */
int count_contended(struct buffer *buffer, struct wait *hold, __u64 stack, __u32 stands_for);

/*
 * Counts a hold that has drawn its threshold, with its stack if it lasted longer, or if its acquisition was contended: those are few among
 * the short ones, and mostly none would be drawn. Returns whether a stack was taken.
 */
static __always_inline int count_hold(void *ctx, struct cpu_state *cpu, struct buffer *buffer, struct wait *hold,
				      const struct ended_hold *ended)
{
	__u32 stands_for = ended->stands_for;
	struct buffer *waits = this_buffer(&buffers);
	__u64 stack = 0, weight = 0;

	if (waits && (hold->is_sampled || ended->contended)) {
		stack = take_stack(ctx, cpu, waits);
		weight = hold->is_sampled ? weight_of(hold) * stands_for : 0;
	}
	count_part(buffer, hold, HAPPENED_HOLD, stack, weight);
	if (stands_for > 1)
		count_stood_for(buffer, hold, stands_for - 1);
	if (ended->contended)
		count_contended(buffer, hold, stack, stands_for);
	return !!stack;
}

/* A total, if it is where it is looked for first, else 0. Most are. */
static __always_inline struct total_slot *likely_total(struct buffer *buffer, __u64 class, __u32 meta,
						       const struct who *who)
{
	__u64 tag = tag_of_total(class, meta, who->hash);
	struct total_slot *slot = &buffer->totals[slot_of(tag, TOTALS)];

	return slot->tag == tag ? slot : 0;
}

/* Counts what has no length: a try that failed, a hold that was not timed. */
static __always_inline void count_one(struct buffer *buffer, __u64 class, __u32 kind_mode, __u32 happened,
				      const struct who *who)
{
	struct total_slot *slot = likely_total(buffer, class, kind_mode | happened << 24, who);

	if (slot) {
		slot->count++;
	} else {
		struct wait one = {.class = class, .kind_mode = kind_mode, .who = *who};

		count_part(buffer, &one, happened, 0, 0);
	}
}

/* Adds a hold to its total; 0 if that is to be looked for. */
static __always_inline int add_hold(struct buffer *buffer, __u64 class, __u32 kind_mode, const struct who *who,
				    __u64 held_ns)
{
	struct total_slot *slot =
		likely_total(buffer, class, kind_mode | log2_of(held_ns) << 16 | HAPPENED_HOLD << 24, who);

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
				      const struct ended_hold *ended, const struct who *who, struct cpu_state *cpu,
				      struct buffer *buffer)
{
	__u64 threshold_ns, period_ns;

	draw(&cpu->random_of_holds, &threshold_ns, &period_ns);
	if (ended->stands_for > 1 || ended->contended || held_ns >= threshold_ns ||
	    !add_hold(buffer, class, kind_mode, who, held_ns)) {
		struct wait hold = {
			.class = class,
			.instance = lock,
			.total_ns = held_ns,
			.period_ns = period_ns,
			.kind_mode = kind_mode,
			.is_sampled = held_ns >= threshold_ns,
			.who = *who,
		};

		return count_hold(ctx, cpu, buffer, &hold, ended);
	}
	return 0;
}

#endif
