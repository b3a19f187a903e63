/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whether any task, not the running one alone, is in a control group or below it.
 */
#ifndef LOCKMETER_CGROUP_SCOPE_BPF_H
#define LOCKMETER_CGROUP_SCOPE_BPF_H

#include "core.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

/* Set by the loader before the programs are loaded: the group's id, and how far below the root it is. */
const volatile __u64 scope_cgroup = 0;
const volatile __u32 scope_cgroup_level = 0;

static __always_inline int lies_in_cgroup(struct task_struct *task)
{
	struct cgroup *group = BPF_CORE_READ(task, cgroups, dfl_cgrp), *above = 0;
	void *ancestors = (void *)group + bpf_core_field_offset(struct cgroup, ancestors);

	/* Since 6.1. */
	if (!bpf_core_field_exists(struct cgroup, ancestors))
		return 0;
	if (BPF_CORE_READ(group, level) < (int)scope_cgroup_level)
		return 0;
	bpf_probe_read_kernel(&above, sizeof(above), ancestors + 8ULL * scope_cgroup_level);
	return BPF_CORE_READ(above, kn, id) == scope_cgroup;
}

#endif
