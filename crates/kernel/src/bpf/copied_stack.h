/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A copy of the inner end of a user stack, as the loader unwinds it.
 */
#ifndef LOCKMETER_COPIED_STACK_H
#define LOCKMETER_COPIED_STACK_H

/*
 * How stacks are copied: in aligned chunks, so that no read crosses into a page that may be missing, and the first of them
 * holds the stack pointer. At least 4 KB in all: some thirty frames of an ordinary program.
 */
#define CHUNK_BYTES 1024
#define CHUNKS 5

/* From the begin of the chunk that the stack pointer lies in. */
struct copied_stack {
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u32 bytes; /* copied */
	__u32 unused;
	__u8 copy[CHUNKS * CHUNK_BYTES];
};

#endif
