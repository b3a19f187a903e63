//! When this thread's contended read holds began: a lock has many readers at a time, and no room for all.

#[cfg(feature = "std")]
mod in_thread {
    use std::cell::{Cell, RefCell};

    /// Contended read holds of one thread at the same time; those beyond are not timed.
    const HOLDS: usize = 16;

    std::thread_local! {
        static COUNT: Cell<usize> = const { Cell::new(0) };
        /// The lock and the beginning.
        static HELD: RefCell<[(usize, u64); HOLDS]> = const { RefCell::new([(0, 0); HOLDS]) };
    }

    pub(in super::super) fn begin(lock: usize, now_ns: u64) {
        let count = COUNT.get();
        HELD.with_borrow_mut(|held| {
            if let Some(hold) = held.get_mut(count) {
                *hold = (lock, now_ns);
                COUNT.set(count + 1);
            }
        });
    }

    #[inline]
    pub(in super::super) fn end(lock: usize) -> Option<u64> {
        let count = COUNT.get();
        if count == 0 { None } else { take(lock, count) }
    }

    #[cold]
    fn take(lock: usize, count: usize) -> Option<u64> {
        HELD.with_borrow_mut(|held| {
            let at = held[..count].iter().rposition(|&(of, _)| of == lock)?;
            let (_, since) = held[at];
            held[at] = held[count - 1];
            COUNT.set(count - 1);
            Some(since)
        })
    }
}

/// Without thread-local storage read holds are not timed.
#[cfg(not(feature = "std"))]
mod in_thread {
    pub(in super::super) fn begin(_lock: usize, _now_ns: u64) {}

    pub(in super::super) fn end(_lock: usize) -> Option<u64> {
        None
    }
}

pub(super) use in_thread::{begin, end};
