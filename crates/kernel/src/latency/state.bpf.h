/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the latency programs know: settings of the loader, the tables, and what runs now on each CPU and in each worker.
 */
#ifndef LOCKMETER_LATENCY_STATE_BPF_H
#define LOCKMETER_LATENCY_STATE_BPF_H

#include "core.h"
#include "double_buffer.bpf.h"
#include "lock_class.bpf.h"
#include "lock_kind.bpf.h"
#include "numbers.bpf.h"
#include "tables.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

/* BH work in a softirq, a timer in it, an interrupt, a high-resolution timer in that: half of this is plenty. */
#define NESTED_RUNS 8
#define SOFTIRQS 16
#define SOFTIRQ_HRTIMER 8
/* Places for work items that are queued and not yet run. */
#define QUEUED 4096

#define UNKNOWN_NS (~0ULL)

/* Set by the loader before the programs are loaded. */
const volatile __u32 counted_runners = ~0U; /* a bit for each enum runner: others run through, to be subtracted */
const volatile __u64 threshold_ns = 0;	    /* longer runs are listed one by one; 0: none */

/* Written by the loader while the programs run. */
__u32 paused = 1;  /* until everything is attached */
__u32 resumed = 0; /* grows when counting goes on: what ran before it is forgotten */

/* In a map of its own, for another thread writes it. */
__u32 windows[WINDOWS] SEC(".data.windows") = {WINDOW_OPEN, WINDOW_OPEN, WINDOW_OPEN, WINDOW_OPEN};

DOUBLE_BUFFER(struct run_buffer) buffers SEC(".maps");

/* The waits for locks inside a run, and the one going on. Filled only where there is a threshold. */
struct lock_waits {
	__u64 lock;
	__u64 begin_ns;
	__u64 class;
	__u32 kind_mode;
	__u32 used;
	__u64 total_ns;
	struct run_wait waits[RUN_WAITS];
};

/*
 * Something that runs on a CPU and cannot leave it: an interrupt, a softirq, what they call. They nest like brackets.
 *
 * `level` tells an interruption from a call: what begins on a higher level has interrupted what ran, what begins on the
 * same was called by it (a timer by its softirq).
 */
enum level { LEVEL_SOFT = 1, LEVEL_HARD = 2 };

struct run {
	__u64 key;
	__u64 begin_ns;
	__u64 delay;	      /* in the slot's unit; UNKNOWN_NS where it is not known */
	__u64 interrupted_ns; /* what interrupted it, and what interrupted what it called */
	__u64 called_ns;      /* what it called and what is counted by itself */
	__u32 level;
	__u32 window; /* which it is timed in, and that one's number */
};

struct run_cpu {
	struct run stack[NESTED_RUNS];
	__u32 depth;
	__u32 resumed;
	/* Time in interrupts and softirqs so far: what a work item that runs now did not have of the CPU. */
	__u64 interrupts_ns;
	__u64 raised_ns[SOFTIRQS];
	/* The number of the window in which each was last seen: before that, it may have been raised unseen. */
	__u32 entered[SOFTIRQS];
	struct lock_waits waits[NESTED_RUNS];
	/* The verifier lets nobody calculate with a typed pointer; through memory it becomes a number. A word for each program,
	 * for interrupts come in between. */
	__u64 work_queued;
	__u64 work_started;
	__u64 slab_cache;
	/* Since the programs were loaded. */
	__u64 runs[RUN_PROGRAMS];
	__u64 items_begun;
	__u64 items_ended;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct run_cpu);
} run_cpus SEC(".maps");

/* A worker and the item that it works on, which may sleep and change CPUs. */
struct worker {
	__u64 key; /* 0: none */
	__u64 begin_ns;
	__u64 delay_ns;
	/* When it began: how often its worker had left a CPU, how long it had been on one, how long that CPU had been interrupted. */
	__u64 switches;
	__u64 ran_ns;
	__u64 interrupts_ns;
	__u32 resumed;
	__u32 unused;
	struct lock_waits waits;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct worker);
} workers SEC(".maps");

static __always_inline struct run_cpu *this_cpu(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&run_cpus, &key);
}

static __always_inline __u32 state_of_window(enum window window)
{
	return *(volatile __u32 *)&windows[window];
}

/* Whether a run that began in a window can still end in it. */
static __always_inline int is_live(const struct run *run)
{
	__u32 window = run->window;
	__u32 state = state_of_window(WINDOW_OF(window) % WINDOWS);

	return WINDOW_OF(state) != WINDOW_SHUT && state >> WINDOW_BITS == window >> WINDOW_BITS;
}

/* Forgets runs on top of the stack whose end nobody will see. */
static __always_inline __u32 live_depth(struct run_cpu *cpu)
{
	__u32 depth = cpu->depth;

	for (int i = 0; i < NESTED_RUNS && depth; i++) {
		if (is_live(&cpu->stack[(depth - 1) % NESTED_RUNS]))
			break;
		depth--;
	}
	return depth;
}

static __always_inline void lose_run(struct run_buffer *buffer, enum run_loss cause)
{
	__sync_fetch_and_add(&buffer->losses[cause], 1);
}

static __always_inline int is_counted(__u32 runner)
{
	return counted_runners >> runner & 1;
}

#endif
