//! The lock that users see: `lock_api`'s traits over the bias.

#[cfg(feature = "std")]
use core::time::Duration;

#[cfg(feature = "std")]
use lock_api::RawRwLockTimed;
use lock_api::{RawRwLock, RawRwLockDowngrade, RawRwLockFair, RawRwLockRecursive};

use super::bias::{Biased, Central};
use crate::instrument::{CallSite, Instrument};
use crate::rwsem::{Policy, RawRwSem};

/// A [`RawPercpuRwSem`] over a [`RawRwSem`](crate::RawRwSem), and what it protects.
pub type PercpuRwLock<T> = lock_api::RwLock<RawPercpuRwSem, T>;

/// A reader-writer semaphore for much reading and little writing: while nobody writes, readers count themselves on their own
/// CPU, without an atomic instruction and without a shared cache line.
///
/// `R` is the lock that writers queue at, and readers while there are writers: fairness, time limits and spinning are those of
/// `R`. A first write after much reading costs a membarrier(2): 1 µs, or some 10 µs while other threads of the process run.
/// Under a mix with many writes the bias stays away and the lock is as fast as `R` alone, not faster.
///
/// Any thread may release a read hold, so guards may be sent where `R` lets them. A thread that ends leaves nothing behind.
/// Memory: this structure (104 bytes, so that readers look at another cache line than writers change), and once it is read often
/// 8 bytes for each CPU, from pages that hundreds of locks share.
///
/// With the feature `lockdep` the bias stays away, so that every acquisition is checked, by `R`.
///
/// Needs rseq (registered by glibc 2.35 or newer) and membarrier (Linux 5.10 or newer) on x86-64; elsewhere, and for locks made
/// [`striped`](Self::striped), readers change their CPU's counter with a compare-and-swap.
#[derive(Debug)]
pub struct RawPercpuRwSem<R = RawRwSem> {
    biased: Biased<Under<R>>,
}

/// A `lock_api` lock as the one under the bias.
#[derive(Debug)]
struct Under<R>(R);

impl<R: RawRwLock> Central for Under<R> {
    #[inline(always)]
    fn try_lock_shared(&self) -> bool {
        self.0.try_lock_shared()
    }
    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller gives up a read hold.
        unsafe { self.0.unlock_shared() }
    }
    #[inline(always)]
    fn try_lock_exclusive(&self) -> bool {
        self.0.try_lock_exclusive()
    }
}

impl<R> RawPercpuRwSem<R> {
    /// Over a free `central`.
    pub const fn over(central: R) -> Self
    where
        R: RawRwLock,
    {
        RawPercpuRwSem { biased: Biased::new(Under(central), false) }
    }

    /// Over a free `central`, and without rseq and membarrier also where they are: for programs that must not interrupt all
    /// their CPUs when one thread writes.
    pub const fn striped(central: R) -> Self
    where
        R: RawRwLock,
    {
        RawPercpuRwSem { biased: Biased::new(Under(central), true) }
    }

    /// Whether readers are counted per CPU at the moment.
    pub fn is_biased(&self) -> bool
    where
        R: RawRwLock,
    {
        self.biased.is_open()
    }

    fn central(&self) -> &R
    where
        R: RawRwLock,
    {
        &self.biased.central().0
    }
}

impl<P: Policy, I: Instrument> RawPercpuRwSem<RawRwSem<P, I>> {
    /// Locks it for reading, with hooks for this call.
    #[inline]
    #[track_caller]
    pub fn read_at(&self, site: &impl CallSite) {
        self.biased.lock_shared(|central| {
            central.0.read_at(site);
            true
        });
    }

    /// Locks it for writing, with hooks for this call.
    #[inline]
    #[track_caller]
    pub fn write_at(&self, site: &impl CallSite) {
        self.biased.lock_exclusive(|central| {
            central.0.write_at(site);
            true
        });
    }

