// SPDX-License-Identifier: GPL-2.0
/*
 * Empty programs on the tracepoints that `lockmeter latency` uses: what any program there costs.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

#define EMPTY(tracepoint, name)                                                                                        \
	SEC("tp_btf/" #tracepoint)                                                                                     \
	int e_##name(void *ctx)                                                                                        \
	{                                                                                                              \
		return 0;                                                                                              \
	}

EMPTY(softirq_raise, softirq_raise)
EMPTY(softirq_entry, softirq_entry)
EMPTY(softirq_exit, softirq_exit)
EMPTY(hrtimer_expire_entry, hrtimer_entry)
EMPTY(hrtimer_expire_exit, hrtimer_exit)
EMPTY(timer_expire_entry, timer_entry)
EMPTY(timer_expire_exit, timer_exit)
EMPTY(local_timer_entry, loc_entry)
EMPTY(local_timer_exit, loc_exit)
EMPTY(reschedule_entry, res_entry)
EMPTY(reschedule_exit, res_exit)
EMPTY(call_function_single_entry, call_entry)
EMPTY(call_function_single_exit, call_exit)
EMPTY(workqueue_queue_work, work_queue)
EMPTY(workqueue_execute_start, work_start)
EMPTY(workqueue_execute_end, work_end)
EMPTY(sched_waking, sched_waking)
