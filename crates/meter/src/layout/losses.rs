//! Ways of losing data.

/// Ways of losing data, as indices into [`Header::losses`](super::Header::losses).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Lost {
    /// No room for another thread: its events are not counted.
    Threads = 0,
    /// A thread's samples were full: counted under the lock, without site and blocker.
    Site,
    /// A thread's samples were full even for that: not counted.
    Sample,
    /// The table of stacks was full: the return address alone is kept.
    Stack,
    /// A stack had more frames than are kept.
    Deep,
    /// A stack could not be followed to its end.
    Unwind,
    /// The table of locks was full: counted under "other locks".
    Lock,
    /// An event in a signal handler that interrupted the recorder: not counted.
    Interrupted,
    /// A thread held more locks at a time than are kept: that hold is not timed.
    Held,
    /// A release whose acquisition was not seen.
    Unmatched,
    /// The table of modules was full.
    Module,
    /// A forked child that could make no segment of its own counts here, in its parent's, and so does a program that was
    /// executed where it can make none.
    Child,
    /// A program was executed that must not have the library: see [`incompatible`](crate::incompatible).
    Incompatible,
}

/// Number of [`Lost`] causes.
pub const LOSSES: usize = 13;
