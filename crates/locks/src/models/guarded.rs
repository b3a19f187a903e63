//! Something that a lock guards, and that notices when it does not.

use std::sync::atomic::{AtomicI32, Ordering::SeqCst};

/// A number that one writer or many readers may use at a time.
pub(super) struct Guarded {
    /// Readers inside, or -1 for a writer. Unknown to the model checker: costs no interleavings.
    inside: AtomicI32,
    /// Loom notices accesses that are not ordered.
    #[cfg(loom)]
    number: loom::cell::UnsafeCell<u32>,
    #[cfg(shuttle)]
    number: std::cell::UnsafeCell<u32>,
}

// SAFETY: the one that uses the number says by `unsafe` that a lock lets it.
unsafe impl Sync for Guarded {}
// SAFETY: as above.
unsafe impl Send for Guarded {}

impl Guarded {
    pub(super) fn new() -> Self {
        Guarded {
            inside: AtomicI32::new(0),
            #[cfg(loom)]
            number: loom::cell::UnsafeCell::new(0),
            #[cfg(shuttle)]
            number: std::cell::UnsafeCell::new(0),
        }
    }

    /// Adds one.
    pub(super) fn write(&self) {
        assert_eq!(self.inside.swap(-1, SeqCst), 0, "a writer came in while somebody was inside");
        #[cfg(loom)]
        // SAFETY: loom fails the model if this is not exclusive.
        self.number.with_mut(|number| unsafe { *number += 1 });
        #[cfg(shuttle)]
        {
            shuttle::thread::yield_now();
            // SAFETY: exclusive, as was just checked.
            unsafe { *self.number.get() += 1 };
        }
        assert_eq!(self.inside.swap(0, SeqCst), -1, "somebody came in while a writer was inside");
    }

    /// The number.
    pub(super) fn read(&self) -> u32 {
        assert!(self.inside.fetch_add(1, SeqCst) >= 0, "a reader came in while a writer was inside");
        #[cfg(loom)]
        // SAFETY: loom fails the model if somebody writes meanwhile.
        let number = self.number.with(|number| unsafe { *number });
        #[cfg(shuttle)]
        let number = {
            shuttle::thread::yield_now();
            // SAFETY: only readers are inside, as was just checked.
            unsafe { *self.number.get() }
        };
        assert!(self.inside.fetch_sub(1, SeqCst) > 0, "a writer came in while a reader was inside");
        number
    }
}
