// SPDX-License-Identifier: GPL-2.0
/*
 * Meters lock contention from three tracepoints.
 *
 *   contention_begin   starts the clock of a wait and takes the lock's identity
 *   sched_waking       takes the stack of whoever wakes a sleeping waiter: the blocker
 *   contention_end     counts the wait, exactly; takes the waiter's stack if the wait was drawn for the sample
 *
 * Which waits are sampled. At its begin every wait draws a threshold, uniform in [0, period); it is sampled if it lasts
 * longer. So a wait of d ns is sampled with probability min(1, d / period) and stands for max(1, period / d) waits:
 * stacks are spent in proportion to waited time, which is what a report ranks by, and the estimates are unbiased. The
 * period adapts to keep the time spent on stacks within the budget.
 *
 * Nothing here takes a lock or allocates, except task-local storage the first time a task sleeps on a lock.
 */
#include "core.h"
#include "contention.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

/* Flags of lock:contention_begin, include/trace/events/lock.h. No flag at all is a semaphore. */
#define LCB_F_SPIN 1
#define LCB_F_READ 2
#define LCB_F_WRITE 4
#define LCB_F_RT 8
#define LCB_F_PERCPU 16
#define LCB_F_MUTEX 32

#define NESTED_SPINS 4 /* task, softirq, hard interrupt, NMI */
#define NESTED_SLEEPS 2
#define CLASS_CACHE_BITS 8
#define CLASS_CACHE (1 << CLASS_CACHE_BITS)
#define SCRATCH_LEVELS 3
#define PAGE_SHIFT 12
#define PAGE_SIZE (1ULL << PAGE_SHIFT)

/* Where x86-64 and arm64 keep the kernel image, modules and fixed mappings: never slab memory. */
#define IMAGE_BEGIN_X86 0xffffffff80000000ULL

/* Period bounds: 1 s keeps period * 2^32 within 64 bits. */
#define PERIOD_MAX_NS (1ULL << 30)
#define PERIOD_START_NS 20000ULL
#define PERIOD_MIN_NS 64ULL
#define EPOCH_NS 20000000ULL

enum scope { SCOPE_ALL, SCOPE_FOLLOWED, SCOPE_CGROUP };

/* Set by the loader before the programs are loaded. */
const volatile __u32 cpus = 1;
const volatile __u32 scope = SCOPE_ALL;
const volatile __u64 scope_cgroup = 0;
const volatile __u32 scope_cgroup_level = 0;
const volatile __u32 stack_budget_ppm = 10000;
const volatile __u8 every_stack = 0;
const volatile __u8 has_get_kmem_cache = 0;
/* Address of the struct page of virtual address 0, so to say: page_of(va) = anchor + (va >> 12) * sizeof(struct page).
 * 0 when unknown. */
const volatile __u64 page_anchor = 0;
const volatile __u32 struct_page_size = 64;
const volatile __u64 struct_pages_begin = 0;
const volatile __u64 struct_pages_end = 0;
/* The direct map, where slab objects live. */
const volatile __u64 direct_map_begin = 0;
const volatile __u64 direct_map_end = 0;
const volatile __u64 image_begin = IMAGE_BEGIN_X86;

/* Written by the loader while the programs run. */
__u32 active_half = 0;
__u32 paused = 0;
__u32 generation = 1; /* grows at each drain: identities cached before it are looked up again */

/* The budget, shared by all CPUs and touched only when a stack is taken or an epoch ends. */
__u64 period_ns = PERIOD_START_NS;
__u64 stack_spent_ns = 0;
__u64 epoch_begin_ns = 0;
__u64 epoch_spent_ns = 0;

__u64 caches[CACHES];

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 2); /* two a CPU, set by the loader */
	__type(key, __u32);
	__type(value, struct half);
} halves SEC(".maps");

/* A wait that spins: interrupts can nest them, so each CPU keeps a short stack. */
struct spin_wait {
	__u64 lock;
	__u64 begin_ns;
	__u64 threshold_ns;
	__u64 period_ns;
	__u64 class;
	__u64 nested_ns; /* waits of interrupts that came meanwhile: not this waiter's CPU time */
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

struct cpu_state {
	struct spin_wait spins[NESTED_SPINS];
	__u32 depth;
	__u32 scratch_level;
	__u64 random;
	__u64 cache_address;
	struct class_entry classes[CLASS_CACHE];
	__u64 scratch[SCRATCH_LEVELS][STACK_DEPTH];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

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
	char blocker_comm[COMM_LENGTH];
	char owner_comm[COMM_LENGTH];
};

struct sleeper {
	__u32 depth;
	__u32 unused;
	struct sleep_wait waits[NESTED_SLEEPS];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sleeper);
} sleepers SEC(".maps");

