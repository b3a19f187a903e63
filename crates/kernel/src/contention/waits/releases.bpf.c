// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of counting a divided wait that are not inline: the verifier would follow each of them on all paths of those before it.
 */
#include "releases.bpf.h"

__noinline int count_part_of_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site,
				  __u64 part_ns)
{
	__u32 meta;

	if (!buffer || !wait || !blame || (!part_ns && wait->total_ns))
		return 0;
	meta = wait->kind_mode | log2_of(wait->total_ns) << 16;
	count_sample(buffer, wait, meta, &wait->who, blame, site, weight_of(wait), part_ns);
	return 0;
}

/* How long of the time between two releases the second releaser had waited for something else, or, for the same lock, not yet run. */
static __always_inline __u64 waited_meanwhile(const struct past_wait *past, __u64 since_ns, __u64 at_ns)
{
	__u64 from_ns = past->begin_ns > since_ns ? past->begin_ns : since_ns;
	__u64 until_ns = past->end_ns < at_ns ? past->end_ns : at_ns;

	return until_ns > from_ns ? until_ns - from_ns : 0;
}

/* `most` becomes who had most of the wait, or whom that one waited for. */
__noinline int count_divided_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site,
				  struct root *most)
{
	struct blame part = {.source = BLOCKER_WOKEN};
	__u64 begin_ns, end_ns, since_ns, nobodys_ns = 0, most_ns = 0;
	struct lock_releases *kept;
	__u32 count;

	if (!buffer || !wait || !blame || !most)
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
		__u64 part_ns, waited_ns;

		if (release->lock != wait->instance || at_ns <= since_ns || at_ns > end_ns)
			continue;
		part_ns = at_ns - since_ns;
		part.root.class = 0;
		part.root.stack = 0;
		if (!i && count >= RELEASES) {
			part.source = BLOCKER_EARLIER;
			part.stack = 0;
			part.tgid = 0;
			part.comm_words[0] = part.comm_words[1] = 0;
			count_part_of_wait(buffer, wait, &part, site, part_ns);
			since_ns = at_ns;
			continue;
		}
		part.stack = release->stack;
		part.source = part.stack ? BLOCKER_WOKEN : BLOCKER_STACK_LOST;
		part.tgid = release->tgid;
		__builtin_memcpy(part.comm, release->comm, COMM_LENGTH);
		waited_ns = waited_meanwhile(&release->past_wait, since_ns, at_ns);
		if (release->past_wait.lock == wait->instance) {
			nobodys_ns += waited_ns;
			part_ns -= waited_ns;
		} else if (waited_ns && release->past_wait.root.class) {
			part.root = release->past_wait.root;
			count_part_of_wait(buffer, wait, &part, site, waited_ns);
			part_ns -= waited_ns;
			if (waited_ns > most_ns) {
				most_ns = waited_ns;
				*most = part.root;
			}
			part.root.class = 0;
			part.root.stack = 0;
		}
		count_part_of_wait(buffer, wait, &part, site, part_ns);
		if (part_ns > most_ns) {
			most_ns = part_ns;
			most->class = wait->class;
			most->stack = part.stack;
			most->kind_mode = wait->kind_mode;
		}
		since_ns = at_ns;
	}
	if (since_ns == begin_ns)
		return count_part_of_wait(buffer, wait, blame, site, wait->total_ns);
	part.source = BLOCKER_HANDOVER;
	part.stack = 0;
	part.tgid = 0;
	part.comm_words[0] = part.comm_words[1] = 0;
	count_part_of_wait(buffer, wait, &part, site, end_ns - since_ns + nobodys_ns);
	return 0;
}
