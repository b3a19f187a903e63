//! The kernel's functions that take or release locks, and those around them: what each is for, by its name.
//!
//! All that lockmeter knows of the kernel's lock functions stands here. A name may stand in several groups: a reader that gets an
//! rwsem also wakes the readers behind it. A test walks the running kernel's symbols and fails for an entry without a function
//! (`crates/symbols/tests/lock_functions.rs`).

use super::pattern::{matches_any, plain_name};
use crate::Kind;

/// What a function is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Is part of the metering itself.
    Metering,
    /// Takes a lock that spins.
    TakesSpinning,
    /// Releases a lock that spins. On a stack only where that function was hooked.
    ReleasesSpinning,
    /// Takes a lock that sleeps.
    TakesSleeping,
    /// Releases a lock that sleeps.
    ReleasesSleeping,
    /// Leaves the CPU, as taking a sleeping lock does.
    Sleeps,
    /// Wakes a task, as releasing a sleeping lock does, and much else.
    Wakes,
    /// Does little else than take or release one lock for all its users, so that naming it would say no more than the lock's
    /// name. Its name or parameters tell which type of object the lock belongs to.
    Wraps,
    /// The same for a lock of any object: nothing tells which type that is.
    WrapsForAnyObject,
    /// Enters the kernel by an interrupt or exception.
    Interrupts,
}

impl Role {
    /// All of them.
    pub(super) const ALL: &[Self] = &[
        Self::Metering,
        Self::TakesSpinning,
        Self::ReleasesSpinning,
        Self::TakesSleeping,
        Self::ReleasesSleeping,
        Self::Sleeps,
        Self::Wakes,
        Self::Wraps,
        Self::WrapsForAnyObject,
        Self::Interrupts,
    ];
}

/// Functions of one purpose.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) role: Role,
    /// The lock that a spinlock taken in these functions is a part of, and which of its fields that is.
    pub(super) part_of: Option<(Kind, &'static str)>,
    /// A `*` stands for anything, also for nothing.
    pub(super) names: &'static [&'static str],
}

const fn group(role: Role, names: &'static [&'static str]) -> Group {
    Group { role, part_of: None, names }
}

