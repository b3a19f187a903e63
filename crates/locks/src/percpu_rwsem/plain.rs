//! A central lock for checks of the bias alone: a counter under a mutex, so that a model checker has little to go through.

#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};
#[cfg(not(any(loom, shuttle)))]
use std::sync::{Condvar, Mutex};

use super::bias::Central;

#[derive(Debug)]
pub(super) struct Plain {
    /// Readers; -1: a writer.
    holders: Mutex<i32>,
    changed: Condvar,
}

impl Plain {
    pub(super) fn new() -> Self {
        Plain { holders: Mutex::new(0), changed: Condvar::new() }
    }

    /// # Safety
    ///
    /// The caller has it alone.
    pub(super) unsafe fn unlock_exclusive(&self) {
        let mut holders = self.holders.lock().unwrap();
        assert_eq!(*holders, -1);
        *holders = 0;
        drop(holders);
        self.changed.notify_all();
    }

    pub(super) fn is_free(&self) -> bool {
        *self.holders.lock().unwrap() == 0
    }

    /// Waits for writers.
    pub(super) fn lock_shared(&self) -> bool {
        let mut holders = self.holders.lock().unwrap();
        while *holders < 0 {
            holders = self.changed.wait(holders).unwrap();
        }
        *holders += 1;
        true
    }

    /// Waits for everybody.
    pub(super) fn lock_exclusive(&self) -> bool {
        let mut holders = self.holders.lock().unwrap();
        while *holders != 0 {
            holders = self.changed.wait(holders).unwrap();
        }
        *holders = -1;
        true
    }
}

impl Central for Plain {
    fn try_lock_shared(&self) -> bool {
        let mut holders = self.holders.lock().unwrap();
        let free = *holders >= 0;
        if free {
            *holders += 1;
        }
        free
    }

    unsafe fn unlock_shared(&self) {
        let mut holders = self.holders.lock().unwrap();
        assert!(*holders > 0, "a read hold that nobody has was released");
        *holders -= 1;
        drop(holders);
        self.changed.notify_all();
    }

    fn try_lock_exclusive(&self) -> bool {
        let mut holders = self.holders.lock().unwrap();
        let free = *holders == 0;
        if free {
            *holders = -1;
        }
        free
    }
}
