/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Counting a wait that has ended: exactly by lock and task, and, if it was drawn, with its stacks.
 */
#ifndef LOCKMETER_COUNTING_BPF_H
#define LOCKMETER_COUNTING_BPF_H

#include "table_slot.bpf.h"
#include "stacks.bpf.h"

struct wait {
	__u64 class;
	__u64 instance;
	__u64 begin_ns; /* of a wait that may sleep */
	__u64 total_ns;
	__u64 spin_ns;
	__u64 period_ns;
	__u32 kind_mode;
	__u32 is_sampled;
	struct who who;
};

/* What the end of a wait has found. */
enum found { FOUND_NOTHING, FOUND_WAIT, FOUND_INNER };

/* Two loads: byte by byte the verifier would have the kernel check each. */
static __always_inline void copy_comm(char *to, const struct task_struct *task)
{
	const __u64 *words = (const __u64 *)task->comm;

	((__u64 *)to)[0] = words[0];
	((__u64 *)to)[1] = words[1];
}

static __always_inline void who_in(struct task_struct *task, __u64 cgroup, struct who *who)
{
	who->cgroup = cgroup;
	who->tgid = task->tgid;
	copy_comm(who->comm, task);
	who->hash =
		mix(who->cgroup ^ (__u64)who->tgid << 32) ^ mix(who->comm_words[0] + 2) ^ mix(who->comm_words[1] + 3);
}

static __always_inline __u64 id_of_cgroup(__u64 cgroup)
{
	__u64 node = READ_NUMBER(struct cgroup, cgroup, kn);

	return READ_NUMBER(struct kernfs_node, node, id);
}

/*
 * By numbers where that is as fast: of each pointer to follow, the verifier of such a kernel would search all types by name, for each way
 * that leads there.
 */
static __always_inline void who_waits(struct task_struct *task, struct who *who)
{
	__u64 groups;

	if (!bpf_rdonly_cast) {
		who_in(task, task->cgroups->dfl_cgrp->kn->id, who);
		return;
	}
	groups = READ_NUMBER(struct task_struct, task, cgroups);
	who_in(task, id_of_cgroup(READ_NUMBER(struct css_set, groups, dfl_cgrp)), who);
}

/*
 * Whether `known` is this task in these groups. If not, its key is set, and `who` is to be. What is remembered of a task is what it is
 * told apart by, so it needs no care when the task ends or is given another name; and what the place of its control groups stands
 * for is looked up anew after each drain.
 */
static __always_inline int is_known(struct known_who *known, const struct task_struct *task, __u64 cgroups)
{
	const __u64 *comm = (const __u64 *)task->comm;
	__u32 now = *(volatile __u32 *)&generation;

	if (known->who.tgid == (__u32)task->tgid && known->who.comm_words[0] == comm[0] &&
	    known->who.comm_words[1] == comm[1] && known->cgroups == cgroups && known->generation == now)
		return 1;
	known->cgroups = cgroups;
	known->generation = now;
	return 0;
}

/*
 * Totals and samples of waits are written by contention_end alone, each CPU's by that CPU. Since 6.1 the kernel lets no program run
 * twice at a time on one CPU and counts what came meanwhile as missed, so nothing here needs an atomic.
 */
static __always_inline void add_total(struct total_slot *slot, const struct wait *wait)
{
	slot->count++;
	slot->total_ns += wait->total_ns;
	slot->spin_ns += wait->spin_ns;
	if (wait->total_ns > slot->max_ns)
		slot->max_ns = wait->total_ns;
}

DEFINE_CLAIM_TOTAL(struct total_slot)

static __always_inline __u64 tag_of_total(__u64 class, __u32 meta, __u64 who_hash)
{
	return mix(class ^ meta * 0x9e3779b97f4a7c15ULL ^ who_hash) | 1;
}

/* The total that a wait belongs to; without the task if there are too many of them, 0 if there is no room at all. */
static __always_inline struct total_slot *total_of(struct buffer *buffer, const struct wait *wait, __u32 meta,
						   const struct who *who)
{
	__u64 tag = tag_of_total(wait->class, meta, who->hash);
	struct total_slot *slot;
	int is_new = 0;

	slot = claim_total(buffer->totals, TOTALS, tag, &is_new);
	if (slot) {
		if (is_new) {
			buffer->totals_used++;
			slot->class = wait->class;
			slot->cgroup = who->cgroup;
			slot->tgid = who->tgid;
			slot->meta = meta;
			__builtin_memcpy(slot->comm, who->comm, COMM_LENGTH);
		}
		return slot;
	}
	/* Too many tasks: count the lock alone. */
	slot = claim_total(buffer->folded, FOLDED, tag_of_total(wait->class, meta, 0), &is_new);
	if (!slot) {
		lose(buffer, LOSS_TOTALS_FULL);
		return 0;
	}
	if (is_new) {
		slot->class = wait->class;
		slot->meta = meta;
	}
	lose(buffer, LOSS_TASK_FOLDED);
	return slot;
}

