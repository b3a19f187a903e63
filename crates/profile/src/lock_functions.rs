//! Which functions of a stack belong to the lock, and which is the one that uses it.
//!
//! The innermost frames of a wait's stack are the metering itself, then the lock's slow and fast path, then perhaps a
//! function that only wraps the lock. How many frames that makes differs between kernels and with what the compiler
//! inlined, so they are recognised by name, and only in an unbroken run from the innermost frame.
//!
//! What may be stripped depends on how the stack begins. A spinlock is taken *by* the scheduler and *by* the slow paths of
//! sleeping locks: under `_raw_spin_lock`, `__schedule` or `rwsem_wake` are callers, not lock functions. In the stack of
//! a releaser, `try_to_wake_up` is machinery. A program's stack begins with a function of its own lists
//! (`user`).
//!
//! Which functions of the kernel these are stands in one table, `kernel`.

mod kernel;
mod pattern;
mod user;

use std::collections::BTreeSet;

use kernel::{GROUPS, Role, has_role};

use crate::interval::Frame;
use crate::{Kind, Mode};

pub use pattern::{matches_pattern, plain_name};
pub use user::{is_called_like_a_lock, is_user_lock_function, is_user_machinery, own_name, telling_words};

/// The stack (function names, innermost first) without the metering's and the lock's own functions at its inner end.
///
/// The outermost frame is never stripped, so that a stack does not come out empty.
pub fn strip_lock_functions<'a, 'name>(stack: &'a [&'name str]) -> &'a [&'name str] {
    if let Some(frames) = user::lock_frames(stack) {
        return &stack[frames.min(stack.len() - 1)..];
    }
    let stack = skip_run(stack, &[Role::Metering]);
    let Some(innermost) = stack.first() else {
        return stack;
    };
    if has_role(innermost, &[Role::TakesSpinning]) {
        skip_run(stack, &[Role::TakesSpinning])
    } else if has_role(innermost, &[Role::ReleasesSpinning]) {
        skip_run(stack, &[Role::ReleasesSpinning])
    } else if has_role(innermost, &[Role::Wakes, Role::ReleasesSleeping]) {
        let rest = skip_run(stack, &[Role::Wakes, Role::ReleasesSleeping]);
        // A waiter that is granted a lock may wake its fellows: then the taking is machinery, too.
        skip_run(rest, &[Role::TakesSleeping])
    } else {
        let awake = skip_run(stack, &[Role::Sleeps]);
        let is_lock = awake.first().is_some_and(|function| has_role(function, &[Role::TakesSleeping]));
        if is_lock { skip_run(awake, &[Role::TakesSleeping]) } else { stack }
    }
}

/// How many frames at a stack's inner end are metering itself. Nameless frames among them (a program compiled into the
/// kernel at run time) count; nameless frames alone do only before a function that releases a lock: nobody calls from there
/// but the hook at its entry.
pub fn metering_frames<'name>(names: impl IntoIterator<Item = Option<&'name str>>) -> usize {
    let is_metering = |name: &str| has_role(name, &[Role::Metering]);
    let names: Vec<Option<&str>> = names.into_iter().collect();
    let run = names.iter().take_while(|name| name.is_none_or(is_metering)).count();
    let is_release = |name: &str| is_release_function(name) || has_role(name, &[Role::ReleasesSpinning]);
    if names.get(run).is_some_and(|name| name.is_some_and(is_release)) {
        return run;
    }
    names[..run].iter().rposition(Option::is_some).map_or(0, |at| at + 1)
}

/// Whether a frame is the way through which a hooked function is called: its own frame stands on both sides of it.
pub fn is_trampoline(name: &str) -> bool {
    matches_pattern("bpf_trampoline_*", name)
}

/// Whether a function releases a lock: tells a releaser's stack from that of a signal's or a timer's wake-up.
///
/// An interrupt may wake somebody while it interrupts such a function: for a whole stack ask [`is_releaser_stack`].
pub fn is_release_function(name: &str) -> bool {
    has_role(name, &[Role::ReleasesSleeping])
}

