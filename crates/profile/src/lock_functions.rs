//! Which functions of a stack belong to the lock, and which is the one that uses it.
//!
//! The innermost frames of a wait's stack are the metering itself, then the lock's slow and fast path, then perhaps a
//! function that only wraps the lock. How many frames that makes differs between kernels and with what the compiler
//! inlined, so they are told by name, and only in an unbroken run from the innermost frame.
//!
//! What may be stripped depends on how the stack begins. A spinlock is taken *by* the scheduler and *by* the slow paths of
//! sleeping locks: under `_raw_spin_lock`, `__schedule` or `rwsem_wake` are callers, not lock functions. In the stack of
//! a releaser, `try_to_wake_up` is machinery. A program's stack begins with a function of its own lists
//! (`user`).

mod user;

pub use user::{is_called_like_a_lock, is_user_lock_function, is_user_machinery, own_name};

/// Frames of the metering itself.
const METERING: &[&str] = &[
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
];

/// Taking a lock that spins.
const SPINNING: &[&str] = &[
    "_raw_spin_lock*",
    "_raw_spin_trylock*",
    "_raw_read_lock*",
    "_raw_write_lock*",
    "__raw_spin_lock*",
    "__raw_read_lock*",
    "__raw_write_lock*",
    "do_raw_spin_lock*",
    "do_raw_read_lock*",
    "do_raw_write_lock*",
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "resilient_queued_spin_lock_slowpath",
    "queued_*_lock_slowpath",
];

/// Taking a lock that sleeps.
const SLEEPING: &[&str] = &[
    "mutex_lock*",
    "__mutex_lock*",
    "mutex_spin_on_owner",
    "mutex_optimistic_spin",
    "ww_mutex_lock*",
    "__ww_mutex*",
    "rwsem_down_*_slowpath",
    "rwsem_optimistic_spin",
    "rwsem_spin_on_owner",
    "osq_lock",
    "down",
    "down_interruptible",
    "down_killable",
    "down_timeout",
    "down_read*",
    "down_write*",
    "__down*",
    "percpu_down_*",
    "__percpu_down_read*",
    "percpu_rwsem_*",
    "__percpu_rwsem_*",
    "rcuwait_wait_event",
    "rt_mutex_lock*",
    "rt_mutex_slowlock*",
    "__rt_mutex_lock*",
    "__rt_mutex_slowlock*",
    "rt_mutex_wait_proxy_lock",
    "rt_mutex_start_proxy_lock",
    "rt_mutex_futex_lock*",
    "rtlock_*",
    "rt_spin_lock*",
    "rt_read_lock*",
    "rt_write_lock*",
    "rwbase_*_lock",
];

/// Going to sleep, as a sleeping lock does.
const SCHEDULING: &[&str] = &[
    "schedule",
    "__schedule",
    "schedule_preempt_disabled",
    "schedule_timeout*",
    "schedule_hrtimeout*",
    "schedule_rtlock",
    "io_schedule*",
    "preempt_schedule*",
];

/// Releasing a lock.
const RELEASING: &[&str] = &[
    "mutex_unlock*",
    "__mutex_unlock*",
    "ww_mutex_unlock*",
    "up",
    "__up",
    "up_read*",
    "__up_read*",
    "up_write*",
    "__up_write*",
    "downgrade_write*",
    "rwsem_wake*",
    "rwsem_mark_wake",
    "rwsem_downgrade_wake",
    "percpu_up_*",
    "__percpu_up_*",
    "percpu_rwsem_*",
    "__percpu_rwsem_*",
    "rt_mutex_unlock*",
    "rt_mutex_slowunlock*",
    "__rt_mutex_unlock*",
    "__rt_mutex_slowunlock*",
    "rt_mutex_futex_unlock",
    "__rt_mutex_futex_unlock*",
    "rt_mutex_postunlock*",
    "mark_wakeup_next_waiter",
    "rt_spin_unlock*",
    "rt_read_unlock*",
    "rt_write_unlock*",
    "rwbase_*_unlock*",
    // A reader that gets the semaphore wakes the readers queued behind it.
    "rwsem_down_*_slowpath",
];

/// Releasing a lock that spins, where that was hooked.
const SPIN_RELEASING: &[&str] = &["_raw_spin_unlock*", "_raw_read_unlock*", "_raw_write_unlock*"];

/// Waking a task, as releasing a lock does, and much else.
const WAKING: &[&str] = &[
    "try_to_wake_up",
    "ttwu_*",
    "wake_up_process",
    "wake_up_state",
    "wake_up_q",
    "rt_mutex_wake_up_q",
    "rcuwait_wake_up",
    "default_wake_function",
    "autoremove_wake_function",
    "woken_wake_function",
    "__wake_up*",
    "swake_up*",
    "complete",
    "complete_all",
    "complete_on_current_cpu",
    "complete_with_flags",
];

