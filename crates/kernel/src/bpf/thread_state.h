/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The states of threads, for the programs that watch them and for those that say what a holder did.
 */
#ifndef LOCKMETER_THREAD_STATE_H
#define LOCKMETER_THREAD_STATE_H

/* What a thread does, the numbers of the model. */
enum state {
	/* Asks for the file behind the first argument: no state of a thread. */
	STATE_BY_FILE = 0,
	STATE_RUNNING = 1,
	STATE_RUNNABLE = 2,
	STATE_WOKEN = 3,
	STATE_KERNEL_LOCK = 4,
	STATE_USER_LOCK = 5,
	STATE_CONDITION = 6,
	STATE_FILE_LOCK = 7,
	STATE_DISK_IO = 8,
	STATE_PAGE_FAULT = 9,
	STATE_NETWORK_OR_POLL = 10,
	STATE_PIPE_OR_SOCKET = 11,
	STATE_SLEEP = 12,
	STATE_CHILD = 13,
	STATE_OTHER = 14,
	STATE_FUTEX = 15,
	STATE_RECLAIM = 16,
	STATES = 17,
};

/* With the number of the system call that it slept in, plus 1, if that tells more of it. */
#define DID_CALL_SHIFT 5
#define DID_STATE_MASK ((1 << DID_CALL_SHIFT) - 1)

#endif
