//! The order of locks is checked whichever way they are taken.
#![cfg(feature = "lockdep")]

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use lockmeter_locks::instrument::{CallSite, Contended, Instrument, TimedHoldStart};
use lockmeter_locks::lockdep::{OnReport, Report, on_report};
use lockmeter_locks::{Mutex, RawMutex, RawRwSem, RawSpin};

std::thread_local! {
    /// Tests run beside each other; each sees what its own thread did.
    static REPORTS: RefCell<Vec<Report>> = const { RefCell::new(Vec::new()) };
}

/// What `body` is reported for.
fn reports_of(body: impl FnOnce()) -> Vec<Report> {
    on_report(OnReport::Call(|report| REPORTS.with_borrow_mut(|reports| reports.push(report.clone()))));
    body();
    REPORTS.take()
}

/// One lock inside another: `outer` and `inner` lock and unlock.
fn nest(outer: &RawMutex, inner: &RawMutex) {
    outer.lock();
    inner.lock();
    // SAFETY: locked above.
    unsafe {
        inner.unlock();
        outer.unlock();
    }
}

#[test]
fn two_orders_of_two_locks_are_reported_with_both_chains_and_without_a_deadlock() {
    let (first, second): (RawMutex, RawMutex) =
        (RawMutex::named("two orders: first"), RawMutex::named("two orders: second"));
    let reports = reports_of(|| {
        nest(&first, &second);
        nest(&first, &second);
        nest(&second, &first);
        nest(&second, &first);
    });
    assert_eq!(reports.len(), 1, "{reports:?}");
    let said = reports[0].to_string();
    assert!(said.starts_with("possible deadlock: this thread takes two orders: first"), "{said}");
    assert!(
        said.contains("but the other way round\n  two orders: second was taken\n    at crates/locks/tests/lockdep.rs"),
        "{said}"
    );
    assert_eq!(reports[0].before.len(), 1);
}

#[test]
fn a_circle_of_three_is_found_across_threads() {
    let locks: [RawMutex; 3] = ["circle: a", "circle: b", "circle: c"].map(RawMutex::named);
    let [a, b, c] = &locks;
    thread::scope(|scope| {
        scope.spawn(|| nest(a, b)).join().unwrap();
        scope.spawn(|| nest(b, c)).join().unwrap();
    });
    let reports = reports_of(|| nest(c, a));
    assert_eq!(reports.len(), 1);
    let chain: Vec<_> = reports[0].before.iter().map(|step| (step.held.as_str(), step.taken.as_str())).collect();
    assert_eq!(chain, [("circle: a", "circle: b"), ("circle: b", "circle: c")]);
}

#[test]
fn locks_made_at_one_place_are_one_class_unless_nested_by_subclass() {
    let locks: Vec<RawMutex> = (0..2).map(|_| RawMutex::new()).collect();
    let nested = reports_of(|| {
        locks[0].lock();
        locks[1].lock_nested(1);
        // SAFETY: locked above.
        unsafe {
            locks[1].unlock();
            locks[0].unlock();
        }
    });
    assert!(nested.is_empty(), "{nested:?}");
    let same = reports_of(|| nest(&locks[0], &locks[1]));
    assert_eq!(same.len(), 1);
    assert!(same[0].to_string().contains("lock made at crates/locks/tests/lockdep.rs"), "{}", same[0]);
}

#[test]
fn a_try_waits_for_nobody_but_others_wait_after_it() {
    let (first, second): (RawMutex, RawMutex) = (RawMutex::named("try: first"), RawMutex::named("try: second"));
    let reports = reports_of(|| {
        nest(&first, &second);
        // A try against the order is no danger.
        second.lock();
        assert!(first.try_lock());
        // SAFETY: locked above.
        unsafe {
            first.unlock();
            second.unlock();
        }
    });
    assert!(reports.is_empty(), "{reports:?}");
    let reports = reports_of(|| {
        assert!(second.try_lock());
        first.lock();
        // SAFETY: locked above.
        unsafe {
            first.unlock();
            second.unlock();
        }
    });
    assert_eq!(reports.len(), 1, "a lock after one that a try took");
}

