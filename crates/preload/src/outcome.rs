//! How a wait for one of pthread's locks ended, by what the call returned.

use core::ffi::c_int;

use libc::ETIMEDOUT;
use lockmeter_meter::writer::Outcome;

/// `error` is what the call returned if it did not get the lock. `holder` says which thread has the lock now; 0: that is not known.
pub(crate) fn outcome(has_lock: bool, error: c_int, holder: impl FnOnce() -> u32) -> Outcome {
    match error {
        _ if has_lock => Outcome::Acquired,
        ETIMEDOUT => Outcome::TimedOut(holder()),
        _ => Outcome::Failed,
    }
}