/* Thread group leaders that are metered when the scope is a process and its children. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} followed SEC(".maps");

extern struct kmem_cache *bpf_get_kmem_cache(__u64 address) __ksym __weak;

static __always_inline struct half *this_half(void)
{
	__u32 key = bpf_get_smp_processor_id() * 2 + (*(volatile __u32 *)&active_half & 1);

	return bpf_map_lookup_elem(&halves, &key);
}

static __always_inline struct cpu_state *this_cpu(void)
{
	__u32 key = 0;

	return bpf_map_lookup_elem(&cpu_states, &key);
}

static __always_inline void lose(struct half *half, enum loss cause)
{
	__sync_fetch_and_add(&half->losses[cause], 1);
}

static __always_inline __u64 mix(__u64 x)
{
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ULL;
	x ^= x >> 32;
	return x;
}

/* Maps a hash onto a table whose size is no power of two. */
static __always_inline __u32 slot_of(__u64 hash, __u32 slots)
{
	return ((hash >> 32) * slots) >> 32;
}

static __always_inline __u32 log2_of(__u64 x)
{
	__u32 bits = 0;

	if (x >> 32) {
		bits += 32;
		x >>= 32;
	}
	if (x >> 16) {
		bits += 16;
		x >>= 16;
	}
	if (x >> 8) {
		bits += 8;
		x >>= 8;
	}
	if (x >> 4) {
		bits += 4;
		x >>= 4;
	}
	if (x >> 2) {
		bits += 2;
		x >>= 2;
	}
	return bits + (x >> 1);
}

/* Raises *max to value: an interrupt may raise it meanwhile. Two tries suffice, for only an interrupt can win the first. */
static __always_inline void raise_max(__u64 *max, __u64 value)
{
	__u64 seen = *(volatile __u64 *)max;

	for (int i = 0; i < 2 && value > seen; i++) {
		__u64 was = __sync_val_compare_and_swap(max, seen, value);

		if (was == seen)
			return;
		seen = was;
	}
}

/* ---- which lock ------------------------------------------------------------------------------------------------- */

static __always_inline __u64 page_of(__u64 address)
{
	return page_anchor + (address >> PAGE_SHIFT) * struct_page_size;
}

static __always_inline struct kmem_cache *cache_of_slab(__u64 page)
{
	struct kmem_cache *cache = 0;

	bpf_core_read(&cache, sizeof(cache), &((struct slab *)page)->slab_cache);
	return cache;
}

/* Whether a page's own words say that it belongs to a slab; the test differs by kernel. */
static __always_inline int page_is_slab(struct page *page)
{
	if (bpf_core_enum_value_exists(enum pagetype___slab_byte, PGTY_slab___slab_byte)) {
		__u32 type = BPF_CORE_READ((struct page___typed *)page, page_type);

		return type >> 24 == bpf_core_enum_value(enum pagetype___slab_byte, PGTY_slab___slab_byte);
	}
	if (bpf_core_enum_value_exists(enum pagetype___slab_bit, PG_slab___slab_bit)) {
		__u32 type = BPF_CORE_READ((struct page___typed *)page, page_type);

		return (type & 0xf0000000) == 0xf0000000 &&
		       !(type & bpf_core_enum_value(enum pagetype___slab_bit, PG_slab___slab_bit));
	}
	if (bpf_core_enum_value_exists(enum pageflags___slab_flag, PG_slab___slab_flag)) {
		__u64 flags = BPF_CORE_READ(page, flags);

		return flags >> bpf_core_enum_value(enum pageflags___slab_flag, PG_slab___slab_flag) & 1;
	}
	return 0;
}

/* The slab cache of an address by its page, for kernels without bpf_get_kmem_cache() (before 6.13). */
static __always_inline struct kmem_cache *cache_by_page(__u64 address)
{
	struct page *page;
	__u64 head;

	if (!page_anchor || address < direct_map_begin || address >= direct_map_end)
		return 0;
	page = (struct page *)page_of(address);
	head = BPF_CORE_READ(page, compound_head);
	if (head & 1)
		page = (struct page *)(head - 1);
	return page_is_slab(page) ? cache_of_slab((__u64)page) : 0;
}

