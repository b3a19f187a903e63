//! The table of the kernel's lock functions, compared with the functions that the running kernel has.

use std::fs;
use std::ops::RangeInclusive;

use lockmeter_profile::lock_functions::{kernel_patterns, matches_pattern, plain_name};

type Version = (u32, u32);

const FIRST: Version = (0, 0);
const LAST: Version = (u32::MAX, 0);

/// Functions that some kernels have and others do not, with the versions that are known to have them: looked up in Debian's 6.1, 6.12
/// and 7.2, and in a 6.18.
const OF_SOME_VERSIONS: &[(RangeInclusive<Version>, &[&str])] = &[
    (FIRST..=(6, 1), &["lock_two_inodes", "__fdget_pos", "lock_mount"]),
    (FIRST..=(6, 12), &["__mutex_remove_waiter", "__percpu_rwsem_*"]),
    (FIRST..=(6, 18), &["unlock_rename", "task_rq_lock", "__task_rq_lock", "__lock_task_sighand"]),
    ((6, 12)..=(6, 18), &["__pte_offset_map_lock"]),
    (
        (6, 12)..=LAST,
        &["rt_mutex_schedule", "complete_on_current_cpu", "_atomic_dec_and_raw_lock*", "fdget_pos", "do_lock_mount"],
    ),
    ((6, 18)..=LAST, &["resilient_queued_spin_lock_slowpath", "resilient_tas_spin_lock", "futex_q_lockptr_lock"]),
    ((7, 2)..=LAST, &["__percpu_up_*", "pte_offset_map_lock", "_task_rq_lock", "___task_rq_lock", "lock_task_sighand"]),
];

/// Functions that only kernels with PREEMPT_RT have.
const OF_REAL_TIME: &[&str] = &[
    "rtlock_*",
    "rt_spin_lock*",
    "rt_spin_trylock*",
    "rt_spin_unlock*",
    "rt_read_lock*",
    "rt_read_trylock*",
    "rt_read_unlock*",
    "rt_write_lock*",
    "rt_write_trylock*",
    "rt_write_unlock*",
    "rwbase_*_lock",
    "rwbase_*_unlock*",
    "schedule_rtlock",
];

/// Functions that compilers put into their callers, or do not, and that only some configurations have: debugging of spinlocks, no
/// paravirtual ones.
const DEPENDING_ON_THE_BUILD: &[&str] = &[
    "__do_trace_*",
    "trace_contention_*",
    "trace_sched_waking*",
    "__raw_spin_lock*",
    "__raw_read_lock*",
    "__raw_write_lock*",
    "do_raw_spin_lock*",
    "do_raw_read_lock*",
    "do_raw_write_lock*",
    "queued_spin_lock_slowpath",
    "native_queued_spin_lock_slowpath",
    "__pv_queued_spin_lock_slowpath",
    "native_queued_spin_unlock",
    "__native_queued_spin_unlock",
    "__pv_queued_spin_unlock*",
    "__raw_callee_save___native_queued_spin_unlock",
    "__raw_callee_save___pv_queued_spin_unlock*",
    "__mutex_trylock*",
    "__mutex_add_waiter",
    "__mutex_handoff",
    "rwsem_try_write_lock*",
    "rwsem_optimistic_spin",
    "rwsem_can_spin_on_owner",
    "rwsem_add_waiter",
    "rwsem_del_waiter",
    "rwsem_del_wake_waiter",
    "__up_read*",
    "__up_write*",
    "rwsem_cond_wake_waiter",
    "rwsem_downgrade_wake",
    "rt_mutex_slowtrylock",
    "rt_mutex_slowunlock*",
    "mark_wakeup_next_waiter",
    "complete_with_flags",
    "do_wait_for_common",
    "inode_lock*",
    "inode_unlock*",
    "unlock_mount",
    "folio_lruvec_relock*",
    "page_lock_anon_vma_read",
    "mmap_read_lock*",
    "mmap_read_unlock",
    "mmap_write_lock*",
    "mmap_write_unlock",
    "madvise_lock",
    "madvise_unlock",
    "double_lock_hb",
    "cgroup_lock",
    "perf_event_ctx_unlock",
];

/// Each entry has at least one function in the running kernel, unless the kernel is of a sort that is known not to have any: a name
/// that was mistyped, or that the kernel has given up, would silently match nothing.
#[test]
fn every_entry_is_a_function_of_the_running_kernel() {
    let symbols = fs::read_to_string("/proc/kallsyms").expect("the kernel lists its symbols");
    let functions: Vec<&str> = symbols.lines().filter_map(function).map(plain_name).collect();
    assert!(functions.len() > 10_000, "{} functions", functions.len());
    let is_real_time = fs::read_to_string("/proc/sys/kernel/version").expect("procfs").contains("PREEMPT_RT");
    let kernel = Kernel { version: running_version(), is_real_time };
    let mut missing = Vec::new();
    for pattern in kernel_patterns() {
        let count = functions.iter().filter(|name| matches_pattern(pattern, name)).count();
        println!("{count:6} {pattern}");
        if count == 0 && kernel.is_known_to_have(pattern) {
            missing.push(pattern);
        }
    }
    assert!(missing.is_empty(), "Linux {}.{} has no function of {missing:?}", kernel.version.0, kernel.version.1);
}

#[test]
fn every_exception_is_an_entry_of_the_table() {
    let of_versions = OF_SOME_VERSIONS.iter().flat_map(|(_, patterns)| patterns.iter());
    for exception in of_versions.chain(OF_REAL_TIME).chain(DEPENDING_ON_THE_BUILD) {
        assert!(kernel_patterns().any(|pattern| pattern == *exception), "{exception} is in no group");
    }
}

struct Kernel {
    version: Version,
    is_real_time: bool,
}

impl Kernel {
    fn is_known_to_have(&self, pattern: &str) -> bool {
        if let Some((versions, _)) = OF_SOME_VERSIONS.iter().find(|(_, patterns)| patterns.contains(&pattern)) {
            return versions.contains(&self.version);
        }
        !DEPENDING_ON_THE_BUILD.contains(&pattern) && (self.is_real_time || !OF_REAL_TIME.contains(&pattern))
    }
}

/// The name in a line of `/proc/kallsyms`, if it is a function's.
fn function(line: &str) -> Option<&str> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let is_function = ["t", "T", "w", "W"].contains(&words.next()?);
    words.next().filter(|_| is_function)
}

fn running_version() -> Version {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("procfs");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.parse().ok());
    (numbers.next().expect("a major version"), numbers.next().expect("a minor version"))
}
