// SPDX-License-Identifier: GPL-2.0
/*
 * The slow paths of hooks.
 */
#include "hooks.bpf.h"

__hidden __noinline void end_gaps(struct cpu_state *cpu)
{
	for (__u32 i = 0; i < HOLD_GROUPS; i++)
		cpu->hold_groups[i].to_go = 0;
	cpu->gaps_of = *(volatile __u32 *)&generation;
}

__hidden __noinline int count_timed(void *ctx, __u64 lock, __u32 kind_mode, __u64 key, struct cpu_state *cpu)
{
	__u32 stack = spins(kind_mode & 0xff);
	struct ended_hold ended = close_hold(&cpu->open_holds[stack], key, stack);
	struct buffer *buffer = this_buffer(&hold_buffers);
	int took_stack;
	__u64 now;

	if (!ended.seen || !buffer)
		return 0;
	if (!ended.stands_for) {
		count_untimed(lock, kind_mode, cpu);
		return 0;
	}
	now = bpf_ktime_get_ns();
	adapt_period(now);
	if (now - ended.begin_ns < min_hold_ns || !begin_counting(cpu, buffer))
		return 0;
	took_stack = count_held(ctx, class_of(lock, cpu, buffer), lock, kind_mode, now - ended.begin_ns, &ended,
				who_releases(bpf_get_current_task_btf(), cpu), cpu, buffer);
	end_counting(cpu);
	return took_stack;
}
