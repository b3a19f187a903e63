/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Hashes, places in tables, and buckets.
 */
#ifndef LOCKMETER_NUMBERS_BPF_H
#define LOCKMETER_NUMBERS_BPF_H

#include "core.h"
#include <bpf/bpf_helpers.h>

static __always_inline __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	x ^= x >> 32;
	return x;
}

/* Maps a hash onto a table whose size is no power of two. */
static __always_inline __u32 slot_of(__u64 hash, __u32 slots)
{
	return ((hash >> 32) * slots) >> 32;
}

static __always_inline __u32 log2_of(__u64 x)
{
	__u32 bits = 0;

	if (x >> 32) {
		bits += 32;
		x >>= 32;
	}
	if (x >> 16) {
		bits += 16;
		x >>= 16;
	}
	if (x >> 8) {
		bits += 8;
		x >>= 8;
	}
	if (x >> 4) {
		bits += 4;
		x >>= 4;
	}
	if (x >> 2) {
		bits += 2;
		x >>= 2;
	}
	return bits + (x >> 1);
}

#endif