/// Whether a wake-up's stack (function names, innermost first) is that of releasing a lock: a release function stands in
/// the unbroken run of waking functions at its inner end.
pub fn is_releaser_stack(stack: &[&str]) -> bool {
    let mut run =
        stack.iter().take_while(|name| has_role(name, &[Role::Metering, Role::Wakes, Role::ReleasesSleeping]));
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
    let beyond =
        skip_run(stripped, &[Role::Wraps, Role::WrapsForAnyObject, Role::TakesSleeping, Role::ReleasesSleeping]);
    beyond.first().map(|name| plain_name(name))
}

/// The functions of a kernel stack (innermost first) beyond the metering's and those of locks of any sort, without what compilers
/// added to their names: those that may tell whose lock it is.
///
/// Unlike [`strip_lock_functions`] it also skips the lock that a spinlock is a part of.
pub fn beyond_locks<'s>(stack: &'s [&'s str]) -> impl Iterator<Item = &'s str> + 's {
    let without_metering = stack.iter().skip_while(|name| has_role(name, &[Role::Metering]));
    without_metering.skip_while(|name| has_role(name, LOCK_ROLES)).map(|name| plain_name(name))
}

/// Of a stack (innermost first) that takes a spinlock which is part of another lock: that lock's kind, and which of its fields the
/// spinlock is.
pub fn outer_lock(stack: &[&str]) -> Option<(Kind, &'static str)> {
    let without_metering = stack.iter().skip_while(|name| has_role(name, &[Role::Metering]));
    without_metering.take_while(|name| has_role(name, LOCK_ROLES)).find_map(|name| kernel::part_of_lock(name))
}

/// Of the kernel stack (innermost first) of a task that sleeps: the kind and mode of the lock that it sleeps for; `None` if for none.
pub fn slept_for(stack: &[&str]) -> Option<(Kind, Mode)> {
    let without_metering = stack.iter().skip_while(|name| has_role(name, &[Role::Metering]));
    let mut awake = without_metering.skip_while(|name| has_role(name, &[Role::Sleeps])).peekable();
    awake.peek().filter(|name| has_role(name, &[Role::TakesSleeping]))?;
    let taking: Vec<&str> =
        awake.take_while(|name| has_role(name, &[Role::TakesSleeping])).map(|name| plain_name(name)).collect();
    let is_any = |part: &str| taking.iter().any(|name| name.contains(part));
    let kind = taking.iter().find_map(|name| kernel::part_of_lock(name)).map(|(kind, _)| kind);
    let kind = kind.unwrap_or(if is_any("rt_") { Kind::RtMutex } else { Kind::Semaphore });
    let mode = match kind {
        Kind::Rwsem | Kind::PercpuRwsem if is_any("write") => Mode::Write,
        // Its readers' function is inlined into the caller.
        Kind::PercpuRwsem => Mode::Read,
        Kind::Rwsem if is_any("read") => Mode::Read,
        _ => Mode::Exclusive,
    };
    Some((kind, mode))
}

/// Whether a function works on the locks of objects of any type, so that it does not tell of which type an object is.
pub fn serves_any_object(name: &str) -> bool {
    has_role(name, &[Role::Wakes, Role::WrapsForAnyObject, Role::Interrupts])
}

/// All names and patterns of functions of the kernel that are known here, each once.
pub fn kernel_patterns() -> impl Iterator<Item = &'static str> {
    let all: BTreeSet<_> = GROUPS.iter().flat_map(|group| group.names).copied().collect();
    all.into_iter()
}

/// Of functions that are part of a lock.
const LOCK_ROLES: &[Role] =
    &[Role::TakesSpinning, Role::ReleasesSpinning, Role::TakesSleeping, Role::ReleasesSleeping, Role::Sleeps];

fn skip_run<'a, 'name>(stack: &'a [&'name str], roles: &[Role]) -> &'a [&'name str] {
    skip_while(stack, |name| has_role(name, roles))
}

fn skip_while<'a, 'name>(stack: &'a [&'name str], is_skipped: impl Fn(&str) -> bool) -> &'a [&'name str] {
    let run = stack.iter().take_while(|name| is_skipped(name)).count();
    &stack[run.min(stack.len().saturating_sub(1))..]
}

