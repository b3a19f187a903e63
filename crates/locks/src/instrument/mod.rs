//! Hooks that run only when a lock is contended.

#[cfg(feature = "meter")]
mod metered;

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sync::now_ns;

#[cfg(feature = "meter")]
pub use metered::Metered;

/// What a lock is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// [`RawSpin`](crate::RawSpin).
    Spin,
    /// [`RawMutex`](crate::RawMutex).
    Mutex,
    /// A reader-writer semaphore.
    RwSem,
    /// A reader-writer semaphore whose readers share no cache line.
    PercpuRwSem,
}

/// How a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The only mode of a lock that has no readers.
    Exclusive,
    /// Shared with other readers.
    Read,
    /// Alone, in a lock that has readers, too.
    Write,
}

/// A contended acquisition, as a hook gets it.
#[derive(Debug, Clone, Copy)]
pub struct Contended {
    /// The lock's address.
    pub lock: usize,
    /// What it is.
    pub kind: Kind,
    /// How it is wanted.
    pub mode: Mode,
}

/// What runs when a lock is contended; never on the fast path.
///
/// Each [`contended_begin`](Self::contended_begin) is followed by one [`acquired`](Self::acquired) or
/// [`given_up`](Self::given_up) in the same thread, and each `acquired` by one [`released`](Self::released). All three run in
/// the thread that waits, or releases; none may use the lock.
///
/// The value is a part of the lock, so it may carry state of the lock, such as a name.
pub trait Instrument: Send + Sync {
    /// Where the lock keeps the start of a contended hold: [`NoHoldStart`] if `released` is of no interest.
    type HoldStart: HoldStart;

    /// Whether waits are timed and told.
    const ENABLED: bool = true;

    /// What a lock without a name carries.
    const INIT: Self;

    /// What a lock with a name carries.
    fn named(name: &'static str) -> Self;

    /// The lock could not be had at once.
    #[inline]
    fn contended_begin(&self, _contended: Contended) {}

    /// It was acquired at last, this long after `contended_begin`.
    #[inline]
    fn acquired(&self, _contended: Contended, _wait_ns: u64) {}

    /// It was not acquired: the wait was timed, or interrupted.
    #[inline]
    fn given_up(&self, _contended: Contended, _wait_ns: u64) {}

    /// It is released, this long after `acquired`.
    #[inline]
    fn released(&self, _contended: Contended, _hold_ns: u64) {}
}

/// What runs at one call that acquires a lock, if the lock could not be had at once; beside the [`Instrument`] of the lock. Given to
/// `lock_at`, `read_at` and `write_at`, which check the order of locks as `lock` does.
///
/// A call counts as contended where the lock's own hooks would be told so. Both run in the thread that waits: those of the call site
/// around those of the lock. Neither may use the lock.
pub trait CallSite {
    /// Whether waits are timed and told.
    const ENABLED: bool = true;

    /// The lock could not be had at once.
    #[inline]
    fn contended_begin(&self, _contended: Contended) {}

    /// It was acquired at last, this long after `contended_begin`.
    #[inline]
    fn acquired(&self, _contended: Contended, _wait_ns: u64) {}
}

impl<S: CallSite> CallSite for &S {
    const ENABLED: bool = S::ENABLED;

    #[inline]
    fn contended_begin(&self, contended: Contended) {
        (**self).contended_begin(contended);
    }

    #[inline]
    fn acquired(&self, contended: Contended, wait_ns: u64) {
        (**self).acquired(contended, wait_ns);
    }
}

/// A call without hooks: no instruction. By value, nothing stands for it either.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NoCallSite;

impl CallSite for NoCallSite {
    const ENABLED: bool = false;
}

/// No hooks: takes no room in the lock, and no instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct Unmetered;

impl Instrument for Unmetered {
    type HoldStart = NoHoldStart;
    const ENABLED: bool = false;
    const INIT: Self = Unmetered;

    fn named(_name: &'static str) -> Self {
        Unmetered
    }
}

/// Waits for a contended lock, and tells the lock's hooks and those of the call; `begin_hold` is told when it was acquired.
#[inline(always)]
pub(crate) fn metered_wait<I: Instrument, E>(
    instrument: &I,
    site: &impl CallSite,
    contended: Contended,
    wait: impl FnOnce() -> Result<(), E>,
    begin_hold: impl FnOnce(u64),
) -> Result<(), E> {
    site_wait(site, contended, || instrument_wait(instrument, contended, wait, begin_hold))
}

#[inline(always)]
fn site_wait<S: CallSite, E>(site: &S, contended: Contended, wait: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
    if !S::ENABLED {
        return wait();
    }
    let begun = now_ns();
    site.contended_begin(contended);
    let result = wait();
    if result.is_ok() {
        site.acquired(contended, now_ns().saturating_sub(begun));
    }
    result
}

#[inline(always)]
fn instrument_wait<I: Instrument, E>(
    instrument: &I,
    contended: Contended,
    wait: impl FnOnce() -> Result<(), E>,
    begin_hold: impl FnOnce(u64),
) -> Result<(), E> {
    if !I::ENABLED {
        return wait();
    }
    let begun = now_ns();
    instrument.contended_begin(contended);
    let result = wait();
    let now = now_ns();
    let wait_ns = now.saturating_sub(begun);
    if result.is_ok() {
        instrument.acquired(contended, wait_ns);
        begin_hold(now);
    } else {
        instrument.given_up(contended, wait_ns);
    }
    result
}

/// Where a lock keeps the start of a contended hold.
pub trait HoldStart: Send + Sync {
    /// No hold.
    const INIT: Self;

    /// Whether it is kept at all.
    const IS_TIMED: bool;

    /// The hold of the current, contended, holder begins.
    fn begin(&self, now_ns: u64);

    /// It ends: when it began, if it was contended.
    fn end(&self) -> Option<u64>;
}

/// Holds are not timed: takes no room, and no instruction.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoHoldStart;

impl HoldStart for NoHoldStart {
    const INIT: Self = NoHoldStart;
    const IS_TIMED: bool = false;

    #[inline(always)]
    fn begin(&self, _now_ns: u64) {}

    #[inline(always)]
    fn end(&self) -> Option<u64> {
        None
    }
}

/// Contended holds are timed; an uncontended release reads this word, which is next to the lock's own.
#[derive(Debug)]
pub struct TimedHoldStart(AtomicU64);

impl HoldStart for TimedHoldStart {
    const INIT: Self = TimedHoldStart(AtomicU64::new(0));
    const IS_TIMED: bool = true;

    #[inline]
    fn begin(&self, now_ns: u64) {
        self.0.store(now_ns.max(1), Relaxed);
    }

    #[inline]
    fn end(&self) -> Option<u64> {
        // Only the holder reads and writes it.
        let since = self.0.load(Relaxed);
        if since == 0 {
            return None;
        }
        self.0.store(0, Relaxed);
        Some(since)
    }
}
