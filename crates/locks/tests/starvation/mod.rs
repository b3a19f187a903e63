//! Whether a thread starves that waits for a lock while others take it all the time.
//!
//! A wait is measured by the holds of the others that begin meanwhile, and not by the clock: where a busy machine lets nobody run,
//! the others take nothing either.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// Threads that take the lock all the time.
const RIVALS: usize = 4;

/// How often the calling thread waits.
const WAITS: usize = 20;

/// A thread that others pass this often in one wait starves. Up to 4,600 were seen, with and without eight busy processes beside two CPUs:
/// a lock is handed over to a thread that has waited for a millisecond.
const STARVED: u64 = 50_000;

/// The holds that rivals begin.
pub struct Holds {
    begun: AtomicU64,
    /// When the wait began.
    before: AtomicU64,
    /// Rivals stop here, so that a waiter that starves gets the lock in the end, and the test fails instead of hanging.
    limit: AtomicU64,
    over: AtomicBool,
}

impl Holds {
    /// A rival calls this once it has the lock.
    pub fn begin(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// Whether rivals go on.
    pub fn go_on(&self) -> bool {
        !self.over.load(Relaxed) && self.begun.load(Relaxed) < self.limit.load(Relaxed)
    }

    /// How many of them began during the wait: the waiter asks once it has the lock.
    pub fn passed(&self) -> u64 {
        self.begun.load(Relaxed) - self.before.load(Relaxed)
    }
}

/// A few microseconds, so that a wait of the scheduler's making is worth few holds.
pub fn keep_it_a_while() {
    (0..200).for_each(|_| std::hint::spin_loop());
}

/// Makes sure that rivals begin fewer than [`STARVED`] holds during each wait. `rival` takes the lock again and again as long as
/// [`Holds::go_on`] says; `acquire` takes it once, says what [`Holds::passed`] is then, and releases it.
pub fn assert_none(rival: impl Fn(&Holds) + Sync, acquire: impl Fn(&Holds) -> u64) {
    let holds = Holds {
        begun: AtomicU64::new(0),
        before: AtomicU64::new(0),
        limit: AtomicU64::new(u64::MAX),
        over: AtomicBool::new(false),
    };
    let passed = thread::scope(|scope| {
        for _ in 0..RIVALS {
            scope.spawn(|| rival(&holds));
        }
        let mut passed = Vec::new();
        // Rivals that have stopped do not begin again.
        while passed.len() < WAITS && passed.iter().all(|passed| *passed < STARVED) {
            // A thread that slept finds the rivals at it; a busy machine may not have let any of them run meanwhile.
            let slept_at = holds.begun.load(Relaxed);
            thread::sleep(Duration::from_millis(2));
            while holds.begun.load(Relaxed) == slept_at {
                thread::yield_now();
            }
            let before = holds.begun.load(Relaxed);
            holds.before.store(before, Relaxed);
            holds.limit.store(before + STARVED, Relaxed);
            passed.push(acquire(&holds));
            holds.limit.store(u64::MAX, Relaxed);
        }
        holds.over.store(true, Relaxed);
        passed
    });
    assert!(
        passed.iter().all(|passed| *passed < STARVED),
        "a thread starves: so often others took the lock during each of its waits: {passed:?}"
    );
}
