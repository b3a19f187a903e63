// SPDX-License-Identifier: GPL-2.0
/*
 * Waits that began before the programs were attached: the loader has found them, by the stacks of tasks that sleep. From here on they are
 * as if contention_begin had seen them, so that they end, and are counted, as others do.
 */
#include "sleeping.bpf.h"

/* Written by the loader, one reading of the iterator after another. */
struct older_wait older_waits[OLDER_WAITS] = {};
__u32 older_waits_told = 0;
__u64 older_scratch = 0;

/* A task that has left its CPU no more since it was found asleep, and sleeps, is in the same sleep. */
static __always_inline int sleeps_still(struct task_struct *task, const struct older_wait *older)
{
	return *(volatile unsigned int *)&task->__state && switches_of(task) == older->switches;
}

static __always_inline void adopt(struct task_struct *task, const struct older_wait *older, struct buffer *buffer)
{
	struct sleep_wait *wait;
	struct account *account;
	struct sleeper *sleeper;

	sleeper = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!sleeper || !sleeps_still(task, older))
		return;
	if (sleeper->resumed != *(volatile __u32 *)&resumed) {
		sleeper->resumed = *(volatile __u32 *)&resumed;
		sleeper->depth = 0;
	}
	if (sleeper->depth)
		return;
	wait = &sleeper->waits[0];
	__builtin_memset(wait, 0, sizeof(*wait));
	wait->lock = older->lock;
	wait->begin_ns = older->begin_ns;
	wait->phase_begin_ns = older->begin_ns;
	wait->slept = 1;
	wait->blocker_source = BLOCKER_WAKEUP_NOT_SEEN;
	wait->kind_mode = older->kind_mode;
	/* It has slept, whatever else was seen of it. */
	wait->switches = older->switches - 1;
	wait->class = look_up_class(older->lock, &older_scratch, &buffer->losses[LOSS_CACHES_FULL]);
	note_owner(wait);
	who_waits(task, &wait->who);
	barrier();
	sleeper->depth = 1;
	count_in(task, sleeper);
	__sync_fetch_and_add(&buffer->opened, 1);
	if (!contended_holds)
		return;
	account = open_account(task->pid, PART_LOCK, older->begin_ns);
	if (!account)
		return;
	account->lock = wait->lock;
	account->waits = wait->kind_mode & 0xff;
	enter_part(account, PART_LOCK, bpf_ktime_get_ns());
}

SEC("iter/task")
int adopt_older_waits(struct bpf_iter__task *ctx)
{
	struct buffer *buffer = this_buffer(&buffers);
	struct task_struct *task = ctx->task;

	if (!task || !buffer || paused || only_mmap_lock)
		return 0;
	for (__u32 i = 0; i < OLDER_WAITS && i < older_waits_told; i++)
		if (older_waits[i].tid == (__u32)task->pid)
			adopt(task, &older_waits[i], buffer);
	return 0;
}
