/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A slot of a table for what is counted under a tag: the one that has it, or a free one, which is new.
 */
#ifndef LOCKMETER_TABLE_SLOT_BPF_H
#define LOCKMETER_TABLE_SLOT_BPF_H

#include "numbers.bpf.h"

/* For tables whose slots are of this type and have a tag, 0 in those that are free. They have PROBES slots more than `slots`. */
#define DEFINE_CLAIM_TOTAL(slot_type)                                                                                  \
	static __always_inline slot_type *claim_total(slot_type *table, __u32 slots, __u64 tag, int *is_new)           \
	{                                                                                                              \
		for (__u32 i = 0; i < PROBES; i++) {                                                                   \
			slot_type *slot = &table[slot_of(tag, slots) + i];                                             \
                                                                                                                       \
			if (!slot->tag) {                                                                              \
				slot->tag = tag;                                                                       \
				*is_new = 1;                                                                           \
				return slot;                                                                           \
			}                                                                                              \
			if (slot->tag == tag)                                                                          \
				return slot;                                                                           \
		}                                                                                                      \
		return 0;                                                                                              \
	}

#endif
