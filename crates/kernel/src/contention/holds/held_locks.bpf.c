// SPDX-License-Identifier: GPL-2.0
/*
 * Held locks that do not lie in their first place, and places for new ones. Rarely needed, so not inline: the code that always runs
 * would have to keep its registers in memory.
 */
#include "held_locks.bpf.h"

__hidden __noinline struct held *find_further(struct held *first, __u64 tag)
{
	for (__u32 i = 1; i < HELD_PROBES; i++)
		if (*(volatile __u64 *)&first[i].tag == tag)
			return &first[i];
	return 0;
}

__hidden __noinline struct held *claim_held(__u64 tag, __u64 now)
{
	struct held *first = first_place(tag);
	struct held *stale = 0;
	__u64 stale_tag = 0;

	for (__u32 i = 0; i < HELD_PROBES; i++) {
		struct held *held = &first[i];
		__u64 seen = *(volatile __u64 *)&held->tag;
		__u64 begin_ns = *(volatile __u64 *)&held->begin_ns;

		if (i)
			*(volatile __u16 *)&first->displaced = 1;
		if (!seen && !__sync_val_compare_and_swap(&held->tag, 0, tag))
			return held;
		/* 0: it was claimed this instant. */
		if (seen && begin_ns && begin_ns + HELD_STALE_NS < now) {
			stale = held;
			stale_tag = seen;
		}
	}
	if (!stale || __sync_val_compare_and_swap(&stale->tag, stale_tag, tag) != stale_tag) {
		lose_hold(LOSS_HELD_FULL);
		return 0;
	}
	if (stale->resumed == *(volatile __u32 *)&watched)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	return stale;
}

__hidden __noinline struct held *find_or_claim(__u64 tag, __u64 now)
{
	struct held *held = find_held(tag);

	if (!held)
		return claim_held(tag, now);
	if (held->resumed == *(volatile __u32 *)&watched)
		lose_hold(LOSS_HOLD_RELEASE_UNSEEN);
	return held;
}
