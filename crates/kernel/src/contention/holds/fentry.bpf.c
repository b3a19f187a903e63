// SPDX-License-Identifier: GPL-2.0
/*
 * Hooks by fentry and fexit, through BPF trampolines: when a function returns, its arguments are still there.
 */
#include "../first_argument.bpf.h"
#include "hooks.bpf.h"
#include <bpf/bpf_tracing.h>

static __always_inline __u64 result_of(void *ctx)
{
	__u64 result = 0;

	bpf_get_func_ret(ctx, &result);
	return result;
}

static __always_inline int acquired_at_exit(void *ctx, __u32 kind, __u32 mode)
{
	__u64 lock = first_argument(ctx);

	return hook_acquired(lock, kind, key_of_hold(lock, mode));
}

static __always_inline int released_at_entry(void *ctx, __u32 kind, __u32 mode)
{
	__u64 lock = first_argument(ctx);

	return hook_released(ctx, lock, kind, mode, key_of_hold(lock, mode));
}

#define ACQUIRES(function, kind, mode)                                                                                 \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return acquired_at_exit(ctx, kind, mode);                                                              \
	}

/* Returns 0, or why it gave up. */
#define ACQUIRES_OR_FAILS(function, kind, mode)                                                                        \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return (__u32)result_of(ctx) ? 0 : acquired_at_exit(ctx, kind, mode);                                  \
	}

/* Returns whether it has the lock. */
#define TRIES(function, kind, mode)                                                                                    \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return (__u32)result_of(ctx) ? acquired_at_exit(ctx, kind, mode) : 0;                                  \
	}

/* As above; whether their waits and failures have tracepoints matters to kprobes only. */
#define ACQUIRES_UNTRACED ACQUIRES
#define ACQUIRES_OR_FAILS_UNTRACED ACQUIRES_OR_FAILS
#define WAITS_UNTRACED(function)

/* Calls a function that has a hook, or has the compiler put it in its place: then nobody else has seen this acquisition. */
#define WRAPS(function, kind, mode)                                                                                    \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return is_held(key_of_hold(first_argument(ctx), mode)) ? 0 : acquired_at_exit(ctx, kind, mode);        \
	}

#define WRAPS_TRIES(function, kind, mode)                                                                              \
	SEC("fexit/" #function)                                                                                        \
	int acquires_##function(void *ctx)                                                                             \
	{                                                                                                              \
		if (!(__u32)result_of(ctx) || is_held(key_of_hold(first_argument(ctx), mode)))                         \
			return 0;                                                                                      \
		return acquired_at_exit(ctx, kind, mode);                                                              \
	}

#define RELEASES(function, kind, mode)                                                                                 \
	SEC("fentry/" #function)                                                                                       \
	int releases_##function(void *ctx)                                                                             \
	{                                                                                                              \
		return released_at_entry(ctx, kind, mode);                                                             \
	}

/* Ends a write hold here, and begins a read hold when it returns. */
#define DOWNGRADES(function, kind)                                                                                     \
	RELEASES(function, kind, MODE_WRITE)                                                                           \
	ACQUIRES(function, kind, MODE_READ)

#include "sleeping_functions.h"
#include "spinning_functions.h"
