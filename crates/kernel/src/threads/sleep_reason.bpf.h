/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a thread goes to sleep: by its system call, the file that this is for, and what the kernel says of the task.
 */
#ifndef LOCKMETER_SLEEP_REASON_BPF_H
#define LOCKMETER_SLEEP_REASON_BPF_H

#include "../futex/futex_waits.bpf.h"
#include "tables.h"
#include <bpf/bpf_core_read.h>

#define TASK_STOPPED 4
#define TASK_TRACED 8

/* Of `flags`: reclaims memory. */
#define PF_MEMALLOC 0x00000800

/* Of `thread_info.status`: in a system call of 32 bits, whose numbers are others. */
#define TS_COMPAT 2

/* The kind of file in `i_mode`. */
#define FILE_KIND 0170000
#define FILE_PIPE 0010000
#define FILE_REGULAR 0100000
#define FILE_DIRECTORY 0040000
#define FILE_BLOCK 0060000
#define FILE_SOCKET 0140000

#define FAMILY_UNIX 1

/* Filled by the loader. */
const volatile __u8 state_of_call[CALLS];

/* What lies at an address, by plain loads where the kernel can be told of a type (since 6.2): reads by helper take ten times as long. */
#define AT(type, address) bpf_core_cast((const void *)(address), type)

static __always_inline __u32 state_of_file(struct task_struct *task, __u32 descriptor)
{
	struct file *file = 0, **open;
	struct socket *socket;
	unsigned short family;
	__u32 kind;

	if (descriptor >= 1 << 20)
		return STATE_OTHER;
	open = task->files->fdt->fd + descriptor;
	if (bpf_probe_read_kernel(&file, sizeof(file), open) || !file)
		return STATE_OTHER;
	kind = (bpf_rdonly_cast ? AT(struct file, file)->f_inode->i_mode : BPF_CORE_READ(file, f_inode, i_mode)) &
	       FILE_KIND;
	if (kind == FILE_PIPE)
		return STATE_PIPE_OR_SOCKET;
	if (kind == FILE_REGULAR || kind == FILE_DIRECTORY || kind == FILE_BLOCK)
		return STATE_DISK_IO;
	if (kind != FILE_SOCKET)
		return STATE_OTHER;
	socket = bpf_rdonly_cast ? AT(struct file, file)->private_data : BPF_CORE_READ(file, private_data);
	family = bpf_rdonly_cast ? AT(struct socket, socket)->sk->__sk_common.skc_family
				 : BPF_CORE_READ(socket, sk, __sk_common.skc_family);
	return family == FAMILY_UNIX ? STATE_PIPE_OR_SOCKET : STATE_NETWORK_OR_POLL;
}

/* The state of a thread that goes to sleep. `lock`: of the kernel, which it waits for; 0 if it waits for none. */
static __always_inline __u32 reason_of(struct task_struct *task, __u64 lock, __u32 task_state,
				       const struct pt_regs *regs, __u32 *known_call)
{
	__u64 call;
	__u32 state;

	*known_call = CALLS;
	if (task_state & (TASK_STOPPED | TASK_TRACED))
		return STATE_OTHER;
	call = regs->orig_ax;
	if (task->thread_info.status & TS_COMPAT)
		return lock ? STATE_KERNEL_LOCK : STATE_OTHER;
	if (call < CALLS)
		*known_call = call;
	/* The kernel's lock behind a mutex of the program that lends priority is that mutex. */
	if (lock && !(call == CALL_FUTEX && waits_for_futex(regs)))
		return STATE_KERNEL_LOCK;
	if (task->flags & PF_MEMALLOC)
		return STATE_RECLAIM;
	if ((__s64)call < 0)
		return STATE_PAGE_FAULT;
	if (BPF_CORE_READ_BITFIELD(task, in_iowait))
		return STATE_DISK_IO;
	if (call >= CALLS)
		return STATE_OTHER;
	state = state_of_call[call];
	return state == STATE_BY_FILE ? state_of_file(task, regs->di) : state;
}

#endif