static __always_inline void count_total(struct buffer *buffer, const struct wait *wait, __u32 meta,
					const struct who *who)
{
	struct total_slot *slot = total_of(buffer, wait, meta, who);

	if (slot)
		add_total(slot, wait);
}

struct blame {
	__u64 stack;
	__u32 source;
	__u32 tgid;
	__u32 owner_tgid;
	__u32 state;
	union {
		char comm[COMM_LENGTH];
		__u64 comm_words[2];
	};
	union {
		char owner_comm[COMM_LENGTH];
		__u64 owner_words[2];
	};
	struct root root;
};

/* How many waits one of this length stands for if it was drawn, in 1/1024ths. */
static __always_inline __u64 weight_of(const struct wait *wait)
{
	__u64 duration = wait->total_ns ? wait->total_ns : 1;

	return duration >= wait->period_ns ? 1024 : (wait->period_ns << 10) / duration;
}

/* Of one wait's time `part_ns` are counted here, and of its weight as much. */
static __always_inline void count_sample(struct buffer *buffer, const struct wait *wait, __u32 meta,
					 const struct who *who, const struct blame *blame, __u64 site, __u64 weight,
					 __u64 part_ns)
{
	__u64 total_ns = wait->total_ns ? wait->total_ns : 1;
	__u64 spin_ns = wait->spin_ns;

	__u64 tag = mix(wait->class ^ mix(meta + 1)) ^ mix(wait->instance);

	tag = mix(tag ^ site) ^ mix(blame->stack + blame->source);
	tag = mix(tag ^ who->hash) ^ mix(blame->root.class + 6) ^
	      mix(blame->root.stack + 7 + blame->state + ((__u64)blame->root.state << 16));
	tag = mix(tag ^ blame->tgid ^ (__u64)blame->owner_tgid << 32) ^ mix(blame->comm_words[0] + 4) ^
	      mix(blame->comm_words[1] + 5);
	tag |= 1;
	for (__u32 i = 0; i < PROBES; i++) {
		struct sample_slot *slot = &buffer->samples[slot_of(tag, SAMPLES) + i];
		__u64 seen = slot->tag;

		if (!seen) {
			slot->tag = tag;
			buffer->samples_used++;
			slot->class = wait->class;
			slot->instance = wait->instance;
			slot->site = site;
			slot->blocker = blame->stack;
			slot->cgroup = who->cgroup;
			slot->tgid = who->tgid;
			slot->meta = meta;
			__builtin_memcpy(slot->comm, who->comm, COMM_LENGTH);
			slot->blocker_source = blame->source;
			slot->blocker_state = blame->state;
			slot->blocker_tgid = blame->tgid;
			__builtin_memcpy(slot->blocker_comm, blame->comm, COMM_LENGTH);
			slot->owner_tgid = blame->owner_tgid;
			__builtin_memcpy(slot->owner_comm, blame->owner_comm, COMM_LENGTH);
			slot->root_class = blame->root.class;
			slot->root_stack = blame->root.stack;
			slot->root_kind_mode = blame->root.kind_mode;
			slot->root_state = blame->root.state;
		}
		if (!seen || seen == tag) {
			if (part_ns * 2 >= wait->total_ns)
				slot->stacks++;
			if (part_ns < wait->total_ns) {
				slot->weight += weight * part_ns / total_ns;
				/* In microseconds, so that the product fits. */
				spin_ns = spin_ns * (part_ns >> 10) / ((total_ns >> 10) + 1);
			} else {
				slot->weight += weight;
			}
			slot->total_ns += part_ns * weight >> 10;
			slot->spin_ns += spin_ns * weight >> 10;
			if (part_ns > slot->max_ns)
				slot->max_ns = part_ns;
			return;
		}
	}
	lose(buffer, LOSS_SAMPLES_FULL);
}

#endif