#[test]
fn every_kind_and_path_is_checked() {
    let mutex: RawMutex = RawMutex::named("kinds: mutex");
    let spin: RawSpin = RawSpin::named("kinds: spin");
    let rwsem: RawRwSem = RawRwSem::named("kinds: rwsem");
    let reports = reports_of(|| {
        // The slow path: somebody else holds it.
        thread::scope(|scope| {
            mutex.lock();
            scope.spawn(|| {
                mutex.lock();
                spin.lock();
                rwsem.read();
                // SAFETY: locked above.
                unsafe {
                    rwsem.unlock_read();
                    spin.unlock();
                    mutex.unlock();
                }
            });
            thread::sleep(Duration::from_millis(20));
            // SAFETY: locked above.
            unsafe { mutex.unlock() };
        });
        assert!(rwsem.write_for(Duration::from_millis(1)).is_ok());
        spin.lock();
        // SAFETY: locked above.
        unsafe {
            spin.unlock();
            rwsem.unlock_write();
        }
        spin.lock();
        assert!(mutex.lock_interruptible().is_ok());
        // SAFETY: locked above.
        unsafe {
            mutex.unlock();
            spin.unlock();
        }
    });
    let now: Vec<_> = reports.iter().map(|report| (report.now.held.as_str(), report.now.taken.as_str())).collect();
    assert_eq!(now, [("kinds: rwsem", "kinds: spin"), ("kinds: spin", "kinds: mutex")]);
}

#[test]
fn a_wait_that_is_given_up_is_not_held_afterwards() {
    let (first, second): (RawMutex, RawMutex) =
        (RawMutex::named("given up: first"), RawMutex::named("given up: second"));
    let reports = reports_of(|| {
        nest(&first, &second);
        thread::scope(|scope| {
            second.lock();
            scope
                .spawn(|| {
                    let reports = reports_of(|| {
                        assert!(second.lock_for(Duration::from_millis(1)).is_err());
                        first.lock();
                        // SAFETY: locked above.
                        unsafe { first.unlock() };
                    });
                    assert!(reports.is_empty(), "{reports:?}");
                })
                .join()
                .unwrap();
            // SAFETY: locked above.
            unsafe { second.unlock() };
        });
    });
    assert!(reports.is_empty(), "{reports:?}");
}

#[test]
fn locks_without_a_place_are_classes_of_their_own_and_leave_nothing_behind() {
    let reports = reports_of(|| {
        for _ in 0..100 {
            // Boxes that come to lie where others lay.
            let (one, other) = (Box::new(Mutex::new(())), Box::new(Mutex::new(())));
            let held = one.lock();
            drop(other.lock());
            drop(held);
        }
    });
    assert!(reports.is_empty(), "{reports:?}");
}

/// Counts waits: of all locks that carry it, or of one call.
#[derive(Debug, Default)]
struct Counted {
    contended: AtomicU32,
    acquired: AtomicU32,
    released: AtomicU32,
}

static OF_LOCKS: Counted =
    Counted { contended: AtomicU32::new(0), acquired: AtomicU32::new(0), released: AtomicU32::new(0) };

impl Counted {
    fn counts(&self) -> [u32; 3] {
        [&self.contended, &self.acquired, &self.released].map(|count| count.load(Relaxed))
    }
}

impl CallSite for Counted {
    fn contended_begin(&self, _: Contended) {
        self.contended.fetch_add(1, Relaxed);
    }

    fn acquired(&self, _: Contended, _: u64) {
        self.acquired.fetch_add(1, Relaxed);
    }
}

/// The hooks of locks: see [`OF_LOCKS`].
struct OfLock;

impl Instrument for OfLock {
    type HoldStart = TimedHoldStart;
    const INIT: Self = OfLock;

    fn named(_: &'static str) -> Self {
        OfLock
    }

