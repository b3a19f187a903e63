//! The mutex on the real machine.

mod passing;
mod sleepers;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockmeter_locks::{Mutex, RawMutex};
use sleepers::Sleeper;

#[test]
fn counts_every_increment_of_many_threads() {
    // More threads than CPUs, so that holders are preempted and waiters sleep.
    let counter = Arc::new(Mutex::new(0_u64));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let counter = Arc::clone(&counter);
            thread::spawn(move || (0..50_000).for_each(|_| *counter.lock() += 1))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(*counter.lock(), 400_000);
}

#[test]
fn a_timed_lock_gives_up_in_time_and_leaves_no_trace() {
    let mutex = Mutex::new(());
    let held = mutex.lock();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let begun = Instant::now();
                assert!(mutex.try_lock_for(Duration::from_millis(20)).is_none());
                assert!(begun.elapsed() >= Duration::from_millis(20));
            });
        }
    });
    drop(held);
    // With a trace of the waiters in the state, neither would be on the fast path, and the second would wake somebody.
    drop(mutex.try_lock().expect("free"));
    assert!(!mutex.is_locked());
}

/// Who tries to lock it right after a fair unlock finds that the waiter had it first, or that it is kept for the waiter, however long
/// that takes to get a CPU.
#[test]
fn a_fair_unlock_hands_over_to_a_sleeping_waiter() {
    const ROUNDS: usize = 100;
    for round in 0..ROUNDS {
        let had_by = Mutex::new("nobody");
        thread::scope(|scope| {
            let mut held = had_by.lock();
            let mut waiter = Sleeper::start(scope, || *had_by.lock() = "the waiter");
            waiter.await_sleep();
            *held = "the one that unlocked";
            lock_api::MutexGuard::unlock_fair(held);
            if let Some(again) = had_by.try_lock() {
                assert_eq!(
                    *again, "the waiter",
                    "the one that unlocked had it again before the waiter, in round {round}"
                );
            }
            waiter.join();
        });
        assert_eq!(*had_by.lock(), "the waiter", "in round {round}");
    }
}

#[cfg(not(feature = "lockdep"))]
#[test]
fn a_mutex_is_small() {
    assert!(
        size_of::<lockmeter_locks::RawMutex>() <= 16,
        "the fields have grown: docs/use/lock-library.md says 16 bytes"
    );
}

/// It was woken for the first of the two releases in vain, and the second is its own.
#[test]
fn a_thread_that_waits_long_is_passed_once() {
    for round in 0..10 {
        let mutex = RawMutex::new();
        mutex.lock();
        // SAFETY: locked by this thread, first above and then by each try that succeeds.
        let unlock = || unsafe { mutex.unlock() };
        let waits = || {
            mutex.lock();
            // SAFETY: locked by this thread.
            unsafe { mutex.unlock() };
        };
        let passed = passing::times_passed(waits, unlock, || mutex.try_lock());
        assert!(passed <= 1, "a thread that waits was passed {passed} times in round {round}");
    }
}
