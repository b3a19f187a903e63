/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where the last sleeps of each thread are kept: written by the programs that watch threads, and read also by those of kernel locks, which
 * share the map if both run.
 */
#ifndef LOCKMETER_PAST_SLEEPS_BPF_H
#define LOCKMETER_PAST_SLEEPS_BPF_H

#include "core.h"
#include "past_sleeps.h"
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct past_sleeps);
} past_sleeps __weak SEC(".maps");

#endif
