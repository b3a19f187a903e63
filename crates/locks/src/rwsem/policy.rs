//! What an [`RwSem`](super::RawRwSem) does while it is contended; each can be switched off, and measured.

/// Switches of a reader-writer semaphore. Implement it with other constants to switch some off.
pub trait Policy: Send + Sync + 'static {
    /// Wait awake while a writer that runs owns the lock.
    const SPIN: bool = true;
    /// Let who comes take a free lock before those who sleep, and wakes up slowly, get it.
    const STEAL: bool = true;
    /// Reserve the lock for a waiter that was passed for too long, so that neither side starves.
    const HANDOFF: bool = true;
    /// Let a writer wait awake for readers, too, for a bounded time.
    const READER_SPIN: bool = true;
    /// Let who waits yield its CPU now and then, where others that use locks share it.
    const YIELD: bool = true;
}

/// Everything on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Policy for Standard {}

/// Nobody waits awake: as before 2013.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSpin;

impl Policy for NoSpin {
    const SPIN: bool = false;
    const READER_SPIN: bool = false;
}

/// A free lock is for those who sleep, if there are such.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSteal;

impl Policy for NoSteal {
    const STEAL: bool = false;
}

/// Nobody inherits: waits are unbounded.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandoff;

impl Policy for NoHandoff {
    const HANDOFF: bool = false;
}

/// Writers do not wait awake for readers, but for a first moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReaderSpin;

impl Policy for NoReaderSpin {
    const READER_SPIN: bool = false;
}

/// Nobody gives up its CPU but to sleep until the lock is free.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoYield;

impl Policy for NoYield {
    const YIELD: bool = false;
}
