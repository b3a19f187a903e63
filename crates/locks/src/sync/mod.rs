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

/// What a thread sleeps for, so that those of one kind can be woken and not others. Bits, as futexes have it.
///
/// To find the sleepers of one kind the kernel walks over all that sleep on the same address. A successor that is to be woken often may be
/// behind thousands of others: while a thread owns the lock, it sleeps on the other half of the word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum SleepsFor {
    /// The lock, for itself alone. On the low half.
    Exclusive = 1,
    /// The lock, as a reader. On the low half.
    Read = 2,
    /// The end of readers: the thread that the lock is reserved for. On the low half.
    ReadersEnd = 4,
    /// The end of the owner: the thread that the lock is reserved for. On the high half, where the owner's number is.
    OwnerEnd = 8,
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
