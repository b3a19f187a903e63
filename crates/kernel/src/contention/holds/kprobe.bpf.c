// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks by kprobes, for locks that sleep, where there are no BPF trampolines.
 *
 * A return probe needs a place to keep its caller's address for as long as the function runs, and has ten of them, or two for each
 * CPU: a few tasks that sleep in mutex_lock() would use them up, and every other acquisition on the machine would be missed. So a
 * hold begins when the function is entered. If the lock is taken at once, that is when it was acquired. If not, contention_begin
 * takes the beginning back and contention_end sets it. An rwsem's writer that spins has no tracepoint, but a function of its own,
 * whose return is probed; and so are functions that may fail without a word, or that wait otherwise. Those do not wait for long, or
 * are few. What is missed all the same is a release without an acquisition, and counted as such.
 */
#include "hooks.bpf.h"
#include "kprobe_waits.bpf.h"

/* A hold that begins before the lock is had is always found by its thread, too. */
static __always_inline __u64 key_of_thread(__u64 lock)
{
	return key_of_hold(lock, MODE_READ);
}

/* A call of a function whose return is probed has a place among the held locks, too. Nothing calls itself. */
static __always_inline __u64 tag_of_call(__u32 function)
{
	return mix(bpf_get_current_task() ^ (__u64)function << 48) | 1;
}

static __always_inline int call_begins(__u64 lock, __u32 function)
{
	__u64 tag = tag_of_call(function);
	struct held *call;
	__u64 now;

	if (is_off(KIND_MUTEX) || !in_scope(bpf_get_current_task_btf()))
		return 0;
	now = bpf_ktime_get_ns();
	call = find_held(tag);
	if (!call)
		call = claim_held(tag, now);
	if (!call)
		return 0;
	call->begin_ns = now;
	call->resumed = NOT_BEGUN(*(volatile __u32 *)&watched);
	call->lock = lock;
	return 0;
}

/* The lock that the call was for; 0 if its beginning was not seen, or came before hooks went on last: then it may be of another call. */
static __always_inline __u64 call_ends(__u32 function)
{
	struct held *call;
	__u64 lock;

	call = find_held(tag_of_call(function));
	if (!call)
		return 0;
	lock = call->resumed == NOT_BEGUN(*(volatile __u32 *)&watched) ? call->lock : 0;
	free_held(call);
	return lock;
}

#define ACQUIRES(function, kind, mode)                                                                                 \
	SEC("kprobe/" #function)                                                                                       \
	int kprobe_acquires_##function(struct pt_regs *ctx)                                                            \
	{                                                                                                              \
		return hook_acquired(ctx->di, kind, key_of_thread(ctx->di));                                           \
	}
#define ACQUIRES_OR_FAILS ACQUIRES

/* `has_it` may look at `lock` and `result`. */
#define ACQUIRES_IF(function, kind, mode, has_it)                                                                      \
	enum { call_of_##function = __COUNTER__ };                                                                     \
	SEC("kprobe/" #function)                                                                                       \
	int kprobe_enters_##function(struct pt_regs *ctx)                                                              \
	{                                                                                                              \
		return call_begins(ctx->di, call_of_##function);                                                       \
	}                                                                                                              \
	SEC("kretprobe/" #function)                                                                                    \
	int kprobe_returns_##function(struct pt_regs *ctx)                                                             \
	{                                                                                                              \
		__u64 lock = call_ends(call_of_##function);                                                            \
		__u32 result = ctx->ax;                                                                                \
                                                                                                                       \
		(void)result;                                                                                          \
		return lock && (has_it) ? hook_acquired(lock, kind, key_of_thread(lock)) : 0;                          \
	}

#define ACQUIRES_UNTRACED(function, kind, mode) ACQUIRES_IF(function, kind, mode, 1)
#define ACQUIRES_OR_FAILS_UNTRACED(function, kind, mode) ACQUIRES_IF(function, kind, mode, !result)
#define TRIES(function, kind, mode) ACQUIRES_IF(function, kind, mode, result)
#define WRAPS(function, kind, mode) ACQUIRES_IF(function, kind, mode, !is_held(key_of_thread(lock)))
#define WRAPS_TRIES(function, kind, mode) ACQUIRES_IF(function, kind, mode, result && !is_held(key_of_thread(lock)))

/* Returns the lock, or an error. */
#define WAITS_UNTRACED(function)                                                                                       \
	SEC("kprobe/" #function)                                                                                       \
	int kprobe_enters_##function(struct pt_regs *ctx)                                                              \
	{                                                                                                              \
		if (!is_off(KIND_RWSEM))                                                                               \
			hooked_waits(ctx->di, bpf_get_current_task_btf());                                             \
		return 0;                                                                                              \
	}                                                                                                              \
	SEC("kretprobe/" #function)                                                                                    \
	int kprobe_returns_##function(struct pt_regs *ctx)                                                             \
	{                                                                                                              \
		if (!is_off(KIND_RWSEM))                                                                               \
			hooked_waited(ctx->ax, bpf_get_current_task_btf(), 0, 0);                                      \
		return 0;                                                                                              \
	}

#define RELEASES(function, kind, mode)                                                                                 \
	SEC("kprobe/" #function)                                                                                       \
	int kprobe_releases_##function(struct pt_regs *ctx)                                                            \
	{                                                                                                              \
		return hook_released(ctx, ctx->di, kind, mode, key_of_thread(ctx->di));                                \
	}

/* One probe: two of the same function come in an order that is nobody's promise. */
#define DOWNGRADES(function, kind)                                                                                     \
	SEC("kprobe/" #function)                                                                                       \
	int kprobe_releases_##function(struct pt_regs *ctx)                                                            \
	{                                                                                                              \
		hook_released(ctx, ctx->di, kind, MODE_WRITE, key_of_thread(ctx->di));                                 \
		return hook_acquired(ctx->di, kind, key_of_thread(ctx->di));                                           \
	}

#include "sleeping_functions.h"
