//! Hooks: only for contended acquisitions, and in pairs.

use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lock_api::{Mutex, RawRwLock, RwLock};
use lockmeter_locks::instrument::{CallSite, Contended, Instrument, Kind, Mode, TimedHoldStart};
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, RawSpin};

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

/// What a call site is told, and what its lock's hooks had been told by then.
struct Site {
    of_lock: &'static Counting,
    told: StdMutex<Vec<(&'static str, Mode, [u64; 4])>>,
}

impl Site {
    fn beside(of_lock: &'static Counting) -> Self {
        Site { of_lock, told: StdMutex::default() }
    }

    fn note(&self, what: &'static str, contended: Contended) {
        self.told.lock().unwrap().push((what, contended.mode, counted(self.of_lock)));
    }

    fn count(&self) -> usize {
        self.told.lock().unwrap().len()
    }
}

impl CallSite for Site {
    fn contended_begin(&self, contended: Contended) {
        self.note("contended", contended);
    }

    fn acquired(&self, contended: Contended, wait_ns: u64) {
        assert!(wait_ns > 0);
        self.note("acquired", contended);
    }
}

/// A way to take a lock with hooks for the call, and to release it.
trait TakenAt: Sync {
    fn hold(&self);
    fn take_at(&self, site: &Site);
    /// As `take_at`, without hooks for the call.
    fn take(&self);
    fn release(&self);
}

macro_rules! taken_at {
    ($lock:ty, $hold:ident, $at:ident, $take:ident, $release:ident) => {
        impl TakenAt for $lock {
            fn hold(&self) {
                self.$hold();
            }
            fn take_at(&self, site: &Site) {
                self.$at(site);
            }
            fn take(&self) {
                self.$take();
            }
            fn release(&self) {
                // SAFETY: the tests release what they hold.
                unsafe { self.$release() }
            }
        }
    };
}

type Hooked = &'static Counting;
struct Read<L>(L);
taken_at!(RawMutex<Hooked>, lock, lock_at, lock, unlock);
taken_at!(RawSpin<Hooked>, lock, lock_at, lock, unlock);
taken_at!(RawRwSem<Standard, Hooked>, write, write_at, write, unlock_write);
taken_at!(RawPercpuRwSem<RawRwSem<Standard, Hooked>>, lock_exclusive, write_at, lock_exclusive, unlock_exclusive);

impl TakenAt for Read<RawRwSem<Standard, Hooked>> {
    fn hold(&self) {
        self.0.write();
    }
    fn take_at(&self, site: &Site) {
        self.0.read_at(site);
    }
    fn take(&self) {
        self.0.read();
    }
    fn release(&self) {
        // SAFETY: the tests release what they hold, for writing or reading.
        unsafe { if self.0.is_locked_for_writing() { self.0.unlock_write() } else { self.0.unlock_read() } }
    }
}

impl TakenAt for Read<RawPercpuRwSem<RawRwSem<Standard, Hooked>>> {
    fn hold(&self) {
        self.0.lock_exclusive();
    }
    fn take_at(&self, site: &Site) {
        self.0.read_at(site);
    }
    fn take(&self) {
        self.0.lock_shared();
    }
    fn release(&self) {
        // SAFETY: as above.
        unsafe { if self.0.is_locked_exclusive() { self.0.unlock_exclusive() } else { self.0.unlock_shared() } }
    }
}

/// A thread's first acquisition, one that waits with hooks for the call, and one that waits without.
fn hooks_of_calls(lock: impl TakenAt, of_lock: Hooked, mode: Mode) {
    let (first, waiting) = (Site::beside(of_lock), Site::beside(of_lock));
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.take_at(&first);
            lock.release();
        });
    });
    assert_eq!((first.count(), counted(of_lock)), (0, [0; 4]), "nobody else had the lock");
    for at_call in [true, false] {
        lock.hold();
        let begun = of_lock.begun.load(Relaxed);
        thread::scope(|scope| {
            scope.spawn(|| {
                if at_call {
                    lock.take_at(&waiting)
                } else {
                    lock.take()
                }
                lock.release();
            });
            let waits = || if at_call { waiting.count() > 0 } else { of_lock.begun.load(Relaxed) > begun };
            while !waits() {
                thread::yield_now();
            }
            lock.release();
        });
    }
    // The hooks of the call begin before those of the lock, and end after them.
    let told = waiting.told.into_inner().unwrap();
    assert_eq!(told, [("contended", mode, [0, 0, 0, 0]), ("acquired", mode, [1, 1, 0, 0])]);
    assert_eq!(counted(of_lock), [2, 2, 0, 2]);
}

#[test]
fn hooks_of_a_call_run_for_its_waits_alone_around_those_of_the_lock() {
    let with = |of_lock| (RawRwSem::<Standard, _>::with(of_lock), of_lock);
    let of_lock = counting();
    hooks_of_calls(RawMutex::with(of_lock), of_lock, Mode::Exclusive);
    let of_lock = counting();
    hooks_of_calls(RawSpin::with(of_lock), of_lock, Mode::Exclusive);
    let (lock, of_lock) = with(counting());
    hooks_of_calls(lock, of_lock, Mode::Write);
    let (lock, of_lock) = with(counting());
    hooks_of_calls(Read(lock), of_lock, Mode::Read);
    let (lock, of_lock) = with(counting());
    hooks_of_calls(RawPercpuRwSem::over(lock), of_lock, Mode::Write);
    let (lock, of_lock) = with(counting());
    hooks_of_calls(Read(RawPercpuRwSem::over(lock)), of_lock, Mode::Read);
}

#[test]
fn a_lock_without_hooks_tells_those_of_a_call() {
    let (mutex, site) = (RawMutex::new(), Site::beside(counting()));
    mutex.lock();
    thread::scope(|scope| {
        scope.spawn(|| {
            mutex.lock_at(&site);
            // SAFETY: locked above.
            unsafe { mutex.unlock() };
        });
        while site.count() == 0 {
            thread::yield_now();
        }
        // SAFETY: locked above.
        unsafe { mutex.unlock() };
    });
    assert_eq!(site.count(), 2);
}
