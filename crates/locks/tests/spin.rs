//! The spinlock on the real machine.

use std::thread;

use lockmeter_locks::SpinMutex;

#[test]
fn counts_every_increment_of_more_threads_than_cpus() {
    let counter = SpinMutex::new(0_u64);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50_000).for_each(|_| *counter.lock() += 1));
        }
    });
    assert_eq!(*counter.lock(), 400_000);
}

#[test]
fn a_try_fails_while_it_is_held() {
    let lock = SpinMutex::new(());
    let held = lock.lock();
    assert!(lock.try_lock().is_none());
    drop(held);
    assert!(lock.try_lock().is_some());
}