const fn part_of(kind: Kind, field: &'static str, role: Role, names: &'static [&'static str]) -> Group {
    Group { role, part_of: Some((kind, field)), names }
}

/// The fields that guard the waiters of a lock.
const MUTEX: (Kind, &str) = (Kind::Mutex, ".wait_lock");
const RWSEM: (Kind, &str) = (Kind::Rwsem, ".wait_lock");
const RWLOCK: (Kind, &str) = (Kind::Rwlock, ".raw_lock.wait_lock");
const PERCPU_RWSEM: (Kind, &str) = (Kind::PercpuRwsem, ".waiters.lock");
const RCU_SYNC: (Kind, &str) = (Kind::PercpuRwsem, ".rss.gp_wait.lock");

pub(super) const GROUPS: &[Group] = &[
    group(
        Role::Metering,
        &[
            "bpf_prog_*",
            "bpf_trace_run*",
            "bpf_trampoline_*",
            "bpf_get_stack*",
            "__bpf_get_stack*",
            "__bpf_trace_*",
            "__traceiter_*",
            "__do_trace_*",
            "__mmap_lock_do_trace_*",
            "trace_contention_*",
            "trace_sched_waking*",
            "trace_call_bpf*",
            "trace_event_raw_event_*",
            "perf_trace_*",
        ],
    ),
    // kernel/locking/spinlock.c, qspinlock.c, qrwlock.c; kernel/bpf/rqspinlock.c
    group(
        Role::TakesSpinning,
        &[
            "_raw_spin_lock*",
            "_raw_spin_trylock*",
            "_raw_read_lock*",
            "_raw_read_trylock*",
            "_raw_write_lock*",
            "_raw_write_trylock*",
            "__raw_spin_lock*",
            "__raw_read_lock*",
            "__raw_write_lock*",
            "do_raw_spin_lock*",
            "do_raw_read_lock*",
            "do_raw_write_lock*",
            "queued_spin_lock_slowpath",
            "native_queued_spin_lock_slowpath",
            "__pv_queued_spin_lock_slowpath",
            "resilient_queued_spin_lock_slowpath",
            "resilient_tas_spin_lock",
        ],
    ),
    part_of(RWLOCK.0, RWLOCK.1, Role::TakesSpinning, &["queued_read_lock_slowpath", "queued_write_lock_slowpath"]),
    group(
        Role::ReleasesSpinning,
        &[
            "_raw_spin_unlock*",
            "_raw_read_unlock*",
            "_raw_write_unlock*",
            "native_queued_spin_unlock",
            "__native_queued_spin_unlock",
            "__pv_queued_spin_unlock*",
            "__raw_callee_save___native_queued_spin_unlock",
            "__raw_callee_save___pv_queued_spin_unlock*",
        ],
    ),
    // kernel/locking/mutex.c, ww_mutex.h, osq_lock.c
    part_of(
        MUTEX.0,
        MUTEX.1,
        Role::TakesSleeping,
        &[
            "mutex_lock*",
            "mutex_trylock*",
            "__mutex_lock*",
            "__mutex_trylock*",
            "__mutex_add_waiter",
            "__mutex_remove_waiter",
            "mutex_spin_on_owner",
            "ww_mutex_lock*",
            "ww_mutex_trylock",
            "__ww_mutex*",
        ],
    ),
    part_of(
        MUTEX.0,
        MUTEX.1,
        Role::ReleasesSleeping,
        &["mutex_unlock*", "__mutex_unlock*", "__mutex_handoff", "ww_mutex_unlock*"],
    ),
    group(Role::TakesSleeping, &["osq_lock", "osq_unlock"]),
    // kernel/locking/rwsem.c
    part_of(
        RWSEM.0,
        RWSEM.1,
        Role::TakesSleeping,
        &[
            "down_read*",
            "down_write*",
            "rwsem_down_*_slowpath",
            "rwsem_try_write_lock*",
            "rwsem_optimistic_spin",
            "rwsem_can_spin_on_owner",
            "rwsem_spin_on_owner",
            "rwsem_add_waiter",
            "rwsem_del_waiter",
            "rwsem_del_wake_waiter",
        ],
    ),
    part_of(
        RWSEM.0,
        RWSEM.1,
        Role::ReleasesSleeping,
        &[
            "up_read*",
            "up_write*",
            "__up_read*",
            "__up_write*",
            "downgrade_write*",
            "rwsem_wake*",
            "rwsem_mark_wake",
            "rwsem_cond_wake_waiter",
            "rwsem_downgrade_wake",
            // A reader that gets the semaphore wakes the readers queued behind it.
            "rwsem_down_*_slowpath",
        ],
    ),
    // kernel/locking/percpu-rwsem.c, kernel/rcu/sync.c
    part_of(
        PERCPU_RWSEM.0,
        PERCPU_RWSEM.1,
        Role::TakesSleeping,
        &["percpu_down_*", "__percpu_down_read*", "percpu_rwsem_*", "__percpu_rwsem_*"],
    ),
    part_of(
        PERCPU_RWSEM.0,
        PERCPU_RWSEM.1,
        Role::ReleasesSleeping,
        &["percpu_up_*", "__percpu_up_*", "percpu_rwsem_*", "__percpu_rwsem_*"],
    ),
    part_of(RCU_SYNC.0, RCU_SYNC.1, Role::TakesSleeping, &["rcu_sync_enter"]),
    part_of(RCU_SYNC.0, RCU_SYNC.1, Role::ReleasesSleeping, &["rcu_sync_exit", "rcu_sync_func", "rcu_sync_dtor"]),
    // kernel/locking/semaphore.c
    group(
        Role::TakesSleeping,
        &[
            "down",
            "down_interruptible",
            "down_killable",
            "down_timeout",
            "down_trylock",
            "__down",
            "__down_common",
            "__down_interruptible",
            "__down_killable",
            "__down_timeout",
        ],
    ),
    group(Role::ReleasesSleeping, &["up", "__up"]),
    // kernel/locking/rtmutex.c, rtmutex_api.c; spinlock_rt.c and rwbase_rt.c of kernels built with PREEMPT_RT
    group(
        Role::TakesSleeping,
        &[
            "rt_mutex_lock*",
            "rt_mutex_trylock",
            "rt_mutex_slowlock*",
            "rt_mutex_slowtrylock",
            "__rt_mutex_slowlock*",
            "rt_mutex_wait_proxy_lock",
            "rt_mutex_start_proxy_lock",
            "__rt_mutex_start_proxy_lock",
            "rt_mutex_cleanup_proxy_lock",
            "rt_mutex_futex_trylock",
            "__rt_mutex_futex_trylock",
            "task_blocks_on_rt_mutex",
            "try_to_take_rt_mutex",
            "rt_mutex_adjust_prio_chain",
            "rtlock_*",
            "rt_spin_lock*",
            "rt_spin_trylock*",
            "rt_read_lock*",
            "rt_read_trylock*",
            "rt_write_lock*",
            "rt_write_trylock*",
            "rwbase_*_lock",
        ],
    ),
    group(
        Role::ReleasesSleeping,
        &[
            "rt_mutex_unlock*",
            "rt_mutex_slowunlock*",
            "rt_mutex_futex_unlock",
            "__rt_mutex_futex_unlock*",
            "rt_mutex_postunlock*",
            "mark_wakeup_next_waiter",
            "rt_spin_unlock*",
            "rt_read_unlock*",
            "rt_write_unlock*",
            "rwbase_*_unlock*",
        ],
    ),
    // kernel/sched/core.c, kernel/time/sleep_timeout.c
    group(
        Role::Sleeps,
        &[
            "schedule",
            "__schedule",
            "schedule_preempt_disabled",
            "schedule_timeout*",
            "schedule_hrtimeout*",
            "schedule_rtlock",
            "rt_mutex_schedule",
            "io_schedule*",
            "preempt_schedule*",
        ],
    ),
    group(
        Role::Wakes,
        &[
            "try_to_wake_up",
            "ttwu_*",
            "wake_up_process",
            "wake_up_state",
            "wake_up_q",
            "rcuwait_wake_up",
            "default_wake_function",
            "autoremove_wake_function",
            "woken_wake_function",
            "pollwake",
            "__wake_up*",
            "swake_up*",
            "complete",
            "complete_all",
            "complete_on_current_cpu",
            "complete_with_flags",
        ],
    ),
    // Wait queues, completions, counters, reference counts, sockets of any protocol.
    group(
        Role::WrapsForAnyObject,
        &[
            "add_wait_queue*",
            "remove_wait_queue",
            "prepare_to_wait*",
            "finish_wait",
            "prepare_to_swait*",
            "finish_swait",
            "__wake_up*",
            "wait_for_completion*",
            "__wait_for_common",
            "do_wait_for_common",
            "lockref_*",
            "percpu_counter_add_batch",
            "percpu_counter_set",
            "percpu_counter_sync",
            "__percpu_counter_sum",
            "_atomic_dec_and_lock*",
            "_atomic_dec_and_raw_lock*",
            "atomic_dec_and_mutex_lock",
            "refcount_dec_and_lock*",
            "refcount_dec_and_mutex_lock",
            "lock_sock_nested",
            "__lock_sock*",
        ],
    ),
    // Files, inodes and mounts.
    group(
        Role::Wraps,
        &[
            "inode_lock*",
            "inode_unlock*",
            "lock_two_nondirectories",
            "unlock_two_nondirectories",
            "lock_two_inodes",
            "lock_rename*",
            "unlock_rename",
            "fdget_pos",
            "__fdget_pos",
            "__f_unlock_pos",
            "lock_mount",
            "do_lock_mount",
            "unlock_mount",
            "pipe_lock",
            "pipe_double_lock",
            "pipe_unlock",
        ],
    ),
    // Memory.
    group(
        Role::Wraps,
        &[
            "folio_lruvec_lock*",
            "folio_lruvec_relock*",
            "folio_lock_anon_vma_read",
            "page_lock_anon_vma_read",
            "mmap_read_lock*",
            "mmap_read_unlock",
            "mmap_write_lock*",
            "mmap_write_unlock",
            "lock_mm_and_find_vma",
            "madvise_lock",
            "madvise_unlock",
            "pte_offset_map_lock",
            "__pte_offset_map_lock",
            "__pmd_trans_huge_lock",
        ],
    ),
    // Tasks, run queues and futexes.
    group(
        Role::Wraps,
        &[
            "raw_spin_rq_lock*",
            "_raw_spin_rq_lock*",
            "task_rq_lock",
            "_task_rq_lock",
            "__task_rq_lock",
            "___task_rq_lock",
            "double_rq_lock",
            "lock_task_sighand",
            "__lock_task_sighand",
            "futex_q_lock",
            "futex_q_lockptr_lock",
            "double_lock_hb",
        ],
    ),
    // The network, and the rest.
    group(
        Role::Wraps,
        &[
            "rtnl_lock*",
            "rtnl_unlock",
            "__rtnl_unlock",
            "__down_trylock_console_sem",
            "__up_console_sem",
            "cgroup_lock",
            "cpus_read_lock",
            "cpus_read_unlock",
            "cpus_write_lock",
            "cpus_write_unlock",
            "perf_event_ctx_lock*",
            "perf_event_ctx_unlock",
            "tty_lock*",
            "tty_unlock*",
        ],
    ),
    group(Role::Interrupts, &["asm_*", "sysvec_*"]),
];

/// Whether a function has one of these roles.
pub(super) fn has_role(name: &str, roles: &[Role]) -> bool {
    let name = plain_name(name);
    GROUPS.iter().filter(|group| roles.contains(&group.role)).any(|group| matches_any(group.names, name))
}

/// The lock that a spinlock taken in this function is a part of.
pub(super) fn part_of_lock(name: &str) -> Option<(Kind, &'static str)> {
    let name = plain_name(name);
    GROUPS.iter().filter(|group| matches_any(group.names, name)).find_map(|group| group.part_of)
}
