//! Models of the mutex.

use std::time::Duration;

use super::{Arc, Guarded, all, check, check_three};
use crate::RawMutex;

struct Locked {
    mutex: RawMutex,
    guarded: Guarded,
}

fn locked() -> Arc<Locked> {
    Arc::new(Locked { mutex: RawMutex::new(), guarded: Guarded::new() })
}

fn add_one(locked: &Arc<Locked>, times: u32) -> Box<dyn FnOnce() + Send> {
    let locked = Arc::clone(locked);
    Box::new(move || {
        for _ in 0..times {
            locked.mutex.lock();
            locked.guarded.write();
            // SAFETY: locked above.
            unsafe { locked.mutex.unlock() };
        }
    })
}

/// Nobody waits any more: no mark is left that would make a release wake somebody for ever.
fn assert_usable(locked: &Locked, writes: u32) {
    locked.mutex.lock();
    assert_eq!(locked.guarded.read(), writes);
    // SAFETY: locked above.
    unsafe { locked.mutex.unlock() };
    assert!(!locked.mutex.is_locked());
}

#[test]
fn two_threads_exclude_each_other_and_both_come_through() {
    check(4, || {
        let locked = locked();
        all(vec![add_one(&locked, 1), add_one(&locked, 1)]);
        assert_usable(&locked, 2);
    });
}

#[test]
fn a_thread_that_comes_back_at_once_leaves_nobody_asleep() {
    check(3, || {
        let locked = locked();
        all(vec![add_one(&locked, 2), add_one(&locked, 1)]);
        assert_usable(&locked, 3);
    });
}

#[test]
fn three_threads_exclude_each_other_and_all_come_through() {
    check_three(|| {
        let locked = locked();
        all(vec![add_one(&locked, 1), add_one(&locked, 1), add_one(&locked, 1)]);
        assert_usable(&locked, 3);
    });
}

#[test]
fn a_timed_wait_that_ends_leaves_those_who_wait_on() {
    check_three(|| {
        let locked = locked();
        let timed = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                if locked.mutex.lock_for(Duration::ZERO).is_ok() {
                    let _seen = locked.guarded.read();
                    // SAFETY: locked above.
                    unsafe { locked.mutex.unlock() };
                }
            })
        };
        all(vec![add_one(&locked, 1), add_one(&locked, 1), timed]);
        assert_usable(&locked, 2);
    });
}

#[test]
fn a_fair_unlock_loses_nobody() {
    check_three(|| {
        let locked = locked();
        let fair = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                locked.mutex.lock();
                locked.guarded.write();
                // SAFETY: locked above.
                unsafe { locked.mutex.unlock_fair() };
            })
        };
        all(vec![fair, add_one(&locked, 1), add_one(&locked, 1)]);
        assert_usable(&locked, 3);
    });
}

#[test]
fn a_try_takes_a_free_lock_only() {
    check(3, || {
        let locked = locked();
        let tries = {
            let locked = Arc::clone(&locked);
            Box::new(move || {
                if locked.mutex.try_lock() {
                    locked.guarded.write();
                    // SAFETY: locked above.
                    unsafe { locked.mutex.unlock() };
                }
            })
        };
        all(vec![add_one(&locked, 2), tries]);
    });
}

/// It was woken for the first of the two releases in vain, and the second is its own.
#[cfg(shuttle)]
#[test]
fn a_woken_thread_that_waits_long_is_passed_once() {
    check(0, || {
        let locked = locked();
        locked.mutex.lock();
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let unlock = || unsafe { locked.mutex.unlock() };
        let passed =
            super::times_passed(add_one(&locked, 1), || locked.mutex.sleepers(), unlock, || locked.mutex.try_lock());
        assert!(passed <= 1, "a thread that waits was passed {passed} times");
        assert_usable(&locked, 1);
    });
}

#[cfg(shuttle)]
#[test]
fn many_threads_with_every_kind_of_wait_come_through() {
    check(0, || {
        let locked = locked();
        let mut bodies: Vec<Box<dyn FnOnce() + Send>> = (0..3).map(|_| add_one(&locked, 2)).collect();
        for _ in 0..2 {
            let locked = Arc::clone(&locked);
            bodies.push(Box::new(move || {
                for _ in 0..2 {
                    if locked.mutex.lock_for(Duration::ZERO).is_ok() {
                        let _seen = locked.guarded.read();
                        // SAFETY: locked above.
                        unsafe { locked.mutex.unlock_fair() };
                    }
                }
            }));
        }
        all(bodies);
        assert_usable(&locked, 6);
    });
}