/// Whether this frame belongs to Go's runtime: every thread of its begins in such a one.
pub fn is_of_go(frame: &Frame) -> bool {
    const BEGINS: [&str; 3] = ["runtime.goexit", "runtime.mstart", "runtime.mcall"];
    let function = frame.function.as_deref().unwrap_or_default();
    BEGINS.contains(&function.strip_suffix(".abi0").unwrap_or(function))
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

    #[test]
    fn a_sleepers_stack_tells_for_what_lock_it_sleeps() {
        let mutex = ["__schedule", "schedule", "schedule_preempt_disabled", "__mutex_lock.isra.0", "do_epoll_ctl"];
        assert_eq!(slept_for(&mutex), Some((Kind::Mutex, Mode::Exclusive)));
        let frozen = ["__schedule", "schedule", "percpu_rwsem_wait", "mnt_want_write", "path_openat"];
        assert_eq!(slept_for(&frozen), Some((Kind::PercpuRwsem, Mode::Read)));
        let writer = ["schedule", "rwsem_down_write_slowpath", "down_write_killable", "do_mmap"];
        assert_eq!(slept_for(&writer), Some((Kind::Rwsem, Mode::Write)));
        assert_eq!(slept_for(&["schedule", "__down_common", "down", "x"]), Some((Kind::Semaphore, Mode::Exclusive)));
        assert_eq!(slept_for(&["schedule", "rt_mutex_slowlock", "x"]), Some((Kind::RtMutex, Mode::Exclusive)));
        assert_eq!(slept_for(&["schedule", "do_nanosleep", "mutex_lock"]), None, "it sleeps for a time, under a lock");
        assert_eq!(slept_for(&[]), None);
    }

    #[test]
    fn a_lock_is_named_after_functions_beyond_all_locks() {
        let stack =
            ["bpf_prog_1", "native_queued_spin_lock_slowpath", "_raw_spin_lock_irqsave", "pipe_write.isra.0", "up"];
        assert_eq!(beyond_locks(&stack).collect::<Vec<_>>(), ["pipe_write", "up"]);
        let stack = ["_raw_spin_lock_irq", "rwsem_down_write_slowpath", "down_write", "dup_mmap"];
        assert_eq!(beyond_locks(&stack).collect::<Vec<_>>(), ["dup_mmap"]);
        for function in ["update_curr", "upload", "raw_spin_rq_lock_nested", "lock_mm_and_find_vma", "folio_lock"] {
            assert_eq!(beyond_locks(&["_raw_spin_lock", function]).next(), Some(function));
        }
    }

    #[test]
    fn functions_that_only_begin_like_lock_functions_are_callers() {
        // They take a lock of BPF, of the console and of the scheduler.
        for function in ["bpf_lru_pop_free", "__bpf_ringbuf_reserve", "__up_console_sem", "rt_mutex_setprio"] {
            assert_eq!(beyond_locks(&["_raw_spin_lock_irqsave", function]).next(), Some(function));
        }
        let stack = ["__down_common", "down_trylock", "__down_trylock_console_sem", "console_trylock"];
        assert_eq!(main_function(&stack), Some("console_trylock"));
    }

    #[test]
    fn a_spinlock_inside_another_lock_is_recognized_by_that_locks_functions() {
        let inner = ["__pv_queued_spin_lock_slowpath", "queued_write_lock_slowpath", "copy_process"];
        assert_eq!(outer_lock(&inner), Some((Kind::Rwlock, ".raw_lock.wait_lock")));
        let inner = ["_raw_spin_lock_irq", "rcu_sync_enter", "percpu_down_write", "cgroup_attach_lock"];
        assert_eq!(outer_lock(&inner), Some((Kind::PercpuRwsem, ".rss.gp_wait.lock")));
        assert_eq!(main_function(&inner), Some("cgroup_attach_lock"));
        for (inner, kind) in [
            (["_raw_spin_lock_irq", "rwsem_down_write_slowpath"], Kind::Rwsem),
            (["_raw_spin_lock_irqsave", "downgrade_write"], Kind::Rwsem),
            (["_raw_spin_lock", "__mutex_unlock_slowpath.isra.0"], Kind::Mutex),
        ] {
            assert_eq!(outer_lock(&inner), Some((kind, ".wait_lock")), "{inner:?}");
        }
        assert_eq!(outer_lock(&["_raw_spin_lock", "futex_wake", "mutex_lock"]), None, "not above the caller");
    }
}
