//! What a [`RawRwSem`](super::RawRwSem) does while it is contended; each can be switched on or off, and measured.

use core::sync::atomic::Ordering::Relaxed;

use crate::current_thread::own_number;
use crate::thread_number::{ThreadNumber, UNKNOWN};

/// Switches of a reader-writer semaphore. Implement it with other constants to switch some off.
pub trait Policy: Send + Sync + 'static {
    /// Spin while a writer that runs owns the lock.
    const SPIN: bool = true;
    /// Spin while readers own the lock, too, of which it is not known whether they run.
    const READER_SPIN: bool = true;
    /// Spin in a queue, so that one thread alone polls the lock; otherwise all do.
    const QUEUE: bool = true;
    /// Let a thread that comes take a free lock before those that sleep. Otherwise it waits behind them, and the semaphore must stay where it
    /// is until an unlock has returned.
    const STEAL: bool = true;
    /// Reserve the lock for a waiter that has waited too long, so that neither side starves.
    const HANDOFF: bool = true;
    /// What is known of readers: [`UnknownReader`], or [`LastReader`].
    type Reader: ReaderOwner;
}

/// What a lock notes of the readers that own it.
pub trait ReaderOwner: Send + Sync {
    /// No reader.
    const NONE: Self;
    /// This thread reads from now on.
    fn begin(&self);
    /// It does not any more.
    fn end(&self);
    /// The number of a thread that reads; 0 if none is known.
    fn number(&self) -> u32;
}

/// Nothing: takes no room in the lock, and no instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnknownReader;

impl ReaderOwner for UnknownReader {
    const NONE: Self = UnknownReader;

    #[inline(always)]
    fn begin(&self) {}

    #[inline(always)]
    fn end(&self) {}

    fn number(&self) -> u32 {
        UNKNOWN
    }
}

/// The reader that came last, until it leaves: as in Tim Chen's patch of 2013, each reader sets the owner, and clears it if it is still its
/// own. Readers then write a word that they share; in exchange, a waiter that shares the CPU of the last reader does not spin for it.
#[derive(Debug)]
pub struct LastReader(core::sync::atomic::AtomicU32);

impl ReaderOwner for LastReader {
    #[allow(clippy::declare_interior_mutable_const)]
    const NONE: Self = LastReader(core::sync::atomic::AtomicU32::new(UNKNOWN));

    #[inline]
    fn begin(&self) {
        self.0.store(own_number().map_or(UNKNOWN, ThreadNumber::get), Relaxed);
    }

    #[inline]
    fn end(&self) {
        // Before the release; another reader may have written its own number meanwhile, and it is a hint.
        if own_number().is_some_and(|own| self.0.load(Relaxed) == own.get()) {
            self.0.store(UNKNOWN, Relaxed);
        }
    }

    fn number(&self) -> u32 {
        self.0.load(Relaxed)
    }
}

/// Everything on but the owner of readers, for which they would have to write another word.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Policy for Standard {
    type Reader = UnknownReader;
}

/// Waiters sleep at once: as before 2013.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSpin;

impl Policy for NoSpin {
    const SPIN: bool = false;
    const READER_SPIN: bool = false;
    type Reader = UnknownReader;
}

/// Waiters sleep at once while readers own the lock.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoReaderSpin;

impl Policy for NoReaderSpin {
    const READER_SPIN: bool = false;
    type Reader = UnknownReader;
}

/// All that spin poll the lock itself: as in the first patch of 2013.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoQueue;

impl Policy for NoQueue {
    const QUEUE: bool = false;
    type Reader = UnknownReader;
}

/// Threads that sleep have a free lock before those that come.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSteal;

impl Policy for NoSteal {
    const STEAL: bool = false;
    type Reader = UnknownReader;
}

/// The lock is never reserved: waits are unbounded.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHandoff;

impl Policy for NoHandoff {
    const HANDOFF: bool = false;
    type Reader = UnknownReader;
}

/// Readers set the owner.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadersOwn;

impl Policy for ReadersOwn {
    type Reader = LastReader;
}

#[cfg(all(test, feature = "std", not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn the_last_reader_is_known_until_it_leaves_whoever_leaves_before() {
        let last = LastReader::NONE;
        last.begin();
        assert_eq!(last.number(), own_number().unwrap().get());
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                last.begin();
                own_number().unwrap().get()
            });
            let other = thread.join().unwrap();
            last.end();
            assert_eq!(last.number(), other);
        });
        last.begin();
        last.end();
        assert_eq!(last.number(), UNKNOWN);
    }
}
