//! The locks of glibc, std and parking_lot.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

use crate::contender::Lock;

/// A pthread mutex of the default type.
pub struct GlibcMutex(Box<UnsafeCell<libc::pthread_mutex_t>>);

/// A pthread mutex that spins before it sleeps.
pub struct GlibcAdaptive(Box<UnsafeCell<libc::pthread_mutex_t>>);

/// A pthread rwlock of the default (reader-preferring) type.
pub struct GlibcRwLock(Box<UnsafeCell<libc::pthread_rwlock_t>>);

// SAFETY: pthread objects are made to be used by several threads; each stays where it is in its box.
unsafe impl Send for GlibcMutex {}
// SAFETY: as above.
unsafe impl Sync for GlibcMutex {}
// SAFETY: as above.
unsafe impl Send for GlibcAdaptive {}
// SAFETY: as above.
unsafe impl Sync for GlibcAdaptive {}
// SAFETY: as above.
unsafe impl Send for GlibcRwLock {}
// SAFETY: as above.
unsafe impl Sync for GlibcRwLock {}

fn pthread_mutex(kind: libc::c_int) -> Box<UnsafeCell<libc::pthread_mutex_t>> {
    let mutex = Box::new(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));
    let mut attributes = MaybeUninit::uninit();
    // SAFETY: attributes and mutex are of this frame, initialised in this order and used by nobody else yet.
    unsafe {
        libc::pthread_mutexattr_init(attributes.as_mut_ptr());
        libc::pthread_mutexattr_settype(attributes.as_mut_ptr(), kind);
        libc::pthread_mutex_init(mutex.get(), attributes.as_ptr());
        libc::pthread_mutexattr_destroy(attributes.as_mut_ptr());
    }
    mutex
}

fn pthread_exclusive(mutex: &UnsafeCell<libc::pthread_mutex_t>, section: impl FnOnce()) {
    // SAFETY: an initialised mutex that nobody moves.
    let locked = unsafe { libc::pthread_mutex_lock(mutex.get()) };
    assert_eq!(locked, 0, "pthread_mutex_lock");
    section();
    // SAFETY: locked above by this thread.
    unsafe { libc::pthread_mutex_unlock(mutex.get()) };
}

impl Lock for GlibcMutex {
    fn new() -> Self {
        Self(pthread_mutex(libc::PTHREAD_MUTEX_NORMAL))
    }
    fn exclusive(&self, section: impl FnOnce()) {
        pthread_exclusive(&self.0, section);
    }
}

impl Lock for GlibcAdaptive {
    fn new() -> Self {
        Self(pthread_mutex(libc::PTHREAD_MUTEX_ADAPTIVE_NP))
    }
    fn exclusive(&self, section: impl FnOnce()) {
        pthread_exclusive(&self.0, section);
    }
}

impl Lock for GlibcRwLock {
    fn new() -> Self {
        Self(Box::new(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER)))
    }
    fn exclusive(&self, section: impl FnOnce()) {
        // SAFETY: an initialised lock that nobody moves.
        let locked = unsafe { libc::pthread_rwlock_wrlock(self.0.get()) };
        assert_eq!(locked, 0, "pthread_rwlock_wrlock");
        section();
        // SAFETY: locked above by this thread.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
    fn shared(&self, section: impl FnOnce()) {
        // SAFETY: an initialised lock that nobody moves.
        let locked = unsafe { libc::pthread_rwlock_rdlock(self.0.get()) };
        assert_eq!(locked, 0, "pthread_rwlock_rdlock");
        section();
        // SAFETY: locked above by this thread.
        unsafe { libc::pthread_rwlock_unlock(self.0.get()) };
    }
}

impl Lock for std::sync::Mutex<()> {
    fn new() -> Self {
        Self::new(())
    }
    fn exclusive(&self, section: impl FnOnce()) {
        let _guard = self.lock();
        section();
    }
}

impl Lock for parking_lot::Mutex<()> {
    fn new() -> Self {
        Self::new(())
    }
    fn exclusive(&self, section: impl FnOnce()) {
        let _guard = self.lock();
        section();
    }
}

impl Lock for std::sync::RwLock<()> {
    fn new() -> Self {
        Self::new(())
    }
    fn exclusive(&self, section: impl FnOnce()) {
        let _guard = self.write();
        section();
    }
    fn shared(&self, section: impl FnOnce()) {
        let _guard = self.read();
        section();
    }
}

impl Lock for parking_lot::RwLock<()> {
    fn new() -> Self {
        Self::new(())
    }
    fn exclusive(&self, section: impl FnOnce()) {
        let _guard = self.write();
        section();
    }
    fn shared(&self, section: impl FnOnce()) {
        let _guard = self.read();
        section();
    }
}