static __always_inline __s32 intern_cache(__u64 cache)
{
	__u32 at = mix(cache) >> 32;

	for (int i = 0; i < PROBES; i++, at++) {
		__u64 *slot = &caches[at % CACHES];
		__u64 seen = *(volatile __u64 *)slot;

		if (!seen)
			seen = __sync_val_compare_and_swap(slot, 0, cache);
		if (!seen || seen == cache)
			return at % CACHES;
	}
	return -1;
}

static __always_inline __u64 class_in_slab(__u64 address, __u64 cache, __u32 size, __u32 order, __u32 min_order,
					   struct half *half)
{
	__u64 slab = address & ~((PAGE_SIZE << order) - 1);
	__s32 index;

	/* Short of memory, the allocator makes smaller slabs: then the page at the large slab's start is not ours. */
	if (min_order != order && page_anchor && (__u64)cache_of_slab(page_of(slab)) != cache)
		slab = address & ~((PAGE_SIZE << min_order) - 1);
	if (!size)
		return address;
	index = intern_cache(cache);
	if (index < 0) {
		lose(half, LOSS_CACHES_FULL);
		return address;
	}
	return CLASS_SLAB | (__u64)index << 32 | (__u32)(address - slab) % size;
}

static __always_inline __u64 look_up_class(__u64 address, struct cpu_state *cpu, struct half *half)
{
	struct kmem_cache *cache;

	if (address >= image_begin)
		return address;
	if (address >= struct_pages_begin && address < struct_pages_end)
		return CLASS_PAGE | address % struct_page_size;
	if (has_get_kmem_cache && bpf_get_kmem_cache) {
		cache = bpf_get_kmem_cache(address);
		if (!cache)
			return address;
		/* The verifier lets nobody calculate with a typed pointer; through memory it becomes a number. */
		*(volatile __u64 *)&cpu->cache_address = (__u64)cache;
		return class_in_slab(address, *(volatile __u64 *)&cpu->cache_address, cache->size, cache->oo.x >> 16,
				     cache->min.x >> 16, half);
	}
	cache = cache_by_page(address);
	if (!cache)
		return address;
	return class_in_slab(address, (__u64)cache, BPF_CORE_READ(cache, size), BPF_CORE_READ(cache, oo.x) >> 16,
			     BPF_CORE_READ(cache, min.x) >> 16, half);
}

static __always_inline __u64 class_of(__u64 address, struct cpu_state *cpu, struct half *half)
{
	struct class_entry *entry = &cpu->classes[address * 0x9e3779b97f4a7c15ULL >> (64 - CLASS_CACHE_BITS)];
	__u32 now = *(volatile __u32 *)&generation;
	__u64 class;

	if (entry->address == address && entry->generation == now)
		return entry->class;
	class = look_up_class(address, cpu, half);
	/* An interrupt between these stores must find no half-written entry. */
	*(volatile __u64 *)&entry->address = 0;
	*(volatile __u64 *)&entry->class = class;
	*(volatile __u32 *)&entry->generation = now;
	*(volatile __u64 *)&entry->address = address;
	return class;
}

/* ---- the budget ------------------------------------------------------------------------------------------------- */

/* At the end of an epoch one CPU adapts the period to what stacks cost in it. */
static __always_inline void adapt_period(__u64 now)
{
	__u64 begin = *(volatile __u64 *)&epoch_begin_ns;
	__u64 spent, allowed, period;

	if (every_stack || now < begin + EPOCH_NS)
		return;
	if (__sync_val_compare_and_swap(&epoch_begin_ns, begin, now) != begin)
		return;
	if (!begin)
		return;
	spent = *(volatile __u64 *)&stack_spent_ns - epoch_spent_ns;
	epoch_spent_ns += spent;
	allowed = (now - begin) / 1000 * cpus * stack_budget_ppm / 1000;
	period = period_ns;
	if (spent > allowed)
		period = period * (spent > allowed * 8 ? 8 : 2) + PERIOD_MIN_NS;
	else if (spent * 4 > allowed * 3)
		; /* close enough */
	else if (spent * 4 < allowed)
		period = period / 2;
	else
		period -= period / 8;
	if (period < PERIOD_MIN_NS)
		period = 0;
	if (period > PERIOD_MAX_NS)
		period = PERIOD_MAX_NS;
	period_ns = period;
}