    fn contended_begin(&self, _: Contended) {
        OF_LOCKS.contended.fetch_add(1, Relaxed);
    }

    fn acquired(&self, _: Contended, _: u64) {
        OF_LOCKS.acquired.fetch_add(1, Relaxed);
    }

    fn released(&self, _: Contended, _: u64) {
        OF_LOCKS.released.fetch_add(1, Relaxed);
    }
}

/// Makes sure that a contended acquisition with hooks on the lock and on the call is still checked for its order, under contention in
/// both orders, and that each of the three sees it once.
#[test]
fn hooks_of_lock_and_call_and_the_order_of_locks_are_all_kept_under_contention() {
    let (first, second): (RawMutex<OfLock>, RawMutex<OfLock>) =
        (RawMutex::named("hooks and order: first"), RawMutex::named("hooks and order: second"));
    let (outer_site, inner_site) = (Counted::default(), Counted::default());
    // Another thread has both locks, and releases each when this one waits for it: so both acquisitions are contended, in either order.
    let contended_nest = |outer: &RawMutex<OfLock>, inner: &RawMutex<OfLock>| {
        let waits = |site: &Counted, before: u32| {
            while site.contended.load(Relaxed) == before {
                thread::yield_now();
            }
        };
        let (outer_waits, inner_waits) = (outer_site.counts()[0], inner_site.counts()[0]);
        let both_are_held = std::sync::Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                // By tries, which no order comes before: that of this thread is not judged.
                assert!(outer.try_lock() && inner.try_lock());
                both_are_held.wait();
                waits(&outer_site, outer_waits);
                // SAFETY: locked above.
                unsafe { outer.unlock() };
                waits(&inner_site, inner_waits);
                // SAFETY: locked above.
                unsafe { inner.unlock() };
            });
            both_are_held.wait();
            outer.lock_at(&outer_site);
            inner.lock_at(&inner_site);
            // SAFETY: locked above.
            unsafe {
                inner.unlock();
                outer.unlock();
            }
        });
    };
    let in_order = reports_of(|| contended_nest(&first, &second));
    assert!(in_order.is_empty(), "{in_order:?}");
    let reports = reports_of(|| contended_nest(&second, &first));
    assert_eq!(reports.len(), 1, "{reports:?}");
    let said = reports[0].to_string();
    assert!(said.starts_with("possible deadlock: this thread takes hooks and order: first"), "{said}");
    assert!(said.contains("\n    at crates/locks/tests/lockdep.rs"), "the caller of lock_at is not named: {said}");
    assert_eq!((outer_site.counts(), inner_site.counts()), ([2, 2, 0], [2, 2, 0]));
    assert_eq!(OF_LOCKS.counts(), [4, 4, 4]);
}

#[test]
fn calls_with_hooks_are_checked_whatever_they_lock() {
    let site = Counted::default();
    let mutex: RawMutex = RawMutex::named("calls: mutex");
    let spin: RawSpin = RawSpin::named("calls: spin");
    let (read, written): (RawRwSem, RawRwSem) = (RawRwSem::named("calls: read"), RawRwSem::named("calls: written"));
    let take = || {
        spin.lock_at(&site);
        read.read_at(&site);
        written.write_at(&site);
    };
    let release = || {
        // SAFETY: `take` has locked them.
        unsafe {
            written.unlock_write();
            read.unlock_read();
            spin.unlock();
        }
    };
    let reports = reports_of(|| {
        mutex.lock_at(&site);
        take();
        release();
        // SAFETY: locked above.
        unsafe { mutex.unlock() };
        take();
        mutex.lock();
        // SAFETY: locked above.
        unsafe { mutex.unlock() };
        release();
    });
    let held: Vec<_> = reports.iter().map(|report| (report.now.held.as_str(), report.now.taken.as_str())).collect();
    let taken = "calls: mutex";
    assert_eq!(held, [("calls: spin", taken), ("calls: read", taken), ("calls: written", taken)]);
}