    /// Its hooks.
    pub fn instrument(&self) -> &I {
        self.central().instrument()
    }
}

// SAFETY: writers hold `R` exclusively; readers hold `R`, or are counted while the bias holds `R` for all of them, which ends
// only when none of them is left (see the table in `bias`; the model checks hold it to that).
unsafe impl<R: RawRwLock> RawRwLock for RawPercpuRwSem<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = RawPercpuRwSem::over(R::INIT);

    type GuardMarker = R::GuardMarker;

    #[inline]
    fn lock_shared(&self) {
        self.biased.lock_shared(|central| {
            central.0.lock_shared();
            true
        });
    }

    #[inline]
    fn try_lock_shared(&self) -> bool {
        self.biased.try_lock_shared()
    }

    #[inline]
    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller gives up a read hold.
        unsafe { self.biased.unlock_shared() }
    }

    #[inline]
    fn lock_exclusive(&self) {
        self.biased.lock_exclusive(|central| {
            central.0.lock_exclusive();
            true
        });
    }

    #[inline]
    fn try_lock_exclusive(&self) -> bool {
        self.biased.try_lock_exclusive()
    }

    #[inline]
    unsafe fn unlock_exclusive(&self) {
        // SAFETY: a writer holds the central lock.
        unsafe { self.central().unlock_exclusive() }
    }
}

// SAFETY: a reader counted by the bias gets in again without looking at the central lock, and one that holds the central lock
// relies on `R`'s own promise.
unsafe impl<R: RawRwLockRecursive> RawRwLockRecursive for RawPercpuRwSem<R> {
    #[inline]
    fn lock_shared_recursive(&self) {
        self.biased.lock_shared(|central| {
            central.0.lock_shared_recursive();
            true
        });
    }

    #[inline]
    fn try_lock_shared_recursive(&self) -> bool {
        self.biased.lock_shared(|central| central.0.try_lock_shared_recursive())
    }
}

// SAFETY: both unlock; a reader that is counted has nobody to be fair to, as a writer ends the bias before it waits.
unsafe impl<R: RawRwLockFair> RawRwLockFair for RawPercpuRwSem<R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self) {
        // SAFETY: the caller gives up a read hold.
        unsafe { self.biased.unlock_shared() }
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self) {
        // SAFETY: a writer holds the central lock.
        unsafe { self.central().unlock_exclusive_fair() }
    }
}

// SAFETY: the write hold becomes a read hold of the same lock, the central one, and nobody gets in between.
unsafe impl<R: RawRwLockDowngrade> RawRwLockDowngrade for RawPercpuRwSem<R> {
    #[inline]
    unsafe fn downgrade(&self) {
        // SAFETY: a writer holds the central lock.
        unsafe { self.central().downgrade() }
    }
}

#[cfg(feature = "std")]
// SAFETY: a lock that is acquired in time is acquired as without a limit.
unsafe impl<R> RawRwLockTimed for RawPercpuRwSem<R>
where
    R: RawRwLockTimed<Duration = Duration, Instant = std::time::Instant>,
{
    type Duration = Duration;
    type Instant = std::time::Instant;

    #[inline]
    fn try_lock_shared_for(&self, timeout: Duration) -> bool {
        self.biased.lock_shared(|central| central.0.try_lock_shared_for(timeout))
    }

    #[inline]
    fn try_lock_shared_until(&self, timeout: std::time::Instant) -> bool {
        self.biased.lock_shared(|central| central.0.try_lock_shared_until(timeout))
    }

    #[inline]
    fn try_lock_exclusive_for(&self, timeout: Duration) -> bool {
        self.biased.lock_exclusive(|central| central.0.try_lock_exclusive_for(timeout))
    }

    #[inline]
    fn try_lock_exclusive_until(&self, timeout: std::time::Instant) -> bool {
        self.biased.lock_exclusive(|central| central.0.try_lock_exclusive_until(timeout))
    }
}