static __always_inline void draw(struct cpu_state *cpu, __u64 *threshold_ns, __u64 *period)
{
	__u64 now_period = every_stack ? 0 : *(volatile __u64 *)&period_ns;

	cpu->random = cpu->random * 6364136223846793005ULL + 1442695040888963407ULL;
	*period = now_period;
	*threshold_ns = now_period * (cpu->random >> 32) >> 32;
}

/* A burst may not spend more than four epochs' worth in one. */
static __always_inline int over_budget(void)
{
	__u64 allowed = EPOCH_NS / 1000 * cpus * stack_budget_ppm / 1000;

	return !every_stack && *(volatile __u64 *)&stack_spent_ns - *(volatile __u64 *)&epoch_spent_ns > 4 * allowed;
}

/* ---- stacks ----------------------------------------------------------------------------------------------------- */

/* The kernel clears what is left of `frames` beyond `depth`, so no loop here depends on it. */
static __always_inline __u64 store_stack(const __u64 *frames, __u32 depth, struct half *half)
{
	__u64 hash = depth;

	for (__u32 i = 0; i < STACK_DEPTH; i++)
		hash = (hash ^ hash >> 29 ^ frames[i]) * 0xd6e8feb86659fd93ULL;
	hash = mix(hash) | 1;
	for (__u32 i = 0; i < PROBES; i++) {
		struct stack_slot *slot = &half->stacks[slot_of(hash, STACKS) + i];
		__u64 seen = *(volatile __u64 *)&slot->hash;

		if (!seen)
			seen = __sync_val_compare_and_swap(&slot->hash, 0, hash);
		if (seen == hash)
			return hash;
		if (!seen) {
			half->stacks_used++;
			__builtin_memcpy(slot->frames, frames, sizeof(slot->frames));
			slot->depth = depth;
			return hash;
		}
	}
	lose(half, LOSS_STACKS_FULL);
	return 0;
}

/* Takes the kernel stack of whoever runs here; 0 if it was not to be had. */
static __always_inline __u64 take_stack(void *ctx, struct cpu_state *cpu, struct half *half)
{
	__u64 begin, spent, hash = 0;
	__u32 level;
	long size;

	if (over_budget()) {
		lose(half, LOSS_OVER_BUDGET);
		return 0;
	}
	begin = bpf_ktime_get_ns();
	level = __sync_fetch_and_add(&cpu->scratch_level, 1);
	if (level < SCRATCH_LEVELS) {
		__u64 *frames = cpu->scratch[level];

		size = bpf_get_stack(ctx, frames, sizeof(cpu->scratch[0]), 0);
		if (size <= 0) {
			lose(half, LOSS_STACK_FAILED);
		} else {
			if (size == sizeof(cpu->scratch[0]))
				lose(half, LOSS_STACK_TOO_DEEP);
			hash = store_stack(frames, (__u32)size / 8, half);
		}
	} else {
		lose(half, LOSS_STACK_FAILED);
	}
	__sync_fetch_and_add(&cpu->scratch_level, -1);
	spent = bpf_ktime_get_ns() - begin;
	__sync_fetch_and_add(&stack_spent_ns, spent);
	__sync_fetch_and_add(&half->stack_ns, spent);
	__sync_fetch_and_add(&half->stacks_taken, 1);
	return hash;
}

/* ---- counting --------------------------------------------------------------------------------------------------- */

struct wait {
	__u64 class;
	__u64 instance;
	__u64 total_ns;
	__u64 spin_ns;
	__u64 threshold_ns;
	__u64 period_ns;
	__u32 kind_mode;
};

struct who {
	__u64 cgroup;
	__u32 tgid;
	__u32 unused;
	union {
		char comm[COMM_LENGTH];
		__u64 comm_words[2];
	};
};

static __always_inline void add_total(struct total_slot *slot, const struct wait *wait)
{
	__sync_fetch_and_add(&slot->count, 1);
	__sync_fetch_and_add(&slot->total_ns, wait->total_ns);
	if (wait->spin_ns)
		__sync_fetch_and_add(&slot->spin_ns, wait->spin_ns);
	raise_max(&slot->max_ns, wait->total_ns);
}

