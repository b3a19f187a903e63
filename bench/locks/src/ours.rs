//! Our locks, through `lock_api`'s raw traits.

use lock_api::{RawMutex, RawRwLock};

use crate::contender::Lock;

/// A lock without readers.
pub struct Alone<R>(R);

/// A lock with readers.
pub struct Shared<R>(R);

impl<R: RawMutex + Send + Sync + 'static> Lock for Alone<R> {
    fn new() -> Self {
        Self(R::INIT)
    }
    #[inline(always)]
    fn exclusive(&self, section: impl FnOnce()) {
        self.0.lock();
        section();
        // SAFETY: locked above by this thread.
        unsafe { self.0.unlock() };
    }
}

impl<R: RawRwLock + Send + Sync + 'static> Lock for Shared<R> {
    fn new() -> Self {
        Self(R::INIT)
    }
    #[inline(always)]
    fn exclusive(&self, section: impl FnOnce()) {
        self.0.lock_exclusive();
        section();
        // SAFETY: locked above by this thread.
        unsafe { self.0.unlock_exclusive() };
    }
    #[inline(always)]
    fn shared(&self, section: impl FnOnce()) {
        self.0.lock_shared();
        section();
        // SAFETY: locked above by this thread.
        unsafe { self.0.unlock_shared() };
    }
}
