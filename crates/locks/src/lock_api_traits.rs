//! The raw traits of `lock_api`, and with them its guards.

#[cfg(feature = "std")]
use core::time::Duration;

use lock_api::GuardNoSend;

use crate::instrument::Instrument;
use crate::mutex::RawMutex;

/// A mutex and what it protects. One with hooks is `lock_api::Mutex<RawMutex<I>, T>`.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Holding a [`Mutex`].
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;

// SAFETY: the state word lets one holder at a time through; `tests` and the models hold it to that.
unsafe impl<I: Instrument> lock_api::RawMutex for RawMutex<I> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawMutex::with(I::INIT);

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
