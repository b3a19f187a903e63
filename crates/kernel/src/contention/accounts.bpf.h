/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What holders do: an account of the time of each task that waits for a lock, or holds one that is waited for: running,
 * runnable, or asleep, and on what.
 *
 * sched_switch runs under the lock of a run queue, where task storage may not be allocated: accounts live in a table without
 * locks, found by thread id, with the ids apart from the accounts so that a look-up that finds nothing touches one cache line.
 * An account that nobody has asked for in a while is given up.
 */
#ifndef LOCKMETER_ACCOUNTS_BPF_H
#define LOCKMETER_ACCOUNTS_BPF_H

#include "counting.bpf.h"

/* A power of two. */
#define ACCOUNTS 4096
#define ACCOUNT_KEPT_NS 10000000000ULL

/* Of one task; a power of two. */
#define REMEMBERED_WAITS 4

#define PF_MEMALLOC 0x00000800 /* reclaims memory */

struct account {
	__u64 spent_ns[PARTS];
	__u64 since_ns; /* in this state */
	__u64 begin_ns;
	__u64 asked_for_ns;
	__u32 part;
	__u32 waits; /* for a lock of this kind, perhaps spinning still; 0: for none */
	__u64 lock;
	/* Its last waits: which of them fall into a hold, only the end of that hold tells, for a task may hold several locks. */
	struct next_lock waited_for[REMEMBERED_WAITS];
	__u32 waits_so_far;
	__u32 unused;
};

struct account_table {
	__u32 tids[ACCOUNTS + PROBES];
	struct account accounts[ACCOUNTS + PROBES];
};

/* Exists only where holds are metered. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct account_table);
} accounts SEC(".maps");

/* What an account said at some time. */
struct balance {
	__u64 at_ns; /* 0: never */
	__u32 tid;
	__u32 unused;
	__u64 spent_ns[PARTS];
};

static __always_inline struct account *find_account(struct account_table *table, __u32 tid)
{
	__u32 begin = mix(tid) % ACCOUNTS;

	for (__u32 i = 0; i < PROBES; i++)
		if (*(volatile __u32 *)&table->tids[begin + i] == tid)
			return &table->accounts[begin + i];
	return 0;
}

static __always_inline struct account_table *account_table(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&accounts, &key);
}

static __always_inline struct account *account_of(__u32 tid)
{
	struct account_table *table = account_table();

	return table ? find_account(table, tid) : 0;
}

/* Opens an account if there is none yet. `part`: what the task does now. */
static __always_inline struct account *open_account(__u32 tid, __u32 part, __u64 now)
{
	struct account_table *table = account_table();
	struct account *account;
	__u32 begin = mix(tid) % ACCOUNTS;

	if (!table || !tid)
		return 0;
	account = find_account(table, tid);
	if (account) {
		account->asked_for_ns = now;
		return account;
	}
	for (__u32 i = 0; i < PROBES; i++) {
		if (*(volatile __u32 *)&table->tids[begin + i] ||
		    __sync_val_compare_and_swap(&table->tids[begin + i], 0, tid))
			continue;
		account = &table->accounts[begin + i];
		__builtin_memset(account, 0, sizeof(*account));
		account->since_ns = now;
		account->begin_ns = now;
		account->asked_for_ns = now;
		account->part = part;
		return account;
	}
	return 0;
}

/* Why a task that goes to sleep does so. */
static __always_inline __u32 asleep_on(const struct account *account, int in_iowait, __u32 flags)
{
	if (account && account->waits)
		return PART_LOCK;
	if (in_iowait)
		return PART_IO;
	return flags & PF_MEMALLOC ? PART_RECLAIM : PART_ASLEEP;
}

/* Opens the account of a task that may be doing anything: the owner of a lock, as the lock says. */
static __always_inline struct account *open_account_of(struct task_struct *owner, __u64 now)
{
	__u32 tid = BPF_CORE_READ(owner, pid), part = PART_RUNNABLE;

	if (BPF_CORE_READ(owner, on_cpu))
		part = PART_RUNNING;
	else if (BPF_CORE_READ(owner, __state))
		part = asleep_on(0, BPF_CORE_READ_BITFIELD_PROBED(owner, in_iowait), BPF_CORE_READ(owner, flags));
	return open_account(tid, part, now);
}

static __always_inline void enter_part(struct account *account, __u32 part, __u64 now)
{
	__u32 before = account->part;

	if (before < PARTS && now > account->since_ns)
		account->spent_ns[before] += now - account->since_ns;
	account->since_ns = now;
	account->part = part;
}

static __always_inline void read_balance(const struct account *account, __u32 tid, __u64 now, struct balance *to)
{
	__u32 part = account->part;

	to->tid = tid;
	to->at_ns = now;
	for (int i = 0; i < PARTS; i++)
		to->spent_ns[i] = account->spent_ns[i];
	if (part < PARTS && now > account->since_ns)
		to->spent_ns[part] += now - account->since_ns;
}

static __always_inline void task_wakes(struct account *account, __u64 now)
{
	if (account->part >= PART_IO)
		enter_part(account, PART_RUNNABLE, now);
}

#endif
