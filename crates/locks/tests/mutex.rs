//! The mutex on the real machine.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use lockmeter_locks::Mutex;

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

/// The one it is granted to may have no CPU in time, and then others go on: so not each time, but nearly. Unlocked otherwise, the
/// thread that unlocks has it again long before the other wakes.
#[test]
fn a_fair_unlock_hands_over_to_a_sleeping_waiter() {
    const ROUNDS: usize = 20;
    let handed_over = |fairly: bool| {
        let mutex = Arc::new(Mutex::new(0));
        let mut held = mutex.lock();
        let waiter = {
            let mutex = Arc::clone(&mutex);
            thread::spawn(move || *mutex.lock() = 1)
        };
        thread::sleep(Duration::from_millis(10));
        *held = 2;
        if fairly {
            lock_api::MutexGuard::unlock_fair(held);
        } else {
            drop(held);
        }
        let had_it = *mutex.lock() == 1;
        waiter.join().unwrap();
        had_it
    };
    let fairly = (0..ROUNDS).filter(|_| handed_over(true)).count();
    let otherwise = (0..ROUNDS).filter(|_| handed_over(false)).count();
    assert!(fairly >= ROUNDS * 3 / 4, "the waiter had it first in {fairly} of {ROUNDS} rounds");
    assert!(otherwise <= ROUNDS / 2, "and in {otherwise} without that: this test shows nothing");
}

#[cfg(not(feature = "lockdep"))]
#[test]
fn a_mutex_is_small() {
    assert!(size_of::<lockmeter_locks::RawMutex>() <= 24, "the fields have grown: docs/locks.md says 24 bytes");
}

#[test]
fn nobody_starves_under_a_hostile_mix() {
    // Two threads take the lock again and again; a third, which sleeps in between, must get it all the same.
    let mutex = Mutex::new(());
    let done = AtomicU64::new(0);
    let worst = thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while done.load(Relaxed) == 0 {
                    let _held = mutex.lock();
                    (0..200).for_each(|_| std::hint::spin_loop());
                }
            });
        }
        let worst = (0..20)
            .map(|_| {
                thread::sleep(Duration::from_millis(2));
                let begun = Instant::now();
                drop(mutex.lock());
                begun.elapsed()
            })
            .max();
        done.store(1, Relaxed);
        worst.unwrap()
    });
    // The bound is that of the handoff, with much room for the scheduler of a busy machine.
    assert!(worst < Duration::from_secs(2), "one wait took {worst:?}");
}