static __always_inline struct total_slot *claim_total(struct total_slot *table, __u32 slots, __u64 tag, int *is_new)
{
	for (__u32 i = 0; i < PROBES; i++) {
		struct total_slot *slot = &table[slot_of(tag, slots) + i];
		__u64 seen = *(volatile __u64 *)&slot->tag;

		if (!seen) {
			seen = __sync_val_compare_and_swap(&slot->tag, 0, tag);
			*is_new = !seen;
		}
		if (!seen || seen == tag)
			return slot;
	}
	return 0;
}

static __always_inline void count_total(struct half *half, const struct wait *wait, __u32 meta, const struct who *who)
{
	__u64 lock_hash = mix(wait->class ^ mix(meta + 1));
	__u64 tag = mix(lock_hash ^ mix(who->cgroup ^ (__u64)who->tgid << 32) ^ mix(who->comm_words[0] + 2) ^
			mix(who->comm_words[1] + 3)) |
		    1;
	struct total_slot *slot;
	int is_new = 0;

	slot = claim_total(half->totals, TOTALS, tag, &is_new);
	if (slot) {
		if (is_new) {
			half->totals_used++;
			slot->class = wait->class;
			slot->cgroup = who->cgroup;
			slot->tgid = who->tgid;
			slot->meta = meta;
			__builtin_memcpy(slot->comm, who->comm, COMM_LENGTH);
		}
		add_total(slot, wait);
		return;
	}
	/* Too many tasks: count the lock alone. */
	slot = claim_total(half->folded, FOLDED, lock_hash | 1, &is_new);
	if (!slot) {
		lose(half, LOSS_TOTALS_FULL);
		return;
	}
	if (is_new) {
		slot->class = wait->class;
		slot->meta = meta;
	}
	lose(half, LOSS_TASK_FOLDED);
	add_total(slot, wait);
}

struct blame {
	__u64 stack;
	__u32 source;
	__u32 tgid;
	__u32 owner_tgid;
	__u32 unused;
	union {
		char comm[COMM_LENGTH];
		__u64 comm_words[2];
	};
	union {
		char owner_comm[COMM_LENGTH];
		__u64 owner_words[2];
	};
};

static __always_inline void count_sample(struct half *half, const struct wait *wait, __u32 meta, const struct who *who,
					 const struct blame *blame, __u64 site)
{
	__u64 duration = wait->total_ns ? wait->total_ns : 1;
	__u64 weight = duration >= wait->period_ns ? 1024 : (wait->period_ns << 10) / duration;
	__u64 tag = mix(wait->class ^ mix(meta + 1)) ^ mix(wait->instance);

	tag = mix(tag ^ site) ^ mix(blame->stack + blame->source);
	tag = mix(tag ^ who->cgroup ^ (__u64)who->tgid << 32) ^ mix(who->comm_words[0] + 2) ^
	      mix(who->comm_words[1] + 3);
	tag = mix(tag ^ blame->tgid ^ (__u64)blame->owner_tgid << 32) ^ mix(blame->comm_words[0] + 4) ^
	      mix(blame->comm_words[1] + 5);
	tag |= 1;
	for (__u32 i = 0; i < PROBES; i++) {
		struct sample_slot *slot = &half->samples[slot_of(tag, SAMPLES) + i];
		__u64 seen = *(volatile __u64 *)&slot->tag;

		if (!seen) {
			seen = __sync_val_compare_and_swap(&slot->tag, 0, tag);
			if (!seen) {
				half->samples_used++;
				slot->class = wait->class;
				slot->instance = wait->instance;
				slot->site = site;
				slot->blocker = blame->stack;
				slot->cgroup = who->cgroup;
				slot->tgid = who->tgid;
				slot->meta = meta;
				__builtin_memcpy(slot->comm, who->comm, COMM_LENGTH);
				slot->blocker_source = blame->source;
				slot->blocker_tgid = blame->tgid;
				__builtin_memcpy(slot->blocker_comm, blame->comm, COMM_LENGTH);
				slot->owner_tgid = blame->owner_tgid;
				__builtin_memcpy(slot->owner_comm, blame->owner_comm, COMM_LENGTH);
			}
		}
		if (!seen || seen == tag) {
			__sync_fetch_and_add(&slot->stacks, 1);
			__sync_fetch_and_add(&slot->weight, weight);
			__sync_fetch_and_add(&slot->total_ns, wait->total_ns * weight >> 10);
			if (wait->spin_ns)
				__sync_fetch_and_add(&slot->spin_ns, wait->spin_ns * weight >> 10);
			raise_max(&slot->max_ns, wait->total_ns);
			return;
		}
	}
	lose(half, LOSS_SAMPLES_FULL);
}

