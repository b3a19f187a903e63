//! Hooks that run only when a lock is contended: they count the waits and time them. A lock that is free costs the same as without.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lockmeter_locks::RawMutex;
use lockmeter_locks::instrument::{Contended, Instrument, NoHoldStart};

static WAITS: AtomicU64 = AtomicU64::new(0);
static WAITED_NS: AtomicU64 = AtomicU64::new(0);

/// Counts the waits for all locks that have it.
struct CountWaits;

impl Instrument for CountWaits {
    type HoldStart = NoHoldStart;
    const INIT: Self = Self;

    fn named(_name: &'static str) -> Self {
        Self
    }

    fn acquired(&self, _contended: Contended, wait_ns: u64) {
        WAITS.fetch_add(1, Relaxed);
        WAITED_NS.fetch_add(wait_ns, Relaxed);
    }
}

fn main() {
    let counter: lock_api::Mutex<RawMutex<CountWaits>, u32> = lock_api::Mutex::new(0);
    let hold = || {
        let mut count = counter.lock();
        thread::sleep(Duration::from_millis(5));
        *count += 1;
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(hold);
        }
    });
    let waited = Duration::from_nanos(WAITED_NS.load(Relaxed));
    println!("{} waits took {waited:?} in all", WAITS.load(Relaxed));
    assert_eq!(counter.into_inner(), 4);
}
