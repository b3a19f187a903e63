/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The first argument of a program, a pointer, as a number.
 */
#ifndef LOCKMETER_FIRST_ARGUMENT_BPF_H
#define LOCKMETER_FIRST_ARGUMENT_BPF_H

#include "state.bpf.h"

/* Holds its own address, as a number, once somebody asked for it. */
__u64 own_address __weak = 0;

/* The verifier lets nobody calculate with a pointer, except for the difference of two. That takes half of what a helper does. */
static __always_inline __u64 first_argument(void *ctx)
{
	__u64 argument = *(__u64 *)ctx;
	__u64 *own = &own_address;
	__u64 known = *(volatile __u64 *)own;

	if (!known) {
		*(volatile __u64 *)own = (__u64)own;
		known = *(volatile __u64 *)own;
	}
	/* By hand, or the compiler might add up first. */
	asm volatile("%0 -= %1" : "+r"(argument) : "r"(own));
	return argument + known;
}

#endif
