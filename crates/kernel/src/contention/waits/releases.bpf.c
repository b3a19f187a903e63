// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of counting a divided wait that are not inline: the verifier would follow each of them on all paths of those before it.
 */
#include "releases.bpf.h"

__noinline int count_part_of_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site,
				  __u64 part_ns)
{
	__u32 meta;

	if (!buffer || !wait || !blame)
		return 0;
	meta = wait->kind_mode | log2_of(wait->total_ns) << 16;
	count_sample(buffer, wait, meta, &wait->who, blame, site, weight_of(wait), part_ns);
	return 0;
}

__noinline int count_divided_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site)
{
	struct blame part = {.source = BLOCKER_WOKEN};
	__u64 begin_ns, end_ns, since_ns;
	struct lock_releases *kept;
	__u32 count;

	if (!buffer || !wait || !blame)
		return 0;
	part.owner_tgid = blame->owner_tgid;
	part.owner_words[0] = blame->owner_words[0];
	part.owner_words[1] = blame->owner_words[1];
	begin_ns = since_ns = wait->begin_ns;
	end_ns = begin_ns + wait->total_ns;
	kept = releases_of(wait->instance);
	count = *(volatile __u32 *)&kept->count;
	/* From the first that is kept. */
	for (__u32 i = 0; i < RELEASES; i++) {
		struct release *release = &kept->releases[(count + i) % RELEASES];
		__u64 at_ns = *(volatile __u64 *)&release->at_ns;

		if (release->lock != wait->instance || at_ns <= since_ns || at_ns > end_ns)
			continue;
		part.source = !i && count >= RELEASES ? BLOCKER_EARLIER : BLOCKER_WOKEN;
		part.stack = part.source == BLOCKER_WOKEN ? release->stack : 0;
		part.tgid = part.source == BLOCKER_WOKEN ? release->tgid : 0;
		__builtin_memcpy(part.comm, release->comm, COMM_LENGTH);
		if (!part.tgid)
			part.comm_words[0] = part.comm_words[1] = 0;
		if (!part.stack && part.source == BLOCKER_WOKEN)
			part.source = BLOCKER_STACK_LOST;
		count_part_of_wait(buffer, wait, &part, site, at_ns - since_ns);
		since_ns = at_ns;
	}
	if (since_ns == begin_ns)
		return count_part_of_wait(buffer, wait, blame, site, wait->total_ns);
	part.source = BLOCKER_HANDOVER;
	part.stack = 0;
	part.tgid = 0;
	part.comm_words[0] = part.comm_words[1] = 0;
	if (end_ns > since_ns)
		count_part_of_wait(buffer, wait, &part, site, end_ns - since_ns);
	return 0;
}
