// SPDX-License-Identifier: GPL-2.0
/*
 * The slow paths of marking holds.
 */
#include "untimed_holds.bpf.h"

__hidden __noinline void forget_marks(struct cpu_state *cpu)
{
	__builtin_memset(cpu->untimed_marks, 0, sizeof(cpu->untimed_marks));
	cpu->marks_since = *(volatile __u32 *)&watched;
}

__hidden __noinline void move_mark(__u64 older, __u64 tag, __u64 after_ns)
{
	if (older == tag)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	else
		begin_hold(older, after_ns, 0);
}

__noinline __u64 take_mark_elsewhere(__u64 tag)
{
	__u32 key = 0;
	__u64 after_ns;

	for (__u32 i = 0; i < cpus; i++) {
		struct cpu_state *cpu = bpf_map_lookup_percpu_elem(&cpu_states, &key, i);

		if (!cpu || !is_marked(cpu, tag))
			continue;
		after_ns = *(volatile __u64 *)&cpu->marked_after_ns[place_of_mark(tag)];
		if (__sync_val_compare_and_swap(&cpu->untimed_marks[place_of_mark(tag)], tag, 0) == tag)
			return after_ns;
		return 0;
	}
	return 0;
}
