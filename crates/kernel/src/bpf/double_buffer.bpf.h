/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tables of two buffers a CPU: the programs fill the active one, the loader drains the other.
 */
#ifndef LOCKMETER_DOUBLE_BUFFER_BPF_H
#define LOCKMETER_DOUBLE_BUFFER_BPF_H

#include "core.h"
#include <bpf/bpf_helpers.h>

/* Written by the loader while the programs run. */
__u32 active_buffer __weak = 0;

/* The type of a map of such tables. The loader sets the number of entries. */
#define DOUBLE_BUFFER(buffer_type)                                                                                     \
	struct {                                                                                                       \
		__uint(type, BPF_MAP_TYPE_ARRAY);                                                                      \
		__uint(map_flags, BPF_F_MMAPABLE);                                                                     \
		__uint(max_entries, 2);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, buffer_type);                                                                            \
	}

/* The buffer that this CPU fills now. */
static __always_inline void *this_buffer(void *buffers)
{
	__u32 key = bpf_get_smp_processor_id() * 2 + (*(volatile __u32 *)&active_buffer & 1);

	return bpf_map_lookup_elem(buffers, &key);
}

#endif