/// Functions that do little else than take or release one lock for all its users, so that naming them would say no more
/// than the lock's name: skipped for the headline, kept in the stack.
const WRAPPERS: &[&str] = &[
    // Files, inodes and mounts.
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
    "lockref_*",
    "lock_mount",
    "do_lock_mount",
    "unlock_mount",
    "pipe_lock",
    "pipe_double_lock",
    "pipe_unlock",
    // Memory.
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
    // Tasks, run queues, wait queues and futexes.
    "raw_spin_rq_lock*",
    "task_rq_lock",
    "__task_rq_lock",
    "double_rq_lock",
    "lock_task_sighand",
    "__lock_task_sighand",
    "add_wait_queue*",
    "remove_wait_queue",
    "prepare_to_wait*",
    "finish_wait",
    "__wake_up*",
    "futex_q_lock",
    "futex_hash_lock",
    "double_lock_hb",
    // Network.
    "lock_sock_nested",
    "__lock_sock*",
    "rtnl_lock*",
    "rtnl_unlock",
    "__rtnl_unlock",
    // The rest.
    "_atomic_dec_and_lock*",
    "_atomic_dec_and_raw_lock*",
    "atomic_dec_and_mutex_lock",
    "refcount_dec_and_lock*",
    "refcount_dec_and_mutex_lock",
    "cgroup_lock",
    "cpus_read_lock",
    "cpus_read_unlock",
    "cpus_write_lock",
    "cpus_write_unlock",
    "perf_event_ctx_lock*",
    "perf_event_ctx_unlock",
    "tty_lock*",
    "tty_unlock*",
];

/// Endings that compilers give to copies and pieces of a function.
const COMPILER_ENDINGS: &[&str] = &["isra", "constprop", "part", "cold", "llvm", "lto_priv"];

/// A function's name without the endings that compilers add (`.isra.0`, `.constprop.0`, `.part.0`, `.cold`).
pub fn plain_name(name: &str) -> &str {
    let mut plain = name;
    while let Some((stem, ending)) = plain.rsplit_once('.') {
        let is_number = !ending.is_empty() && ending.bytes().all(|byte| byte.is_ascii_digit());
        let (stem, ending) = if is_number { stem.rsplit_once('.').unwrap_or((plain, "")) } else { (stem, ending) };
        if stem.is_empty() || !COMPILER_ENDINGS.contains(&ending) {
            break;
        }
        plain = stem;
    }
    plain
}

/// The stack (function names, innermost first) without the metering's and the lock's own functions at its inner end.
///
/// The outermost frame is never stripped, so that a stack does not come out empty.
pub fn strip_lock_functions<'a, 'name>(stack: &'a [&'name str]) -> &'a [&'name str] {
    if user::is_of_user_lock(stack) {
        return user::strip(stack);
    }
    let stack = skip_run(stack, &[METERING]);
    let Some(innermost) = stack.first() else {
        return stack;
    };
    if is_one_of(innermost, &[SPINNING]) {
        skip_run(stack, &[SPINNING])
    } else if is_one_of(innermost, &[SPIN_RELEASING]) {
        skip_run(stack, &[SPIN_RELEASING])
    } else if is_one_of(innermost, &[WAKING, RELEASING]) {
        let rest = skip_run(stack, &[WAKING, RELEASING]);
        // A waiter that is granted a lock may wake its fellows: then the taking is machinery, too.
        skip_run(rest, &[SLEEPING])
    } else {
        let awake = skip_run(stack, &[SCHEDULING]);
        let is_lock = awake.first().is_some_and(|function| is_one_of(function, &[SLEEPING]));
        if is_lock { skip_run(awake, &[SLEEPING]) } else { stack }
    }
}

/// How many frames at a stack's inner end are metering itself. Nameless frames among them (a program compiled into the
/// kernel at run time) count; nameless frames alone do only before a function that releases a lock: nobody calls from there
/// but the hook at its entry.
pub fn metering_frames<'name>(names: impl IntoIterator<Item = Option<&'name str>>) -> usize {
    let is_metering = |name: &str| is_one_of(name, &[METERING]);
    let names: Vec<Option<&str>> = names.into_iter().collect();
    let run = names.iter().take_while(|name| name.is_none_or(is_metering)).count();
    let is_release = |name: &str| is_release_function(name) || is_one_of(name, &[SPIN_RELEASING]);
    if names.get(run).is_some_and(|name| name.is_some_and(is_release)) {
        return run;
    }
    names[..run].iter().rposition(Option::is_some).map_or(0, |at| at + 1)
}

