/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The contended part of holds, for locks that sleep: from the moment a waiter went to sleep, or the lock was last seen to change
 * hands, to the release that wakes a waiter. It needs no event at an acquisition that does not wait.
 *
 * When a lock last changed hands is kept in a table with one place for each hash of a lock's address. Two contended locks of one
 * place drive each other out; then the next release is counted as unmatched, for its time would be a guess.
 */
#ifndef LOCKMETER_CONTENDED_BPF_H
#define LOCKMETER_CONTENDED_BPF_H

#include "accounts.bpf.h"
#include "hold_counting.bpf.h"
#include "lock_owner.bpf.h"

/* A power of two. */
#define CONTENDED 4096

const volatile __u8 contended_holds __weak = 0;
/* Single holds at least this long are kept with what the holder did. */
const volatile __u64 slow_hold_ns __weak = 1000000;

struct contended {
	__u64 lock;
	__u64 changed_ns; /* the last release that woke somebody, or acquisition after a wait */
	__u32 released;	  /* and not seen acquired since */
	__u32 wakee;
	__u32 waited_for; /* since it changed hands; somebody sleeps */
	__u32 unused;
	/* Of the holder, as far as it is known: when the lock changed hands, and when the first waiter came after that. */
	struct balance at_change;
	struct balance at_first_wait;
};

struct contended_table {
	struct contended places[CONTENDED];
};

/* Exists only where holds are metered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct contended_table);
} contended_locks __weak SEC(".maps");

static __always_inline struct contended *place_of_lock(__u64 lock)
{
	__u32 key = 0;
	struct contended_table *table = bpf_map_lookup_elem(&contended_locks, &key);

	return table ? &table->places[mix(lock) % CONTENDED] : 0;
}

/* The task that runs here begins to wait. */
static __always_inline void lock_is_waited_for(struct task_struct *task, const struct sleep_wait *wait)
{
	struct account *account = open_account(task->pid, PART_RUNNING, wait->begin_ns);

	if (!account)
		return;
	account->lock = wait->lock;
	account->waits = wait->kind_mode & 0xff;
}

static __always_inline void remember_wait(struct account *account, const struct sleep_wait *wait, __u64 waited_ns,
					  __u64 now)
{
	struct next_lock *place = &account->waited_for[account->waits_so_far++ % REMEMBERED_WAITS];

	place->waited_ns = waited_ns;
	place->end_ns = now;
	place->class = wait->class;
	place->kind_mode = wait->kind_mode;
	place->tid = wait->releaser_tid;
	place->tgid = wait->releaser_tgid;
	__builtin_memcpy(place->comm, wait->releaser_comm, COMM_LENGTH);
}

/* The task that runs here got the lock, or gave up. */
static __always_inline void lock_was_waited_for(struct task_struct *task, struct sleep_wait *wait, int failed,
						__u64 now)
{
	struct contended *contended = place_of_lock(wait->lock);
	struct account *account = open_account(task->pid, PART_RUNNING, now);
	__u64 waited_ns = now - wait->begin_ns;

	if (account) {
		account->waits = 0;
		remember_wait(account, wait, waited_ns, now);
	}
	if (failed || !contended || contended->lock != wait->lock)
		return;
	contended->changed_ns = now;
	contended->released = 0;
	contended->waited_for = 0;
	contended->at_change.at_ns = 0;
	if (account)
		read_balance(account, task->pid, now, &contended->at_change);
}

/*
 * The lock is released: for how long it was held while somebody waited. 0: nothing to count, for this release has been
 * counted when it woke another waiter, or for it is not known.
 */
static __always_inline __u64 contended_part(__u64 lock, __u32 wakee, __u64 asleep_since_ns, __u64 now,
					    struct buffer *buffer, struct balance **since)
{
	struct contended *contended = place_of_lock(lock);
	__u64 since_ns = asleep_since_ns;
	int is_same_release;

	if (!contended)
		return 0;
	if (contended->lock != lock) {
		lose(buffer, LOSS_HOLD_UNMATCHED);
		contended->lock = lock;
		since_ns = now;
	}
	/* One release may wake many readers, but a waiter woken twice was passed by somebody who took the lock first. */
	is_same_release = contended->released && contended->wakee != wakee;
	if (contended->changed_ns > since_ns)
		since_ns = contended->changed_ns;
	if (is_same_release)
		return 0;
	*since = contended->changed_ns >= asleep_since_ns ? &contended->at_change : &contended->at_first_wait;
	contended->changed_ns = now;
	contended->wakee = wakee;
	contended->released = 1;
	contended->waited_for = 0;
	return now > since_ns ? now - since_ns : 0;
}

/*
 * The mode in which the releaser held the lock. Of an rwsem readers leave their mark in the owner, which a writer clears before
 * it wakes another; readers wait for writers only, and are marked as owners before they are woken. Of a percpu-rwsem readers
 * wait for a writer only, and writers mostly for readers.
 */
