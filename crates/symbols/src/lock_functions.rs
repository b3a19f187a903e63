//! Which functions on a stack belong to locking itself, and which wait on somebody's behalf.

use lockmeter_profile::Kind;

/// Function names that begin so take or release locks, or are the measuring itself: they say nothing about whose lock
/// it is.
const LOCK_PREFIXES: &[&str] = &[
    "_raw_spin_",
    "_raw_read_",
    "_raw_write_",
    "__raw_spin_",
    "__raw_callee_save",
    "native_queued_spin_",
    "__pv_queued_spin_",
    "queued_spin_",
    "queued_read_",
    "queued_write_",
    "do_raw_spin_",
    "mutex_lock",
    "mutex_unlock",
    "mutex_trylock",
    "mutex_spin_",
    "mutex_optimistic_",
    "__mutex_",
    "ww_mutex_",
    "__ww_mutex_",
    "down_read",
    "down_write",
    "__down",
    "up_read",
    "up_write",
    "__up_",
    "rwsem_",
    "percpu_down_",
    "percpu_up_",
    "percpu_rwsem_",
    "__percpu_down_",
    "__percpu_up_",
    "__percpu_rwsem_",
    "rt_mutex_",
    "__rt_mutex_",
    "rt_spin_",
    "rt_read_",
    "rt_write_",
    "rtlock_",
    "osq_",
    "rcu_sync_",
    "trace_contention_",
    "__traceiter_contention_",
    "bpf_",
    "__bpf_",
    "_raw_spin",
];

/// As [`LOCK_PREFIXES`], whole names.
const LOCK_NAMES: &[&str] = &[
    "down",
    "up",
    "down_interruptible",
    "down_killable",
    "down_timeout",
    "down_trylock",
    "schedule",
    "__schedule",
    "schedule_preempt_disabled",
    "schedule_timeout",
    "preempt_schedule_common",
    "__x86_return_thunk",
    "rcuwait_wake_up",
];

/// Function names that begin so work on a lock that belongs to their caller's object.
const HELPER_PREFIXES: &[&str] = &[
    "__wake_up",
    "wake_up",
    "prepare_to_wait",
    "finish_wait",
    "add_wait_queue",
    "remove_wait_queue",
    "autoremove_wake_function",
    "lockref_",
    "swake_up",
    "complete",
    "wait_for_completion",
    "do_wait_for_common",
    "lock_sock_nested",
    "percpu_counter_",
    "try_to_wake_up",
    "default_wake_function",
    "pollwake",
    "asm_",
    "sysvec_",
];

/// A function's name without what the compiler added (`.isra.0`, `.cold`).
pub(crate) fn source_name(function: &str) -> &str {
    function.split('.').next().unwrap_or(function)
}

/// Whether a function is part of taking or releasing a lock.
pub(crate) fn is_lock_function(function: &str) -> bool {
    LOCK_NAMES.contains(&function) || LOCK_PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// Whether a function works on a lock that belongs to its caller's object.
pub(crate) fn is_helper(function: &str) -> bool {
    HELPER_PREFIXES.iter().any(|prefix| function.starts_with(prefix))
}

/// The functions of a stack from the first that is not locking itself on.
pub(crate) fn above_lock<'s>(stack: &'s [&'s str]) -> impl Iterator<Item = &'s str> + 's {
    stack.iter().map(|function| source_name(function)).skip_while(|function| is_lock_function(function))
}

/// Locks that guard another lock's list of waiters: the functions that take them, the outer lock's kind, and the field.
const OUTER_LOCKS: &[(&[&str], Kind, &str)] = &[
    (&["rcu_sync_"], Kind::PercpuRwsem, ".rss.gp_wait.lock"),
    (&["percpu_rwsem_", "percpu_down_", "percpu_up_", "__percpu_down_"], Kind::PercpuRwsem, ".waiters.lock"),
    (&["queued_read_lock_", "queued_write_lock_"], Kind::Rwlock, ".raw_lock.wait_lock"),
    (
        &["rwsem_", "down_read", "down_write", "up_read", "up_write", "__down_read", "__down_write"],
        Kind::Rwsem,
        ".wait_lock",
    ),
    (&["mutex_", "__mutex_", "ww_mutex_", "__ww_mutex_"], Kind::Mutex, ".wait_lock"),
];

/// Of a stack whose spinlock is part of another lock: that lock's kind, and which of its fields was waited for.
pub(crate) fn outer_lock(stack: &[&str]) -> Option<(Kind, &'static str)> {
    let functions =
        stack.iter().map(|function| source_name(function)).take_while(|function| is_lock_function(function));
    let begins = |function: &str, prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
    functions
        .filter_map(|function| OUTER_LOCKS.iter().find(|(prefixes, ..)| begins(function, prefixes)))
        .next()
        .map(|(_, kind, field)| (*kind, *field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_begins_above_the_lock_functions() {
        let stack =
            ["__bpf_prog_1", "native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "pipe_write.isra.0", "up"];
        assert_eq!(above_lock(&stack).collect::<Vec<_>>(), ["pipe_write", "up"]);
    }

    #[test]
    fn functions_that_merely_sound_like_locks_are_kept() {
        for function in ["update_curr", "upload", "raw_spin_rq_lock_nested", "lock_mm_and_find_vma", "folio_lock"] {
            assert!(!is_lock_function(function), "{function} is a caller");
        }
    }

    #[test]
    fn a_spinlock_inside_another_lock_is_told_by_that_locks_functions() {
        let inner = ["__pv_queued_spin_lock_slowpath", "queued_write_lock_slowpath", "copy_process"];
        assert_eq!(outer_lock(&inner), Some((Kind::Rwlock, ".raw_lock.wait_lock")));
        let inner = ["_raw_spin_lock_irq", "rcu_sync_enter", "percpu_down_write", "cgroup_attach_lock"];
        assert_eq!(outer_lock(&inner), Some((Kind::PercpuRwsem, ".rss.gp_wait.lock")));
        assert_eq!(outer_lock(&["_raw_spin_lock", "futex_wake", "mutex_lock"]), None, "not above the caller");
    }
}