/// Whether a frame is the way through which a hooked function is called: its own frame stands on both sides of it.
pub fn is_trampoline(name: &str) -> bool {
    is_one_of(name, &[&["bpf_trampoline_*"]])
}

/// Whether a function releases a lock: tells a releaser's stack from that of a signal's or a timer's wake-up.
///
/// An interrupt may wake somebody while it interrupts such a function: for a whole stack ask [`is_releaser_stack`].
pub fn is_release_function(name: &str) -> bool {
    is_one_of(name, &[RELEASING])
}

/// Whether a wake-up's stack (function names, innermost first) is that of releasing a lock: a release function stands in
/// the unbroken run of waking functions at its inner end.
pub fn is_releaser_stack(stack: &[&str]) -> bool {
    let mut run = stack.iter().take_while(|name| is_one_of(name, &[METERING, WAKING, RELEASING]));
    run.any(|name| is_release_function(name))
}

/// The function that a headline names: the first beyond the lock functions and the [wrappers](self) of locks.
pub fn main_function<'name>(stack: &[&'name str]) -> Option<&'name str> {
    main_of_stripped(stack, strip_lock_functions(stack))
}

/// The same of a stack that was [stripped](strip_lock_functions) already.
pub(crate) fn main_of_stripped<'name>(stack: &[&'name str], stripped: &[&'name str]) -> Option<&'name str> {
    if user::is_of_user_lock(stack) {
        return user::users(stripped).first().map(|name| plain_name(name));
    }
    let beyond = skip_run(stripped, &[WRAPPERS, SLEEPING, RELEASING]);
    beyond.first().map(|name| plain_name(name))
}

fn skip_run<'a, 'name>(stack: &'a [&'name str], lists: &[&[&str]]) -> &'a [&'name str] {
    skip_while(stack, |name| is_one_of(name, lists))
}

fn skip_while<'a, 'name>(stack: &'a [&'name str], is_skipped: impl Fn(&str) -> bool) -> &'a [&'name str] {
    let run = stack.iter().take_while(|name| is_skipped(name)).count();
    &stack[run.min(stack.len().saturating_sub(1))..]
}

fn is_one_of(name: &str, lists: &[&[&str]]) -> bool {
    let name = plain_name(name);
    lists.iter().any(|list| list.iter().any(|pattern| matches(pattern, name)))
}

