//! What a [`RawRwSem`](super::RawRwSem) does while it is contended; each can be switched off, and measured.

/// Switches of a reader-writer semaphore. Implement it with other constants to switch some off.
pub trait Policy: Send + Sync + 'static {
    /// Spin while a writer that runs owns the lock.
    const SPIN: bool = true;
    /// Spin while readers own the lock, too, of which it is not known whether they run.
    const READER_SPIN: bool = true;
    /// Reserve the lock for a waiter that has waited too long, so that neither side starves.
    const HANDOFF: bool = true;
}

/// Everything on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Policy for Standard {}

/// Waiters sleep at once: as before 2013.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSpin;

impl Policy for NoSpin {
    const SPIN: bool = false;
    const READER_SPIN: bool = false;
}

/// Waiters sleep at once while readers own the lock.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReaderSpin;

impl Policy for NoReaderSpin {
    const READER_SPIN: bool = false;
}

/// The lock is never reserved: waits are unbounded.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandoff;

impl Policy for NoHandoff {
    const HANDOFF: bool = false;
}