static __always_inline void finish_wait(void *ctx, struct cpu_state *cpu, struct half *half, struct wait *wait,
					struct blame *blame)
{
	__u32 meta = wait->kind_mode | log2_of(wait->total_ns) << 16;
	struct who who = {};

	who.cgroup = bpf_get_current_cgroup_id();
	who.tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(&who.comm, sizeof(who.comm));
	count_total(half, wait, meta, &who);
	half->closed++;
	if (wait->total_ns >= wait->threshold_ns) {
		__u64 site = take_stack(ctx, cpu, half);

		count_sample(half, wait, meta, &who, blame, site);
	}
}

/* ---- whose wait ------------------------------------------------------------------------------------------------- */

static __always_inline int in_scope(struct task_struct *task)
{
	if (scope == SCOPE_FOLLOWED)
		return bpf_task_storage_get(&followed, task->group_leader, 0, 0) != 0;
	if (scope == SCOPE_CGROUP)
		return bpf_get_current_ancestor_cgroup_id(scope_cgroup_level) == scope_cgroup;
	return 1;
}

static __always_inline __u32 kind_mode_of(__u32 flags)
{
	__u32 kind, mode = flags & LCB_F_READ ? MODE_READ : flags & LCB_F_WRITE ? MODE_WRITE : MODE_EXCLUSIVE;

	if (flags & ~(LCB_F_SPIN | LCB_F_READ | LCB_F_WRITE | LCB_F_RT | LCB_F_PERCPU | LCB_F_MUTEX))
		kind = KIND_UNKNOWN;
	else if (flags & LCB_F_MUTEX)
		kind = KIND_MUTEX;
	else if (flags & LCB_F_PERCPU)
		kind = KIND_PERCPU_RWSEM;
	else if (flags & LCB_F_RT)
		kind = KIND_RT_MUTEX;
	else if (flags & LCB_F_SPIN)
		kind = mode == MODE_EXCLUSIVE ? KIND_SPIN : KIND_RWLOCK;
	else
		kind = mode == MODE_EXCLUSIVE ? KIND_SEMAPHORE : KIND_RWSEM;
	return META(kind, mode, 0);
}

static __always_inline void begin_spinning(struct task_struct *task, __u64 lock, __u32 flags, struct cpu_state *cpu,
					   struct half *half)
{
	__u32 depth = cpu->depth;
	struct spin_wait *wait;

	/* Spinning forbids preemption: an entry of another task was left by an end that was not seen. */
	if (depth && depth <= NESTED_SPINS && cpu->spins[depth - 1].tid != (__u32)task->pid) {
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], depth);
		depth = 0;
	}
	if (depth >= NESTED_SPINS) {
		lose(half, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SPINS);
		depth = 0;
	}
	wait = &cpu->spins[depth];
	wait->inner = depth && cpu->spins[(depth - 1) % NESTED_SPINS].kind_mode % 256 == KIND_RWLOCK &&
		      lock - cpu->spins[(depth - 1) % NESTED_SPINS].lock < 8;
	wait->lock = lock;
	wait->nested_ns = 0;
	wait->tid = task->pid;
	wait->kind_mode = kind_mode_of(flags);
	if (!wait->inner) {
		wait->class = class_of(lock, cpu, half);
		draw(cpu, &wait->threshold_ns, &wait->period_ns);
		half->opened++;
	}
	wait->begin_ns = bpf_ktime_get_ns();
	cpu->depth = depth + 1;
	adapt_period(wait->begin_ns);
}

/* The task that a mutex or rwsem names as its owner: low bits are flags; readers leave no usable owner. */
static __always_inline void read_owner(struct sleep_wait *wait)
{
	__u32 kind = wait->kind_mode & 0xff;
	void *lock = (void *)wait->lock;
	struct task_struct *owner;
	__u64 word;

	if (kind == KIND_MUTEX) {
		word = BPF_CORE_READ((struct mutex *)lock, owner.counter) & ~7ULL;
	} else if (kind == KIND_RWSEM) {
		word = BPF_CORE_READ((struct rw_semaphore *)lock, owner.counter);
		if (word & 1)
			return;
		word &= ~3ULL;
	} else {
		return;
	}
	owner = (struct task_struct *)word;
	if (!owner)
		return;
	wait->owner_tgid = BPF_CORE_READ(owner, tgid);
	bpf_core_read(wait->owner_comm, sizeof(wait->owner_comm), &owner->comm);
}

