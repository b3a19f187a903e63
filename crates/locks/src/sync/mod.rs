//! Every primitive the locks are made of, under one name.
//!
//! The locks use nothing else, so the source that ships is the source that is model-checked: `native` is the machine itself,
//! `model` puts loom (`--cfg loom`) or shuttle (`--cfg shuttle`) in its place.

#[cfg(any(loom, shuttle))]
mod model;
#[cfg(not(any(loom, shuttle)))]
mod native;

#[cfg(any(loom, shuttle))]
pub(crate) use model::*;
#[cfg(not(any(loom, shuttle)))]
pub(crate) use native::*;

/// Why a wait on a [`FutexDouble`] came to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// A thread woke this one; or another did that used the same address for something else.
    Woken,
    /// The word had another value already.
    ValueChanged,
    /// The deadline has passed.
    TimedOut,
    /// A signal handler ran.
    Interrupted,
}

/// Which of the threads that sleep on a word are to be woken. Bits, as futexes have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum WakeClass {
    /// Threads that want the lock for themselves alone.
    Exclusive = 1,
    /// The thread for which the lock is reserved.
    Successor = 2,
    /// Readers.
    Readers = 4,
}

/// A point on the monotonic clock, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    pub(crate) at_ns: u64,
}

impl Deadline {
    pub(crate) fn after(timeout: core::time::Duration) -> Self {
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Deadline { at_ns: now_ns().saturating_add(timeout_ns) }
    }
}

/// `const fn`, except under a model checker, whose atomics must be made at run time.
macro_rules! const_unless_model {
    ($(#[$attribute:meta])* $visibility:vis const fn $($rest:tt)*) => {
        #[cfg(not(any(loom, shuttle)))]
        $(#[$attribute])* $visibility const fn $($rest)*
        #[cfg(any(loom, shuttle))]
        $(#[$attribute])* $visibility fn $($rest)*
    };
}
pub(crate) use const_unless_model;

/// The first value where a build for a model checker breaks this thing on purpose (`LOCKMETER_MUTATION=…` in the compiler's
/// environment), to see the checker notice; the second in every other build.
macro_rules! mutated {
    ($name:tt, $broken:expr, $right:expr) => {
        if cfg!(any(loom, shuttle)) && matches!(option_env!("LOCKMETER_MUTATION"), Some($name)) {
            $broken
        } else {
            $right
        }
    };
}
pub(crate) use mutated;
