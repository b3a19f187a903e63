// SPDX-License-Identifier: GPL-2.0
/*
 * What holders do while others wait: sched_switch keeps the accounts of both.
 */
#include "contended.bpf.h"
#include "open_holds.bpf.h"
#include <bpf/bpf_tracing.h>

__noinline int spent_since(const struct balance *then, __u32 tid, __u64 now, struct balance *spent)
{
	struct account *account;

	/* Up to Linux 6.7 it is verified also where holds are not metered, and there are no accounts. */
	if (!contended_holds || !then || !then->at_ns || then->tid != tid)
		return 0;
	account = account_of(tid);
	if (!spent || !account || account->begin_ns > then->at_ns)
		return 0;
	read_balance(account, tid, now, spent);
	for (int i = 0; i < PARTS; i++)
		spent->spent_ns[i] =
			spent->spent_ns[i] > then->spent_ns[i] ? spent->spent_ns[i] - then->spent_ns[i] : 0;
	return 0;
}

/*
 * A waiter goes to sleep: the one that holds the lock now will wake it, if it is the first in the queue, and has held it at least
 * from now on. What that one does from here on is asked once for each holder.
 */
static __always_inline void waiter_sleeps(__u64 lock, __u32 kind, __u64 now)
{
	struct contended *contended = place_of_lock(lock);
	/* Also the last of an rwsem's readers: a hint, to be confirmed at the release. */
	struct task_struct *owner = task_of_owner(read_owner(lock, kind));
	struct account *holder;
	__u32 tid;

	if (!contended)
		return;
	if (contended->lock != lock) {
		contended->lock = lock;
		contended->changed_ns = now;
		contended->waited_for = 0;
		contended->at_change.at_ns = 0;
	}
	tid = owner ? BPF_CORE_READ(owner, pid) : 0;
	if (contended->waited_for && !contended->released && contended->at_first_wait.tid == tid)
		return;
	contended->released = 0;
	contended->waited_for = 1;
	contended->at_first_wait.at_ns = 0;
	contended->at_first_wait.tid = tid;
	holder = owner ? open_account_of(owner, now) : 0;
	if (holder)
		read_balance(holder, tid, now, &contended->at_first_wait);
}

static __always_inline void task_leaves_cpu(struct task_struct *task, int stays_runnable, __u64 *now)
{
	__u32 tid = task->pid;
	struct account *account = account_of(tid);

	if (!account)
		return;
	*now = bpf_ktime_get_ns();
	if (*now - account->asked_for_ns > ACCOUNT_KEPT_NS) {
		__u32 begin = mix(tid) % ACCOUNTS;

		for (__u32 i = 0; i < PROBES; i++)
			if (accounts.tids[begin + i] == tid)
				*(volatile __u32 *)&accounts.tids[begin + i] = 0;
		return;
	}
	if (!stays_runnable && account->waits)
		waiter_sleeps(account->lock, account->waits, *now);
	enter_part(account,
		   stays_runnable ? PART_RUNNABLE
				  : asleep_on(account, BPF_CORE_READ_BITFIELD(task, in_iowait), task->flags),
		   *now);
}

/* What it holds is found elsewhere from now on. */
static __always_inline void take_holds_along(const struct task_struct *task)
{
	struct cpu_state *cpu = this_cpu();

	if (!cpu)
		return;
	if (cpu->open_holds[SLEEPING].depth)
		put_away(&cpu->open_holds[SLEEPING], task->pid);
	if (cpu->open_holds[SPINNING].depth > 1)
		keep_top(&cpu->open_holds[SPINNING]);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(sched_switch, _Bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct buffer *buffer = this_buffer(&hold_buffers);
	struct account *account;
	__u64 now = 0;

	if (paused || !buffer)
		return 0;
	buffer->runs[PROGRAM_SWITCH]++;
	if (hooked)
		take_holds_along(prev);
	task_leaves_cpu(prev, preempt || !prev_state, &now);
	account = account_of(next->pid);
	if (account)
		enter_part(account, PART_RUNNING, now ? now : bpf_ktime_get_ns());
	return 0;
}
