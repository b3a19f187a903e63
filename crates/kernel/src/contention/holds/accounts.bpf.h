/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What holders do: an account of the time of each task that waits for a lock, or holds one that is waited for: running,
 * runnable, or asleep, and on what.
 *
 * sched_switch runs under the lock of a run queue, where task storage may not be allocated: accounts live in a table without
 * locks, found by thread id, with the ids apart from the accounts. Most look-ups are for tasks that have none, at each switch and
 * wake-up: they look at one id, and whether another account lies elsewhere because that place was taken.
 * An account that nobody has asked for in a while is given up.
 */
#ifndef LOCKMETER_ACCOUNTS_BPF_H
#define LOCKMETER_ACCOUNTS_BPF_H

#include "../counting.bpf.h"

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
	__u8 displaced[ACCOUNTS]; /* since ever: an account whose first place this is lies in one of the next */
	struct account accounts[ACCOUNTS + PROBES];
};

/* Exists only where holds are metered. */
struct account_table accounts __weak SEC(".bss.accounts");

/* What an account said at some time. */
struct balance {
	__u64 at_ns; /* 0: never */
	__u32 tid;
	__u32 unused;
	__u64 spent_ns[PARTS];
};

__hidden struct account *find_further_account(__u32 tid, __u32 begin);

/* 0 if it has none; nor has the idle task, whose id is that of a free place. */
static __always_inline struct account *account_of(__u32 tid)
{
	__u32 begin = mix(tid) % ACCOUNTS;

	if (!tid)
		return 0;
	if (*(volatile __u32 *)&accounts.tids[begin] == tid)
		return &accounts.accounts[begin];
	return *(volatile __u8 *)&accounts.displaced[begin] ? find_further_account(tid, begin) : 0;
}

/* Opens an account if there is none yet. `part`: what the task does now. */
static __always_inline struct account *open_account(__u32 tid, __u32 part, __u64 now)
{
	struct account *account = account_of(tid);
	__u32 begin = mix(tid) % ACCOUNTS;

	if (!tid)
		return 0;
	if (account) {
		account->asked_for_ns = now;
		return account;
	}
	for (__u32 i = 0; i < PROBES; i++) {
		if (i)
			*(volatile __u8 *)&accounts.displaced[begin] = 1;
		if (*(volatile __u32 *)&accounts.tids[begin + i] ||
		    __sync_val_compare_and_swap(&accounts.tids[begin + i], 0, tid))
			continue;
		account = &accounts.accounts[begin + i];
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
