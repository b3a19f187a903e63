//! `absl::Mutex` through the shim in `abseil.cc`.

use std::cell::UnsafeCell;
use std::ffi::c_void;

use crate::contender::Lock;

unsafe extern "C" {
    fn bench_abseil_size() -> usize;
    fn bench_abseil_init(at: *mut c_void);
    fn bench_abseil_lock(mutex: *mut c_void);
    fn bench_abseil_unlock(mutex: *mut c_void);
    fn bench_abseil_read_lock(mutex: *mut c_void);
    fn bench_abseil_read_unlock(mutex: *mut c_void);
}

/// Room for an `absl::Mutex`, which is one word.
pub struct Mutex(UnsafeCell<[usize; 2]>);

// SAFETY: a mutex is made to be used by several threads.
unsafe impl Send for Mutex {}
// SAFETY: as above.
unsafe impl Sync for Mutex {}

impl Mutex {
    fn at(&self) -> *mut c_void {
        self.0.get().cast()
    }
}

impl Lock for Mutex {
    fn new() -> Self {
        let mutex = Self(UnsafeCell::new([0; 2]));
        // SAFETY: asks for a size.
        assert!(unsafe { bench_abseil_size() } <= size_of_val(&mutex), "absl::Mutex has grown");
        // SAFETY: room enough, checked above. A mutex that nobody has used yet is constant data and may be moved.
        unsafe { bench_abseil_init(mutex.at()) };
        mutex
    }
    fn exclusive(&self, section: impl FnOnce()) {
        // SAFETY: initialised in `new`; stays where it is while it is shared.
        unsafe { bench_abseil_lock(self.at()) };
        section();
        // SAFETY: locked above by this thread.
        unsafe { bench_abseil_unlock(self.at()) };
    }
    fn shared(&self, section: impl FnOnce()) {
        // SAFETY: initialised in `new`; stays where it is while it is shared.
        unsafe { bench_abseil_read_lock(self.at()) };
        section();
        // SAFETY: locked above by this thread.
        unsafe { bench_abseil_read_unlock(self.at()) };
    }
}