static __always_inline __u32 mode_of_holder(const struct sleep_wait *wait)
{
	__u32 kind = wait->kind_mode & 0xff, mode = wait->kind_mode >> 8;

	if (kind == KIND_RWSEM && mode == MODE_READ)
		return MODE_WRITE;
	if (kind == KIND_RWSEM)
		return read_owner(wait->lock, KIND_RWSEM) & READER_OWNED ? MODE_READ : MODE_WRITE;
	if (kind == KIND_PERCPU_RWSEM)
		return mode == MODE_READ ? MODE_WRITE : MODE_READ;
	return mode;
}

/*
 * What the holder did since `then`; nothing if it is another task than the one that releases, or has no account. Not inline: the
 * verifier would follow each of its ways on each that leads here.
 */
int spent_since(const struct balance *then, __u32 tid, __u64 now, struct balance *spent);

/*
 * The longest wait of a holder that ended after `begin_ns`, when the part of its hold to be counted began. The wait for the very
 * lock ended before that.
 */
static __always_inline void copy_next_lock(struct next_lock *next, const struct account *account, __u64 begin_ns)
{
	next->waited_ns = 0;
	for (int i = 0; i < REMEMBERED_WAITS; i++) {
		const struct next_lock *wait = &account->waited_for[i];

		if (wait->end_ns > begin_ns && wait->waited_ns > next->waited_ns)
			*next = *wait;
	}
}

static __always_inline void keep_slow_hold(struct buffer *buffer, const struct wait *hold, const struct who *who,
					   __u32 tid, const __u64 *spent_ns, __u64 stack, __u64 now)
{
	struct account *account = account_of(tid);
	__u32 bucket = log2_of(hold->total_ns >> SLOW_HOLD_SHIFT);
	struct slow_hold *slow;

	/* The longest of each bucket, and of some tasks in it: a search for the shortest of all would be too long. */
	bucket = bucket < SLOW_HOLD_BUCKETS ? bucket : SLOW_HOLD_BUCKETS - 1;
	bucket = bucket * SLOW_HOLDS_OF_BUCKET + tid % SLOW_HOLDS_OF_BUCKET;
	/* Or the compiler, which knows that it is small enough, leaves out what tells the verifier of 6.1. */
	barrier_var(bucket);
	slow = &buffer->slow_holds[bucket & (SLOW_HOLDS - 1)];
	if (slow->total_ns >= hold->total_ns)
		return;
	slow->total_ns = hold->total_ns;
	slow->end_ns = now;
	slow->class = hold->class;
	slow->stack = stack;
	slow->kind_mode = hold->kind_mode;
	slow->tgid = who->tgid;
	slow->tid = tid;
	__builtin_memcpy(slow->comm, who->comm, COMM_LENGTH);
	for (int i = 0; i < PARTS; i++)
		slow->spent_ns[i] = spent_ns[i];
	if (account && spent_ns[PART_LOCK])
		copy_next_lock(&slow->next, account, now - hold->total_ns);
	else
		slow->next.waited_ns = 0;
}

/* The task that runs here wakes a waiter: counts what it held while that one waited, and what it did meanwhile. */
static __always_inline void count_contended_hold(void *ctx, struct sleep_wait *wait, const struct account *waiter,
						 __u32 wakee, __u64 now)
{
	struct task_struct *releaser = bpf_get_current_task_btf();
	struct wait hold = {.class = wait->class, .instance = wait->lock};
	struct balance spent = {};
	struct wait drawn = {};
	struct buffer *buffer = this_buffer(&hold_buffers);
	struct cpu_state *cpu = this_cpu();
	struct balance *since = 0;
	__u64 weight;

	if (!buffer || !cpu)
		return;
	if (!waiter) {
		lose(buffer, LOSS_HELD_FULL);
		return;
	}
	wait->releaser_tid = releaser->pid;
	wait->releaser_tgid = releaser->tgid;
	copy_comm(wait->releaser_comm, releaser);
	hold.total_ns = contended_part(wait->lock, wakee, waiter->part == PART_LOCK ? waiter->since_ns : now, now,
				       buffer, &since);
	if (!hold.total_ns)
		return;
	hold.kind_mode = META(wait->kind_mode & 0xff, mode_of_holder(wait), 0);
	who_waits(releaser, &hold.who);
	spent_since(since, releaser->pid, now, &spent);
	/* It had the lock already when an earlier waiter went to sleep. */
	if (since && since->at_ns && since->tid == (__u32)releaser->pid && now - since->at_ns > hold.total_ns)
		hold.total_ns = now - since->at_ns;
	if (!begin_counting(cpu, buffer))
		return;
	/* The releaser's stack was taken if the wait was drawn, so it stands for what the wait stands for. */
	drawn.total_ns = now - wait->begin_ns;
	drawn.period_ns = wait->period_ns;
	weight = wait->blocker ? weight_of(&drawn) : 0;
	if (hold.total_ns >= slow_hold_ns)
		keep_slow_hold(buffer, &hold, &hold.who, releaser->pid, spent.spent_ns, wait->blocker, now);
	count_part(buffer, &hold, HAPPENED_CONTENDED_HOLD, wait->blocker, weight);
	for (int i = 0; i < PARTS; i++) {
		hold.total_ns = spent.spent_ns[i];
		if (hold.total_ns)
			count_part(buffer, &hold, HAPPENED_HOLDER + i, wait->blocker, weight);
	}
	end_counting(cpu);
}

#endif
