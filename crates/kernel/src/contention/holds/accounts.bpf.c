// SPDX-License-Identifier: GPL-2.0
/*
 * Accounts that do not lie in their first place.
 */
#include "accounts.bpf.h"

__hidden __noinline struct account *find_further_account(__u32 tid, __u32 begin)
{
	for (__u32 i = 1; i < PROBES; i++)
		if (*(volatile __u32 *)&accounts.tids[begin % ACCOUNTS + i] == tid)
			return &accounts.accounts[begin % ACCOUNTS + i];
	return 0;
}
