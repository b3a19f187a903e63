/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The memory control group that an address space is counted in: the one that its mmap_lock is to be blamed on, whoever takes
 * the lock (khugepaged, a reader of /proc).
 */
#ifndef LOCKMETER_MEMORY_CGROUP_BPF_H
#define LOCKMETER_MEMORY_CGROUP_BPF_H

#include "state.bpf.h"

static __always_inline __u64 memory_cgroup_of(struct mm_struct *mm, struct task_struct *current)
{
	struct cgroup_subsys_state *state = 0;
	struct task_struct *owner = 0;
	struct cgroup *unified, *cgroup;
	struct css_set *set;
	__u64 id;

	if (bpf_core_field_exists(mm->owner))
		owner = BPF_CORE_READ(mm, owner);
	/* An address space that ends has no owner any more. */
	set = owner ? BPF_CORE_READ(owner, cgroups) : BPF_CORE_READ(current, cgroups);
	unified = BPF_CORE_READ(set, dfl_cgrp);
	if (bpf_core_enum_value_exists(enum cgroup_subsys_id, memory_cgrp_id))
		bpf_core_read(&state, sizeof(state),
			      (void *)set + bpf_core_field_offset(struct css_set, subsys) +
				      bpf_core_enum_value(enum cgroup_subsys_id, memory_cgrp_id) * sizeof(void *));
	if (!state)
		return BPF_CORE_READ(unified, kn, id);
	cgroup = BPF_CORE_READ(state, cgroup);
	id = BPF_CORE_READ(cgroup, kn, id);
	/* Two hierarchies number their groups alike. */
	return BPF_CORE_READ(cgroup, root) == BPF_CORE_READ(unified, root) ? id : id | CGROUP_OF_MEMORY_HIERARCHY;
}

#endif
