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

/*
 * Where the position of the highest bit stands, by the six highest bits of the product of all bits up to it and the number below, which
 * differ for each position. Without a branch: the verifier would follow what comes after it once for each result.
 */
#define LOG2_FACTOR 0x03f485cef1ad9513ULL
static const __u8 log2_at[64] = {
	0,  16, 1,  55, 17, 35, 2,  13, 56, 48, 18, 59, 36, 25, 3,  14, 53, 11, 57, 51, 49, 40,
	19, 60, 45, 37, 42, 21, 26, 30, 4,  62, 15, 54, 34, 12, 47, 58, 24, 52, 10, 50, 39, 44,
	41, 20, 29, 61, 33, 46, 23, 9,	38, 43, 28, 32, 22, 8,	27, 31, 7,  6,	5,  63,
};

static const __u8 log2_of_byte[256] = {
	[2 ... 3] = 1,	 [4 ... 7] = 2,	   [8 ... 15] = 3,    [16 ... 31] = 4,
	[32 ... 63] = 5, [64 ... 127] = 6, [128 ... 255] = 7,
};

/* Of 0, too, it is 0. Most durations are below 65,536 ns: for these it is shorter. */
static __always_inline __u32 log2_of(__u64 x)
{
	/* Or the compiler compares what this was shifted from, and the verifier of 6.1 does not know how large the rest is. */
	barrier_var(x);
	if (x < 1 << 8)
		return log2_of_byte[x];
	if (x < 1 << 16)
		return 8 + log2_of_byte[x >> 8];
	x |= x >> 1;
	x |= x >> 2;
	x |= x >> 4;
	x |= x >> 8;
	x |= x >> 16;
	x |= x >> 32;
	return log2_at[x * LOG2_FACTOR >> 58];
}

#endif
