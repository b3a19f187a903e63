// SPDX-License-Identifier: GPL-2.0
/*
 * Empty programs on the tracepoints that see the futex waits of running programs: what any program there costs.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sched_switch")
int e_sched_switch(void *ctx)
{
	return 0;
}

SEC("tp_btf/sched_waking")
int e_sched_waking(void *ctx)
{
	return 0;
}
