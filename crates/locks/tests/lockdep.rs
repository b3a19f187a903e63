//! The order of locks is checked whichever way they are taken.
#![cfg(feature = "lockdep")]

use std::cell::RefCell;
use std::thread;
use std::time::Duration;

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