/// A `*` stands for anything, also for nothing.
fn matches(pattern: &str, name: &str) -> bool {
    // Most patterns differ in their first letter: every frame of a recording is compared with a hundred of them.
    if !pattern.starts_with('*') && pattern.as_bytes().first() != name.as_bytes().first() {
        return false;
    }
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|start| name.strip_prefix(start)) else { return false };
    let Some(end) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_of_a_spinlock_belongs_to_who_releases_it() {
        let names =
            [None, None, Some("_raw_spin_unlock_irqrestore"), Some("__wake_up_common_lock"), Some("pipe_write")];
        assert_eq!(metering_frames(names), 2);
        let stack = ["_raw_spin_unlock_irqrestore", "mutex_unlock", "pipe_write"];
        assert_eq!(strip_lock_functions(&stack), ["mutex_unlock", "pipe_write"], "it is the mutex's own wait_lock");
    }

    #[test]
    fn a_mutex_wait_begins_at_the_function_that_takes_the_mutex() {
        let stack = [
            "bpf_prog_1f2e3d_on_begin",
            "bpf_trace_run2",
            "__bpf_trace_contention_begin",
            "__traceiter_contention_begin",
            "__mutex_lock.constprop.0",
            "__mutex_lock_slowpath",
            "mutex_lock",
            "do_epoll_ctl",
            "do_syscall_64",
        ];
        assert_eq!(strip_lock_functions(&stack), ["do_epoll_ctl", "do_syscall_64"]);
    }

    #[test]
    fn every_kind_of_lock_is_stripped_to_its_caller() {
        let stacks: &[&[&str]] = &[
            &["native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "CALLER"],
            &["queued_read_lock_slowpath", "_raw_read_lock", "CALLER"],
            &["queued_write_lock_slowpath", "_raw_write_lock_irq", "CALLER"],
            &["rwsem_down_write_slowpath", "down_write_killable", "CALLER"],
            &["rwsem_down_read_slowpath", "down_read", "CALLER"],
            &["percpu_rwsem_wait", "__percpu_down_read", "CALLER"],
            &["percpu_down_write", "CALLER"],
            &["rt_mutex_slowlock.constprop.0", "rt_mutex_lock", "CALLER"],
            &["__down_interruptible", "down_interruptible", "CALLER"],
            &["schedule", "schedule_preempt_disabled", "__mutex_lock.isra.0", "CALLER"],
            &["try_to_wake_up", "wake_up_q", "rwsem_wake.isra.0", "up_write", "CALLER"],
            &["wake_up_process", "__mutex_unlock_slowpath.isra.0", "CALLER"],
            &["try_to_wake_up", "wake_up_q", "rwsem_mark_wake", "rwsem_down_read_slowpath", "down_read", "CALLER"],
            &[
                "try_to_wake_up",
                "percpu_rwsem_wake_function",
                "__wake_up_common",
                "__wake_up",
                "percpu_up_write",
                "CALLER",
            ],
        ];
        for stack in stacks {
            assert_eq!(strip_lock_functions(stack), ["CALLER"], "{stack:?}");
        }
    }

    #[test]
    fn the_scheduler_is_a_caller_when_it_spins_for_a_run_queue() {
        let inlined = ["native_queued_spin_lock_slowpath", "_raw_spin_lock", "__schedule", "schedule", "do_nanosleep"];
        let called = ["native_queued_spin_lock_slowpath", "_raw_spin_lock", "raw_spin_rq_lock_nested", "__schedule"];
        assert_eq!(strip_lock_functions(&inlined)[0], "__schedule");
        assert_eq!(main_function(&inlined), Some("__schedule"));
        assert_eq!(main_function(&called), Some("__schedule"));
        let waking = ["_raw_spin_lock", "try_to_wake_up", "wake_up_q", "futex_wake"];
        assert_eq!(strip_lock_functions(&waking)[0], "try_to_wake_up");
    }

    #[test]
    fn a_lock_function_further_out_is_left_where_it_is() {
        let stack = ["_raw_spin_lock", "do_work", "mutex_lock", "outer"];
        assert_eq!(strip_lock_functions(&stack), ["do_work", "mutex_lock", "outer"]);
    }

    #[test]
    fn a_stack_of_nothing_but_lock_functions_keeps_its_outermost() {
        assert_eq!(strip_lock_functions(&["__mutex_lock", "mutex_lock"]), ["mutex_lock"]);
        assert_eq!(strip_lock_functions(&[]), [] as [&str; 0]);
        assert_eq!(main_function(&[]), None);
    }

    #[test]
    fn a_headline_names_the_function_behind_a_wrapper() {
        let stack = [
            "native_queued_spin_lock_slowpath",
            "_raw_spin_lock_irqsave",
            "folio_lruvec_lock_irqsave",
            "folio_batch_move_lru",
        ];
        assert_eq!(strip_lock_functions(&stack)[0], "folio_lruvec_lock_irqsave");
        assert_eq!(main_function(&stack), Some("folio_batch_move_lru"));
        assert_eq!(main_function(&["__mutex_lock", "__fdget_pos", "ksys_read.part.0"]), Some("ksys_read"));
        assert_eq!(
            main_function(&["_raw_spin_lock_irq", "rwsem_down_write_slowpath", "down_write", "dup_mmap"]),
            Some("dup_mmap")
        );
    }

    #[test]
    fn what_compilers_append_is_removed_and_nothing_else() {
        for name in
            ["f.isra.0", "f.constprop.12", "f.part.0", "f.cold", "f.isra.0.cold", "f.part.0.isra.3", "f.llvm.123"]
        {
            assert_eq!(plain_name(name), "f");
        }
        for name in ["main.(*Server).lock", "f", "sync.0", ".part.0", "a.b.c", "f.", ""] {
            assert_eq!(plain_name(name), name);
        }
    }

    #[test]
    fn a_star_stands_for_anything_or_nothing() {
        for (pattern, name) in
            [("up", "up"), ("a*", "a"), ("*b", "ab"), ("a*b", "ab"), ("a*b*c", "a_b_b_c"), ("a*b*", "abc")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("up", "upper"), ("a*b", "a"), ("aa*aa", "aaa"), ("a*b*c", "acb"), ("a*b*b", "ab")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn signals_and_timers_release_no_lock() {
        for name in ["up_read", "up_write", "up", "__mutex_unlock_slowpath.isra.0", "rwsem_wake", "percpu_up_write"] {
            assert!(is_release_function(name), "{name}");
        }
        for name in
            ["signal_wake_up_state", "hrtimer_wakeup", "complete_signal", "try_to_wake_up", "update_curr", "uprobe"]
        {
            assert!(!is_release_function(name), "{name}");
        }
        assert!(is_releaser_stack(&[
            "bpf_prog_1_waking",
            "try_to_wake_up",
            "wake_up_q",
            "rwsem_wake",
            "up_write",
            "do_unlinkat"
        ]));
        let interrupt =
            ["try_to_wake_up", "hrtimer_wakeup", "__hrtimer_run_queues", "asm_sysvec_apic_timer_interrupt", "up_read"];
        assert!(!is_releaser_stack(&interrupt), "a timer that interrupts a release");
    }
}
