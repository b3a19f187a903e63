/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the contention programs know: settings of the loader, the tables, and the waits that are going on.
 *
 * Variables and maps in headers are weak: each file of programs defines them, and the linker keeps one of each.
 */
#ifndef LOCKMETER_STATE_BPF_H
#define LOCKMETER_STATE_BPF_H

#include "budget.bpf.h"
#include "double_buffer.bpf.h"
#include "lock_class.bpf.h"
#include "numbers.bpf.h"
#include "tables.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define NESTED_SPINS 4 /* task, softirq, hard interrupt, NMI */
#define NESTED_SLEEPS 2
#define CLASS_CACHE_BITS 10
#define CLASS_CACHE (1 << CLASS_CACHE_BITS)
#define SCRATCH_LEVELS 3
/* Powers of two. */
#define HOLD_GROUP_BITS 4
#define HOLD_GROUPS (1 << HOLD_GROUP_BITS)
#define UNTIMED_MARKS 64
#define OPEN_HOLDS 16

enum scope { SCOPE_ALL, SCOPE_FOLLOWED, SCOPE_CGROUP };

/* Set by the loader before the programs are loaded. */
const volatile __u32 scope __weak = SCOPE_ALL;
/* Only waits for mmap_lock, counted by the memory control group of its address space. */
const volatile __u8 only_mmap_lock __weak = 0;
const volatile __u64 scope_cgroup __weak = 0;
const volatile __u32 scope_cgroup_level __weak = 0;
/* Written by the loader while the programs run. */
__u32 paused __weak = 1;     /* until everything is attached */
__u32 resumed __weak = 0;    /* grows when counting goes on: waits that were open before it are forgotten */
__u32 watched __weak = 0;    /* the same for holds; grows also when hooks go on that were off to keep their budget */
__u32 generation __weak = 1; /* grows at each drain: identities cached before it are looked up again */

DOUBLE_BUFFER(struct buffer) buffers __weak SEC(".maps");

/*
 * A waiter, with the hash of it. Taken at the begin, where a waiter waits anyway: at the end it would lengthen the hold.
 */
struct who {
	__u64 cgroup;
	__u64 hash;
	__u32 tgid;
	__u32 unused;
	union {
		char comm[COMM_LENGTH];
		__u64 comm_words[2];
	};
};

/* The end of a chain of blockers: the lock, and the stack of who had it. */
struct root {
	__u64 class; /* 0: there is none */
	__u64 stack;
	__u32 kind_mode;
	__u32 state; /* what it did; 0: not known */
};

/* A wait that spins: interrupts can nest them, so each CPU keeps a short stack. */
struct spin_wait {
	__u64 lock;
	__u64 begin_ns;
	__u64 threshold_ns;
	__u64 period_ns;
	__u64 class;
	__u64 nested_ns; /* waits of interrupts that came meanwhile: not this waiter's CPU time */
	struct who who;
	__u32 tid;
	__u16 kind_mode;
	__u16 inner; /* the wait lock inside a lock that is already being waited for */
};

struct class_entry {
	__u64 address;
	__u64 class;
	__u32 generation;
	__u32 unused;
};

/* The one that did something on a CPU last: mostly it does so again. */
struct known_who {
	__u64 cgroups; /* where a task keeps which groups it is in */
	__u32 generation;
	__u32 unused;
	struct who who;
};

/* Holds of which a CPU times one in `one_in`. */
struct hold_group {
	__u64 since_ns;
	__u32 timed;  /* since then */
	__u32 one_in; /* 0 and 1: all */
	__u32 to_go;  /* this many are not timed, then one is */
	__u32 unused;
};

/* A hold of a lock with a hook. */
struct open_hold {
	__u64 key;	  /* 0: none */
	__u64 begin_tick; /* 0: it is timed. The highest bit is WAS_CONTENDED */
	/* Of one that is timed. */
	__u64 begin_ns;
	__u32 timed_tick;
	__u32 stands_for;
};

/* Those of the task that runs on a CPU, the last one on top. */
struct open_holds {
	__u32 depth;
	__u32 resumed; /* which resumption they began after */
	struct open_hold holds[OPEN_HOLDS];
};

struct cpu_state {
	struct spin_wait spins[NESTED_SPINS];
	__u32 depth;
	__u32 resumed;
	__u64 scratch_level;
	__u64 random;
	__u64 random_of_holds;
	__u64 cache_address;
	__u32 counting;	      /* a hold */
	__u32 hook_events[2]; /* of locks that sleep, and of those that spin */
	__u32 marks_since;    /* which resumption */
	struct hold_group hold_groups[HOLD_GROUPS];
	__u64 untimed_marks[UNTIMED_MARKS];
	__u64 marked_after_ns[UNTIMED_MARKS]; /* when the clock was last read before that */
	__u64 clock_ns;			      /* what was read of it last, for a hold of mmap_lock */
	__u64 clock_tick;		      /* how often the kernel's clock had ticked then */
	__u64 preempt_count_at; /* where this CPU's is; 0: not known. Set by the loader before anything is attached */
	__u32 gaps_of;		/* which generation */
	__u32 unused;
	/* The lock that was waited for last on this CPU, until the next one is acquired: one that sleeps, and one that spins. */
	__u64 waited_for[2];
	struct open_holds open_holds[2]; /* of locks that sleep, and of those that spin */
	struct known_who releaser;	 /* of a lock that is hooked */
	struct known_who mmap_waiter;
	struct known_who mmap_holder;
	struct class_entry classes[CLASS_CACHE];
	__u64 scratch[SCRATCH_LEVELS][STACK_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states __weak SEC(".maps");

/* A wait that may sleep. It belongs to the task, which may change CPUs. */
struct sleep_wait {
	__u64 lock;
	__u64 begin_ns;
	__u64 phase_begin_ns;
	__u64 spin_ns;
	__u64 threshold_ns;
	__u64 period_ns;
	__u64 class;
	__u64 blocker;
	__u32 kind_mode;
	__u32 spinning;
	__u32 slept;
	__u32 blocker_source;
	__u32 blocker_tgid;
	__u32 owner_tgid;
	/* How often the waiter had left its CPU when the wait began. */
	__u32 switches;
	__u32 unused;
	struct who who;
	/* The one that woke the waiter last; only where holds are metered. */
	__u32 releaser_tid;
	__u32 releaser_tgid;
	char releaser_comm[COMM_LENGTH];
	char blocker_comm[COMM_LENGTH];
	char owner_comm[COMM_LENGTH];
};

/* A wait of a task that has ended, or several that are kept as one, and who had most of it. */
struct past_wait {
	__u64 lock;
	__u64 begin_ns;
	__u64 end_ns;
	__u64 last_ns; /* how long the last of them was */
	struct root root;
};

/* All that is kept of a task: one map, for a kernel frees one such map after another, and other meters see it wait. */
struct sleeper {
	__u32 depth;
	__u32 resumed;
	/* A thread group leader that is metered, when the scope is a process and its children. */
	__u32 followed;
	__u16 is_counted; /* as a waiter, */
	__u16 counted_at; /* in this place */
	struct sleep_wait waits[NESTED_SLEEPS];
	struct past_wait past_wait;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sleeper);
} sleepers __weak SEC(".maps");

static __always_inline struct cpu_state *this_cpu(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cpu_states, &key);
}

static __always_inline void lose(struct buffer *buffer, enum loss cause)
{
	__sync_fetch_and_add(&buffer->losses[cause], 1);
}

#endif
