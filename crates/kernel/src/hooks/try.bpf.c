// SPDX-License-Identifier: GPL-2.0
/*
 * A hook on a function that only exists to be hooked: whether it attaches tells whether this kernel allows function hooks.
 */
#include "core.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("fentry/bpf_fentry_test1")
int try_hook(void *ctx)
{
	return 0;
}
