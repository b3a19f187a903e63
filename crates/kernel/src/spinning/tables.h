/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the program that samples CPUs and its loader share.
 *
 * The layout of the structures is generated from this file.
 */
#ifndef LOCKMETER_SPINNING_TABLES_H
#define LOCKMETER_SPINNING_TABLES_H

#include "copied_stack.h"

/* Of the program's code, from this many bytes before the instruction that is next. */
#define CODE_BYTES 96
#define CODE_BEFORE 48

/* What a thread did that a sample has met. */
enum sample_of { SAMPLE_OF_KERNEL, SAMPLE_OF_PROGRAM, SAMPLE_OF_YIELD, SAMPLE_OF_SLEEP };

/* A thread in scope that had a CPU. */
struct cpu_sample {
	__u32 tgid;
	/* The process that forked this one, if it maps the same files still; 0 if it has run a program since. */
	__u32 parent;
	char comm[COMM_LENGTH];
	__u64 cgroup;
	__u32 of;
	__u32 unused;
	/* From here on not of the kernel: the register that holds a function's first argument. */
	__u64 argument;
	__u8 code[CODE_BYTES];
	struct copied_stack user;
};

#endif