static __always_inline void begin_sleeping(struct task_struct *task, __u64 lock, __u32 flags, struct cpu_state *cpu,
					   struct half *half)
{
	struct sleeper *sleeper = bpf_task_storage_get(&sleepers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u32 spinning = !!(flags & LCB_F_SPIN);
	struct sleep_wait *wait;
	__u64 now;
	__u32 depth;

	if (!sleeper) {
		lose(half, LOSS_NO_TASK_STORAGE);
		return;
	}
	now = bpf_ktime_get_ns();
	depth = sleeper->depth;
	if (depth) {
		wait = &sleeper->waits[(depth - 1) % NESTED_SLEEPS];
		if (wait->lock == lock) {
			/* The same wait goes from spinning to sleeping or back. */
			if (wait->spinning)
				wait->spin_ns += now - wait->phase_begin_ns;
			wait->phase_begin_ns = now;
			wait->spinning = spinning;
			wait->slept |= !spinning;
			return;
		}
	}
	if (depth >= NESTED_SLEEPS) {
		lose(half, LOSS_NESTED_TOO_DEEP);
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], NESTED_SLEEPS);
		depth = 0;
	}
	wait = &sleeper->waits[depth % NESTED_SLEEPS];
	wait->lock = lock;
	wait->begin_ns = now;
	wait->phase_begin_ns = now;
	wait->spin_ns = 0;
	wait->spinning = spinning;
	wait->slept = !spinning;
	wait->blocker = 0;
	wait->blocker_tgid = 0;
	wait->blocker_source = BLOCKER_WAKEUP_NOT_SEEN;
	wait->owner_tgid = 0;
	wait->kind_mode = kind_mode_of(flags);
	wait->class = class_of(lock, cpu, half);
	draw(cpu, &wait->threshold_ns, &wait->period_ns);
	read_owner(wait);
	sleeper->depth = depth + 1;
	half->opened++;
	adapt_period(now);
}

SEC("tp_btf/contention_begin")
int BPF_PROG(contention_begin, void *lock, unsigned int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct cpu_state *cpu = this_cpu();
	struct half *half = this_half();

	if (paused || !cpu || !half)
		return 0;
	half->runs[PROGRAM_BEGIN]++;
	if (!in_scope(task))
		return 0;
	if ((flags & (LCB_F_SPIN | LCB_F_MUTEX)) == LCB_F_SPIN)
		begin_spinning(task, (__u64)lock, flags, cpu, half);
	else
		begin_sleeping(task, (__u64)lock, flags, cpu, half);
	return 0;
}

enum found { FOUND_NOTHING, FOUND_WAIT, FOUND_INNER };

/* Takes this CPU's innermost spinning wait for the lock off the stack. */
static __always_inline enum found end_spinning(struct task_struct *task, __u64 lock, struct cpu_state *cpu,
					       struct half *half, struct wait *wait)
{
	struct spin_wait *spin;
	__u32 at = cpu->depth;

	for (int i = 0; i < NESTED_SPINS && at; i++) {
		spin = &cpu->spins[(at - 1) % NESTED_SPINS];
		if (spin->lock == lock && spin->tid == (__u32)task->pid)
			break;
		at--;
	}
	if (!at)
		return FOUND_NOTHING;
	if (cpu->depth > at)
		__sync_fetch_and_add(&half->losses[LOSS_BEGIN_WITHOUT_END], cpu->depth - at);
	at = (at - 1) % NESTED_SPINS;
	cpu->depth = at;
	spin = &cpu->spins[at];
	if (spin->inner)
		return FOUND_INNER;
	wait->class = spin->class;
	wait->total_ns = bpf_ktime_get_ns() - spin->begin_ns;
	wait->spin_ns = wait->total_ns > spin->nested_ns ? wait->total_ns - spin->nested_ns : 0;
	wait->threshold_ns = spin->threshold_ns;
	wait->period_ns = spin->period_ns;
	wait->kind_mode = spin->kind_mode;
	if (at)
		cpu->spins[(at - 1) % NESTED_SPINS].nested_ns += wait->total_ns;
	return FOUND_WAIT;
}

