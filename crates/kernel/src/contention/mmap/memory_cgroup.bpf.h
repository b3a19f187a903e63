/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory control group that an address space is counted in: the one that its mmap_lock is to be blamed on, no matter who takes
 * the lock (khugepaged, a reader of /proc).
 */
#ifndef LOCKMETER_MEMORY_CGROUP_BPF_H
#define LOCKMETER_MEMORY_CGROUP_BPF_H

#include "../counting.bpf.h"

/* The control groups of the owner of an address space; of the current task where it has none any more, because it ends. */
static __always_inline __u64 groups_of_mm(__u64 mm, struct task_struct *current)
{
	__u64 owner = 0;

	if (bpf_core_field_exists(struct mm_struct, owner))
		owner = READ_NUMBER(struct mm_struct, mm, owner);
	return owner ? READ_NUMBER(struct task_struct, owner, cgroups) : (__u64)current->cgroups;
}

/* `subsys` is an array: its element as if it were a member. */
static __always_inline __u64 memory_state_of(__u64 groups)
{
	__u64 moved;

	if (!bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		return 0;
	moved = groups + sizeof(void *) * bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id);
	return READ_NUMBER(struct css_set, moved, subsys[0]);
}

static __always_inline __u64 memory_cgroup_in(__u64 groups)
{
	__u64 unified = READ_NUMBER(struct css_set, groups, dfl_cgrp);
	__u64 state = memory_state_of(groups), cgroup, id;

	if (!state)
		return id_of_cgroup(unified);
	cgroup = READ_NUMBER(struct cgroup_subsys_state, state, cgroup);
	id = id_of_cgroup(cgroup);
	/* Two hierarchies number their groups alike. */
	return READ_NUMBER(struct cgroup, cgroup, root) == READ_NUMBER(struct cgroup, unified, root)
		       ? id
		       : id | CGROUP_OF_MEMORY_HIERARCHY;
}

/* The task, in the group of the address space. */
static __always_inline const struct who *who_uses_mm(struct task_struct *task, __u64 mm, struct known_who *known)
{
	__u64 groups = groups_of_mm(mm, task);

	if (!is_known(known, task, groups))
		who_in(task, memory_cgroup_in(groups), &known->who);
	return &known->who;
}

#endif
