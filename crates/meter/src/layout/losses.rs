//! Ways of losing data.

/// Ways of losing data, as indices into [`Process::losses`](super::Process::losses).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// A thread's samples were full, there was no page for its table, or that was being changed: counted under the lock, without site and
    /// blocker.
    Site = 0,
    /// There was no room even for that: not counted.
    Sample,
    /// The table of stacks was full: the return address alone is kept.
    Stack,
    /// A stack had more frames than are kept.
    Deep,
    /// A stack could not be followed to its end.
    Unwind,
    /// The table of locks was full: counted under "other locks".
    Lock,
    /// The release of a lock that its thread goes on holding, in a signal handler that interrupted the recorder: not counted.
    Interrupted,
    /// A thread held more locks at a time than are kept: that hold is not timed.
    Held,
    /// A release whose acquisition was not seen.
    Unmatched,
    /// The table of modules was full.
    Module,
    /// A wait or hold during which the process was stopped: the time of the stop is left out.
    Stopped,
}

/// Number of [`Lost`] causes.
pub const LOSSES: usize = 11;
