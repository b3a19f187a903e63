//! Hooks: only for contended acquisitions, and in pairs.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lock_api::{Mutex, RwLock};
use lockmeter_locks::instrument::{Contended, Instrument, Kind, Mode, TimedHoldStart};
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawMutex, RawRwSem, RawSpin};

/// Counts what it is told.
#[derive(Default)]
struct Counting {
    begun: AtomicU64,
    acquired: AtomicU64,
    given_up: AtomicU64,
    released: AtomicU64,
    longest_wait_ns: AtomicU64,
    longest_hold_ns: AtomicU64,
}

static UNUSED: Counting = Counting {
    begun: AtomicU64::new(0),
    acquired: AtomicU64::new(0),
    given_up: AtomicU64::new(0),
    released: AtomicU64::new(0),
    longest_wait_ns: AtomicU64::new(0),
    longest_hold_ns: AtomicU64::new(0),
};

impl Instrument for &'static Counting {
    type HoldStart = TimedHoldStart;
    // Tests make their locks with counters of their own.
    const INIT: Self = &UNUSED;

    fn named(_name: &'static str) -> Self {
        Self::INIT
    }

    fn contended_begin(&self, _contended: Contended) {
        self.begun.fetch_add(1, Relaxed);
    }

    fn acquired(&self, _contended: Contended, wait_ns: u64) {
        self.acquired.fetch_add(1, Relaxed);
        self.longest_wait_ns.fetch_max(wait_ns, Relaxed);
    }

    fn given_up(&self, _contended: Contended, _wait_ns: u64) {
        self.given_up.fetch_add(1, Relaxed);
    }

    fn released(&self, contended: Contended, hold_ns: u64) {
        assert!(matches!(
            (contended.kind, contended.mode),
            (Kind::Mutex | Kind::Spin, Mode::Exclusive) | (Kind::RwSem, Mode::Read | Mode::Write)
        ));
        self.released.fetch_add(1, Relaxed);
        self.longest_hold_ns.fetch_max(hold_ns, Relaxed);
    }
}

fn counting() -> &'static Counting {
    Box::leak(Box::default())
}

fn counted(counting: &Counting) -> [u64; 4] {
    [&counting.begun, &counting.acquired, &counting.given_up, &counting.released].map(|count| count.load(Relaxed))
}

#[test]
fn an_uncontended_acquisition_calls_no_hook() {
    let hooks = counting();
    let mutex = Mutex::from_raw(RawMutex::with(hooks), ());
    drop(mutex.lock());
    drop(mutex.try_lock());
    let spin = Mutex::from_raw(RawSpin::with(hooks), ());
    drop(spin.lock());
    let rwsem = RwLock::from_raw(RawRwSem::<Standard, _>::with(hooks), ());
    drop(rwsem.write());
    drop((rwsem.read(), rwsem.read()));
    assert_eq!(counted(hooks), [0, 0, 0, 0]);
}

#[test]
fn a_contended_one_is_told_with_its_wait_and_its_hold() {
    let hooks = counting();
    let mutex = Mutex::from_raw(RawMutex::with(hooks), ());
    let held = mutex.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            let _held = mutex.lock();
            thread::sleep(Duration::from_millis(30));
        });
        while hooks.begun.load(Relaxed) == 0 {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(20));
        // Ours was not contended, though somebody waits for it.
        drop(held);
    });
    assert_eq!(counted(hooks), [1, 1, 0, 1]);
    assert!(hooks.longest_wait_ns.load(Relaxed) >= 20_000_000);
    assert!(hooks.longest_hold_ns.load(Relaxed) >= 30_000_000);
}

#[test]
fn a_wait_that_is_given_up_is_told_as_such() {
    let hooks = counting();
    let rwsem = RwLock::from_raw(RawRwSem::<Standard, _>::with(hooks), ());
    let held = rwsem.write();
    thread::scope(|scope| {
        scope.spawn(|| assert!(rwsem.try_read_for(Duration::from_millis(5)).is_none()));
    });
    drop(held);
    assert_eq!(counted(hooks), [1, 0, 1, 0]);
}

#[test]
fn hooks_come_in_pairs_whatever_happens() {
    let hooks = counting();
    let rwsem = RwLock::from_raw(RawRwSem::<Standard, _>::with(hooks), 0);
    let mutex = Mutex::from_raw(RawMutex::with(hooks), 0);
    thread::scope(|scope| {
        for thread in 0..6 {
            let (rwsem, mutex) = (&rwsem, &mutex);
            scope.spawn(move || {
                for round in 0..2_000 {
                    match (thread + round) % 5 {
                        0 => *rwsem.write() += 1,
                        1 => drop(lock_api::RwLockWriteGuard::downgrade(rwsem.write())),
                        2 => drop(rwsem.try_write_for(Duration::from_micros(50))),
                        3 => *mutex.lock() += 1,
                        _ => drop(rwsem.read()),
                    }
                }
            });
        }
    });
    let [begun, acquired, given_up, released] = counted(hooks);
    assert_eq!(begun, acquired + given_up);
    assert_eq!(acquired, released);
}
