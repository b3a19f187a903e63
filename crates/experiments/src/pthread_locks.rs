//! libc's locks behind `lock_api`: what the experiments compare with, and what a preloaded meter sees.

use std::cell::UnsafeCell;
use std::io;

use lock_api::{GuardNoSend, RawMutex, RawRwLock};

/// `pthread_mutex_t`, of the default kind.
pub struct PthreadMutex(UnsafeCell<libc::pthread_mutex_t>);

impl PthreadMutex {
    /// Makes it one that other processes may use, too, if it lies in memory shared with them. Nobody uses it yet.
    pub fn share(&self) -> io::Result<()> {
        // SAFETY: an attribute of this function's own; a mutex that is unlocked, and is initialised anew where it lies.
        result(unsafe {
            let mut shared: libc::pthread_mutexattr_t = std::mem::zeroed();
            libc::pthread_mutexattr_init(&raw mut shared);
            libc::pthread_mutexattr_setpshared(&raw mut shared, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_mutex_destroy(self.0.get());
            let failed = libc::pthread_mutex_init(self.0.get(), &raw const shared);
            libc::pthread_mutexattr_destroy(&raw mut shared);
            failed
        })
    }
}

fn result(failed: libc::c_int) -> io::Result<()> {
    if failed == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(failed)) }
}

// SAFETY: libc's mutex is made to be used from many threads at once.
unsafe impl Send for PthreadMutex {}
// SAFETY: as above.
unsafe impl Sync for PthreadMutex {}

// SAFETY: libc's mutex excludes; `unlock` is only called by the one that holds it, as the trait asks.
unsafe impl RawMutex for PthreadMutex {
    const INIT: Self = Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        // SAFETY: an initialised mutex. Locking it twice in one thread hangs, as it does with every mutex here.
        let failed = unsafe { libc::pthread_mutex_lock(self.0.get()) };
        debug_assert_eq!(failed, 0);
    }

    fn try_lock(&self) -> bool {
        // SAFETY: an initialised mutex.
        unsafe { libc::pthread_mutex_trylock(self.0.get()) == 0 }
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// `pthread_rwlock_t`, which prefers readers.
pub struct PthreadRwLock(UnsafeCell<libc::pthread_rwlock_t>);

impl PthreadRwLock {
    /// Makes it one that other processes may use, too, if it lies in memory shared with them. Nobody uses it yet.
    pub fn share(&self) -> io::Result<()> {
        // SAFETY: an attribute of this function's own; a lock that is unlocked, and is initialised anew where it lies.
        result(unsafe {
            let mut shared: libc::pthread_rwlockattr_t = std::mem::zeroed();
            libc::pthread_rwlockattr_init(&raw mut shared);
            libc::pthread_rwlockattr_setpshared(&raw mut shared, libc::PTHREAD_PROCESS_SHARED);
            libc::pthread_rwlock_destroy(self.0.get());
            let failed = libc::pthread_rwlock_init(self.0.get(), &raw const shared);
            libc::pthread_rwlockattr_destroy(&raw mut shared);
            failed
        })
    }
}

// SAFETY: libc's lock is made to be used from many threads at once.
unsafe impl Send for PthreadRwLock {}
// SAFETY: as above.
unsafe impl Sync for PthreadRwLock {}

// SAFETY: libc's lock lets in readers together or one writer; it is unlocked only by those who hold it, as the trait asks.
unsafe impl RawRwLock for PthreadRwLock {
    const INIT: Self = Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        // SAFETY: an initialised lock.
        let failed = unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        debug_assert_eq!(failed, 0);
    }

    fn try_lock_shared(&self) -> bool {
        // SAFETY: an initialised lock.
        unsafe { libc::pthread_rwlock_tryrdlock(self.0.get()) == 0 }
    }

    unsafe fn unlock_shared(&self) {
        // SAFETY: the caller holds it.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }

    fn lock_exclusive(&self) {
        // SAFETY: an initialised lock.
        let failed = unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        debug_assert_eq!(failed, 0);
    }

    fn try_lock_exclusive(&self) -> bool {
        // SAFETY: an initialised lock.
        unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) == 0 }
    }

    unsafe fn unlock_exclusive(&self) {
        // SAFETY: the caller holds it.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}
