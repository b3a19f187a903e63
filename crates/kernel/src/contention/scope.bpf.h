/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Whose locks are metered.
 */
#ifndef LOCKMETER_SCOPE_BPF_H
#define LOCKMETER_SCOPE_BPF_H

#include "state.bpf.h"

static __always_inline int in_scope(struct task_struct *task)
{
	if (scope == SCOPE_FOLLOWED) {
		struct sleeper *leader = bpf_task_storage_get(&sleepers, task->group_leader, 0, 0);

		return leader && leader->followed;
	}
	if (scope == SCOPE_CGROUP)
		return bpf_get_current_ancestor_cgroup_id(scope_cgroup_level) == scope_cgroup;
	return 1;
}

/* The task that runs here, which need not be looked up if everybody is metered. */
static __always_inline int runs_in_scope(void)
{
	return scope == SCOPE_ALL || in_scope(bpf_get_current_task_btf());
}

#endif
