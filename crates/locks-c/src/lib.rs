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
