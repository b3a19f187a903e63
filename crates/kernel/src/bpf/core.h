/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The few kernel types that lockmeter's programs read, with just the fields they read.
 *
 * Every access is relocated against the running kernel's type information (CO-RE), so neither the order nor the
 * completeness of the fields matters here. Names with three underscores are older or newer shapes of the same type.
 */
#ifndef LOCKMETER_CORE_H
#define LOCKMETER_CORE_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u8 u8;
typedef __u32 u32;
typedef __u64 u64;
typedef __s64 s64;

enum { BPF_ANY = 0 };
enum { BPF_F_NO_PREALLOC = 1U << 0, BPF_F_MMAPABLE = 1U << 10 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	__u64 id;
};

struct cgroup_root;

struct cgroup {
	struct kernfs_node *kn;
	struct cgroup_root *root;
	int level;
	struct cgroup *ancestors[1];
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
};

struct rq {
	unsigned long long clock;
	unsigned long long clock_task;
};

struct cfs_rq {
	struct rq *rq;
};

struct sched_entity {
	unsigned long long exec_start;
	unsigned long long sum_exec_runtime;
	unsigned long long prev_sum_exec_runtime;
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long long last_arrival;
};

struct thread_info {
	unsigned int status;
};

struct sock_common {
	unsigned short skc_family;
};

struct sock {
	struct sock_common __sk_common;
};

struct socket {
	struct sock *sk;
};

struct inode {
	unsigned short i_mode;
};

struct file {
	struct inode *f_inode;
	void *private_data;
};

struct fdtable {
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct thread_struct {
	unsigned long sp;
};

typedef struct {
	unsigned long sig[1];
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct signal_struct {
	struct sigpending shared_pending;
	unsigned int flags;
};

struct task_struct {
	struct thread_struct thread;
	struct thread_info thread_info;
	struct sched_info sched_info;
	struct files_struct *files;
	struct css_set *cgroups;
	unsigned int flags;
	int pid;
	int tgid;
	/* A byte in 7.2, an integer in 6.18: libbpf makes the load as wide as the field only if it is unsigned here. */
	unsigned int on_cpu;
	unsigned int __state;
	unsigned int in_iowait : 1;
	unsigned long nvcsw;
	unsigned long nivcsw;
	struct sched_entity se;
	char comm[16];
	struct sigpending pending;
	struct signal_struct *signal;
	sigset_t blocked;
	unsigned long jobctl;
	struct task_struct *group_leader;
	struct task_struct *real_parent;
};

/* x86-64. */
struct pt_regs {
	unsigned long bp;
	unsigned long r10;
	unsigned long r8;
	unsigned long ax;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
};

struct mutex {
	struct {
		long long counter;
	} owner;
};

struct rw_semaphore {
	struct {
		long long counter;
	} count;
	struct {
		long long counter;
	} owner;
};

struct irqaction {
	void *handler;
	const char *name;
};

struct timer_list {
	void *function;
};

struct hrtimer_clock_base {
	__s64 offset;
};

struct hrtimer {
	__s64 _softexpires;
	void *function;
	struct hrtimer_clock_base *base;
};

struct work_struct {
	void *func;
};

struct mm_struct {
	struct rw_semaphore mmap_lock;
	struct task_struct *owner;
};

struct kmem_cache_order_objects {
	unsigned int x;
};

struct kmem_cache {
	unsigned int size;
	struct kmem_cache_order_objects oo;
	struct kmem_cache_order_objects min;
};

struct page {
	unsigned long flags;
	unsigned long compound_head;
};

struct timespec64 {
	__s64 tv_sec;
};

struct slab {
	struct kmem_cache *slab_cache;
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* Since 6.10 the page type says whether a page belongs to a slab. */
struct page___typed {
	unsigned int page_type;
};

#pragma clang attribute pop

enum cgroup_subsys_id {
	memory_cgrp_id = 4,
};

/* Up to 6.9: a bit of page.flags. */
enum pageflags___slab_flag {
	PG_slab___slab_flag = 7,
};

/* 6.10 and 6.11: a cleared bit of page.page_type. */
enum pagetype___slab_bit {
	PG_slab___slab_bit = 0x1000,
};

/* Since 6.12: the top byte of page.page_type. */
enum pagetype___slab_byte {
	PGTY_slab___slab_byte = 0xf5,
};

#endif
