// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks on a function that only exists to be hooked: whether they attach tells whether this kernel allows function hooks.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("fentry/bpf_fentry_test1")
int try_fentry(void *ctx)
{
	return 0;
}

SEC("kprobe/bpf_fentry_test1")
int try_kprobe(void *ctx)
{
	return 0;
}