/* Takes this task's innermost sleeping wait for the lock off its stack. */
static __always_inline enum found end_sleeping(struct task_struct *task, __u64 lock, struct half *half,
					       struct wait *wait, struct blame *blame)
{
	struct sleeper *sleeper = bpf_task_storage_get(&sleepers, task, 0, 0);
	struct sleep_wait *sleep;
	__u32 at;
	__u64 now;

	if (!sleeper || !sleeper->depth)
		return FOUND_NOTHING;
	at = (sleeper->depth - 1) % NESTED_SLEEPS;
	if (sleeper->waits[at].lock != lock) {
		if (!at || sleeper->waits[0].lock != lock)
			return FOUND_NOTHING;
		lose(half, LOSS_BEGIN_WITHOUT_END);
		at = 0;
	}
	sleep = &sleeper->waits[at];
	sleeper->depth = at;
	now = bpf_ktime_get_ns();
	wait->class = sleep->class;
	wait->total_ns = now - sleep->begin_ns;
	wait->spin_ns = sleep->spin_ns + (sleep->spinning ? now - sleep->phase_begin_ns : 0);
	wait->threshold_ns = sleep->threshold_ns;
	wait->period_ns = sleep->period_ns;
	wait->kind_mode = sleep->kind_mode;
	if (sleep->slept) {
		blame->source = sleep->blocker_source;
		blame->stack = sleep->blocker;
		blame->tgid = sleep->blocker_tgid;
		if (blame->tgid)
			__builtin_memcpy(blame->comm, sleep->blocker_comm, COMM_LENGTH);
	}
	blame->owner_tgid = sleep->owner_tgid;
	if (blame->owner_tgid)
		__builtin_memcpy(blame->owner_comm, sleep->owner_comm, COMM_LENGTH);
	return FOUND_WAIT;
}

SEC("tp_btf/contention_end")
int BPF_PROG(contention_end, void *lock)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct blame blame = {.source = BLOCKER_NEVER_SLEPT};
	struct wait wait = {.instance = (__u64)lock};
	struct cpu_state *cpu = this_cpu();
	struct half *half = this_half();
	enum found found = FOUND_NOTHING;

	if (paused || !cpu || !half)
		return 0;
	half->runs[PROGRAM_END]++;
	if (cpu->depth)
		found = end_spinning(task, (__u64)lock, cpu, half, &wait);
	if (found == FOUND_NOTHING)
		found = end_sleeping(task, (__u64)lock, half, &wait, &blame);
	if (found == FOUND_WAIT)
		finish_wait(ctx, cpu, half, &wait, &blame);
	else if (found == FOUND_NOTHING && scope == SCOPE_ALL)
		lose(half, LOSS_END_WITHOUT_BEGIN);
	return 0;
}

/* Whoever wakes a waiter that is long enough asleep is its blocker: its stack is the unlock that ended the wait. */
SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *wakee)
{
	struct sleeper *sleeper = bpf_task_storage_get(&sleepers, wakee, 0, 0);
	struct sleep_wait *sleep;
	struct cpu_state *cpu;
	struct half *half = this_half();

	if (paused || !half)
		return 0;
	half->runs[PROGRAM_WAKING]++;
	if (!sleeper || !sleeper->depth)
		return 0;
	sleep = &sleeper->waits[(sleeper->depth - 1) % NESTED_SLEEPS];
	if (!sleep->slept)
		return 0;
	if (bpf_ktime_get_ns() - sleep->begin_ns < sleep->threshold_ns) {
		sleep->blocker_source = BLOCKER_NOT_SAMPLED;
		return 0;
	}
	cpu = this_cpu();
	if (!cpu)
		return 0;
	sleep->blocker = take_stack(ctx, cpu, half);
	sleep->blocker_source = sleep->blocker ? BLOCKER_WOKEN : BLOCKER_STACK_LOST;
	sleep->blocker_tgid = bpf_get_current_pid_tgid() >> 32;
	bpf_get_current_comm(&sleep->blocker_comm, sizeof(sleep->blocker_comm));
	return 0;
}

/* Children of a followed process are followed. Loaded only when the scope asks for it. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(follow_children, struct task_struct *parent, struct task_struct *child)
{
	if (child->pid != child->tgid)
		return 0;
	if (!bpf_task_storage_get(&followed, parent->group_leader, 0, 0))
		return 0;
	bpf_task_storage_get(&followed, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}
