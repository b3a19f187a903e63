//! The lock library for C and C++. The header is written by cbindgen; the functions follow pthread's: 0 is success, anything
//! else an error number.

// The names are C's.
#![allow(non_camel_case_types)]

mod hooks;
mod mutex;
mod percpu_rwsem;
mod rwsem;
mod spin;

pub use hooks::{lm_hooks_t, lm_kind_t, lm_mode_t, lm_wait_t};
pub use mutex::*;
pub use percpu_rwsem::*;
pub use rwsem::*;
pub use spin::*;

use std::time::Duration;

/// From now on mutexes, semaphores and spinlocks that lie in memory which this process shares with its children (a MAP_SHARED mapping) work
/// between it and those that fork() makes from here on, and theirs. To be called while the process has one thread. A process that is killed
/// while it holds or waits for a lock may leave the others waiting for ever; lm_percpu_rwsem_t is for one process alone.
/// 0, or EBUSY: the process has other threads; ENOTSUP: not with pages of more than 4096 bytes; or the kernel's error.
#[unsafe(no_mangle)]
pub extern "C" fn lm_share_with_children() -> libc::c_int {
    match lockmeter_locks::between_processes::share_with_children() {
        Ok(()) => 0,
        Err(error) => error.raw_os_error().unwrap_or(match error.kind() {
            std::io::ErrorKind::ResourceBusy => libc::EBUSY,
            _ => libc::ENOTSUP,
        }),
    }
}

/// Of a try.
fn busy_unless(locked: bool) -> libc::c_int {
    if locked { 0 } else { libc::EBUSY }
}

/// Of a wait with a limit.
fn timed_out_unless(locked: bool) -> libc::c_int {
    if locked { 0 } else { libc::ETIMEDOUT }
}

/// As long as that.
fn duration(timeout_ns: u64) -> Duration {
    Duration::from_nanos(timeout_ns)
}
