// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of counting a divided wait that are not inline: the verifier would follow each of them on all paths of those before it.
 */
#include "releases.bpf.h"
#include "thread_state.h"

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

__noinline __u32 mostly_did(__u64 since_ns, __u64 now_ns)
{
	const struct past_sleeps *past = bpf_task_storage_get(&past_sleeps, bpf_get_current_task_btf(), 0, 0);
	__u64 longest_ns = 0, asleep_ns = 0, runnable_ns = 0, all_ns = now_ns - since_ns;
	__u32 did = 0;

	if (!past)
		return 0;
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < PAST_SLEEPS; i++) {
		const struct past_sleep *sleep = &past->sleeps[i];
		__u64 from_ns = sleep->begin_ns > since_ns ? sleep->begin_ns : since_ns;
		__u64 until_ns = sleep->end_ns < now_ns ? sleep->end_ns : now_ns;
		__u64 both_ns = until_ns > from_ns ? until_ns - from_ns : 0;

		/* Several of a kind lie evenly between the first and the last; so far that the product fits. */
		if (sleep->end_ns - sleep->begin_ns > sleep->spent_ns)
			both_ns = (both_ns >> 10) * sleep->spent_ns / (((sleep->end_ns - sleep->begin_ns) >> 10) | 1);
		if ((sleep->did & DID_STATE_MASK) == STATE_RUNNABLE) {
			runnable_ns += both_ns;
			continue;
		}
		asleep_ns += both_ns;
		if (both_ns > longest_ns) {
			longest_ns = both_ns;
			did = sleep->did;
		}
	}
	if (asleep_ns * 2 >= all_ns)
		return did;
	return (runnable_ns + asleep_ns) * 2 >= all_ns ? STATE_RUNNABLE : STATE_RUNNING;
}

/* How long of the time between two releases the second releaser had waited for something else, or, for the same lock, not yet run. */
static __always_inline __u64 waited_meanwhile(const struct past_wait *past, __u64 since_ns, __u64 at_ns)
{
	__u64 from_ns = past->begin_ns > since_ns ? past->begin_ns : since_ns;
	__u64 until_ns = past->end_ns < at_ns ? past->end_ns : at_ns;

	return until_ns > from_ns ? until_ns - from_ns : 0;
}

/* Returns how long of the time since the release before this one's releaser waited itself. */
static __always_inline __u64 blame_release(struct blame *blame, struct release *release, __u64 since_ns, __u64 at_ns)
{
	blame->stack = release->stack;
	blame->source = blame->stack ? BLOCKER_WOKEN : BLOCKER_STACK_LOST;
	blame->tgid = release->tgid;
	blame->state = release->state;
	__builtin_memcpy(blame->comm, release->comm, COMM_LENGTH);
	return waited_meanwhile(&release->past_wait, since_ns, at_ns);
}

static __always_inline void blame_nobody(struct blame *blame, enum blocker why)
{
	blame->source = why;
	blame->stack = 0;
	blame->tgid = blame->state = 0;
	blame->comm_words[0] = blame->comm_words[1] = 0;
}

/*
 * Counts a wait, whose last waker `blame` says, for each of those who had the lock. In `blame` stands then whom most of it is to be
 * charged to, at the end of the chain, if that is known: what this task's own wait explains to others.
 */
__noinline int count_divided_wait(struct buffer *buffer, struct wait *wait, struct blame *blame, __u64 site)
{
	__u64 end_ns, since_ns, nobodys_ns = 0, most_ns = 0;
	struct lock_releases *kept;
	struct root most = {};
	__u32 count;

	if (!buffer || !wait || !blame)
		return 0;
	since_ns = wait->begin_ns;
	end_ns = since_ns + wait->total_ns;
	kept = releases_of(wait->instance);
	count = *(volatile __u32 *)&kept->count;
	/* From the first that is kept. Linux 6.1 takes no loop whose end falls through to its begin. */
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < RELEASES; i++) {
		struct release *release = &kept->releases[(count + i) % RELEASES];
		__u64 at_ns = *(volatile __u64 *)&release->at_ns;
		__u64 part_ns, waited_ns;

		if (release->lock != wait->instance || at_ns <= since_ns || at_ns > end_ns)
			continue;
		part_ns = at_ns - since_ns;
		if (!i && count >= RELEASES) {
			blame_nobody(blame, BLOCKER_EARLIER);
		} else {
			waited_ns = blame_release(blame, release, since_ns, at_ns);
			part_ns -= waited_ns;
			if (release->past_wait.lock == wait->instance) {
				nobodys_ns += waited_ns;
			} else if (waited_ns) {
				blame->root = release->past_wait.root;
				count_part_of_wait(buffer, wait, blame, site, waited_ns);
				if (waited_ns > most_ns) {
					most_ns = waited_ns;
					most = blame->root;
				}
				blame->root.class = blame->root.stack = 0;
			}
			if (part_ns > most_ns) {
				most_ns = part_ns;
				most.class = wait->class;
				most.stack = blame->stack;
				most.kind_mode = wait->kind_mode;
				most.state = blame->state;
			}
		}
		count_part_of_wait(buffer, wait, blame, site, part_ns);
		since_ns = at_ns;
	}
	if (since_ns == wait->begin_ns)
		return count_part_of_wait(buffer, wait, blame, site, wait->total_ns);
	blame_nobody(blame, BLOCKER_HANDOVER);
	count_part_of_wait(buffer, wait, blame, site, end_ns - since_ns + nobodys_ns);
	blame->root = most;
	return 0;
}
