//! The raw traits of `lock_api`, and with them its guards.

#[cfg(feature = "std")]
use core::time::Duration;

use lock_api::GuardNoSend;

use crate::instrument::Instrument;
use crate::lockdep::Ordered;
use crate::mutex::RawMutex;
use crate::rwsem::{Policy, RawRwSem};
use crate::spin::{RawSpin, Relax};

/// A mutex and what it protects. One with hooks is `lock_api::Mutex<RawMutex<I>, T>`.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Holding a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

// SAFETY: the state word lets one holder at a time through; `tests` and the models hold it to that.
unsafe impl<I: Instrument> lock_api::RawMutex for RawMutex<I> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawMutex::nameless(I::INIT);

    // The thread that locked it is its owner.
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        RawMutex::lock(self);
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        RawMutex::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { RawMutex::unlock(self) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawMutex::is_locked(self)
    }
}

// SAFETY: `unlock_fair` unlocks.
unsafe impl<I: Instrument> lock_api::RawMutexFair for RawMutex<I> {
    #[inline]
    unsafe fn unlock_fair(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { RawMutex::unlock_fair(self) }
    }
}

#[cfg(feature = "std")]
// SAFETY: a lock that is acquired in time is acquired as by `lock`.
unsafe impl<I: Instrument> lock_api::RawMutexTimed for RawMutex<I> {
    type Duration = Duration;
    type Instant = std::time::Instant;

    #[inline]
    #[track_caller]
    fn try_lock_for(&self, timeout: Duration) -> bool {
        self.lock_for(timeout).is_ok()
    }

    #[inline]
    #[track_caller]
    fn try_lock_until(&self, timeout: std::time::Instant) -> bool {
        self.lock_for(timeout.saturating_duration_since(std::time::Instant::now())).is_ok()
    }
}

/// A reader-writer semaphore and what it protects. One with other policies or hooks is `lock_api::RwLock<RawRwSem<P, I>, T>`.
pub type RwLock<T> = lock_api::RwLock<RawRwSem, T>;
/// Holding an [`RwLock`] for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwSem, T>;
/// Holding an [`RwLock`] for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwSem, T>;

// SAFETY: the state word lets one writer, or readers only, through; `tests` and the models hold it to that.
unsafe impl<P: Policy, I: Instrument> lock_api::RawRwLock for RawRwSem<P, I> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawRwSem::nameless(I::INIT);

    // The thread that locked it for writing is its owner.
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock_shared(&self) {
        self.read();
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared(&self) -> bool {
        self.try_read()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { self.unlock_read() }
    }

    #[inline]
    #[track_caller]
    fn lock_exclusive(&self) {
        self.write();
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive(&self) -> bool {
        self.try_write()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { self.unlock_write() }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawRwSem::is_locked(self)
    }

    #[inline]
    fn is_locked_exclusive(&self) -> bool {
        self.is_locked_for_writing()
    }
}

// SAFETY: where this thread reads already there is a reader and no writer, and then the first try succeeds.
unsafe impl<P: Policy, I: Instrument> lock_api::RawRwLockRecursive for RawRwSem<P, I> {
    #[inline]
    #[track_caller]
    fn lock_shared_recursive(&self) {
        if !self.try_read_again() {
            self.read();
        }
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared_recursive(&self) -> bool {
        self.try_read_again()
    }
}

// SAFETY: the writer becomes a reader in one exchange.
unsafe impl<P: Policy, I: Instrument> lock_api::RawRwLockDowngrade for RawRwSem<P, I> {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { RawRwSem::downgrade(self) }
    }
}

#[cfg(feature = "std")]
// SAFETY: a lock that is acquired in time is acquired as without a limit.
unsafe impl<P: Policy, I: Instrument> lock_api::RawRwLockTimed for RawRwSem<P, I> {
    type Duration = Duration;
    type Instant = std::time::Instant;

    #[inline]
    #[track_caller]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.read_for(timeout).is_ok()
    }

    #[inline]
    #[track_caller]
    fn try_lock_shared_until(&self, timeout: std::time::Instant) -> bool {
        self.read_for(timeout.saturating_duration_since(std::time::Instant::now())).is_ok()
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.write_for(timeout).is_ok()
    }

    #[inline]
    #[track_caller]
    fn try_lock_exclusive_until(&self, timeout: std::time::Instant) -> bool {
        self.write_for(timeout.saturating_duration_since(std::time::Instant::now())).is_ok()
    }
}

/// A spinlock and what it protects. One with hooks is `lock_api::Mutex<RawSpin<I>, T>`, one that yields `lock_api::Mutex<RawSpin<Unmetered, YieldCpu>, T>`.
pub type SpinMutex<T> = lock_api::Mutex<RawSpin, T>;
/// Holding a [`SpinMutex`].
pub type SpinMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawSpin, T>;

// SAFETY: the state word lets one holder at a time through; `tests` and the models hold it to that.
unsafe impl<I: Instrument, R: Relax> lock_api::RawMutex for RawSpin<I, R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawSpin::with_order(I::INIT, Ordered::nameless());

    // Contended holds and the order of locks are kept by thread.
    type GuardMarker = GuardNoSend;

    #[inline]
    #[track_caller]
    fn lock(&self) {
        RawSpin::lock(self);
    }

    #[inline]
    #[track_caller]
    fn try_lock(&self) -> bool {
        RawSpin::try_lock(self)
    }

    #[inline]
    unsafe fn unlock(&self) {
        // SAFETY: the caller's obligation is the same.
        unsafe { RawSpin::unlock(self) }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        RawSpin::is_locked(self)
    }
}
