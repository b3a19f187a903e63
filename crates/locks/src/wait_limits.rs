//! How a wait for a lock may end without the lock.

use crate::sync::{Deadline, WaitEnd};

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WaitLimits {
    pub(crate) deadline: Option<Deadline>,
    pub(crate) interruptible: bool,
}

impl WaitLimits {
    /// What the end of a sleep means.
    pub(crate) fn after_sleep(self, end: WaitEnd) -> Result<(), NotAcquired> {
        match end {
            WaitEnd::TimedOut => Err(NotAcquired::TimedOut),
            WaitEnd::Interrupted if self.interruptible => Err(NotAcquired::Interrupted),
            WaitEnd::Interrupted | WaitEnd::Woken | WaitEnd::ValueChanged => Ok(()),
        }
    }
}

/// Why a lock was not acquired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAcquired {
    /// The time was up.
    TimedOut,
    /// A signal handler ran in the waiting thread.
    Interrupted,
}

impl core::fmt::Display for NotAcquired {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(match self {
            NotAcquired::TimedOut => "the lock was not free in time",
            NotAcquired::Interrupted => "a signal interrupted the wait for the lock",
        })
    }
}

impl core::error::Error for NotAcquired {}
