//! Short enough for miri, which checks the unsafe code and explores weak memory: `scripts/test-locks miri`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lock_api::RwLock as LockApiRwLock;
use lockmeter_locks::{Mutex, RawPercpuRwSem, RawRwSem, RwLock, RwLockWriteGuard, SpinMutex};

#[test]
fn threads_come_and_go_with_locks_on_the_heap() {
    let mutex = Arc::new(Mutex::new(0));
    let rwlock = Arc::new(RwLock::new(0));
    let spin = Arc::new(SpinMutex::new(0));
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (mutex, rwlock, spin) = (Arc::clone(&mutex), Arc::clone(&rwlock), Arc::clone(&spin));
            thread::spawn(move || {
                for _ in 0..4 {
                    *mutex.lock() += 1;
                    *spin.lock() += 1;
                    let mut written = rwlock.write();
                    *written += 1;
                    let read = RwLockWriteGuard::downgrade(written);
                    assert!(*read > 0);
                    drop(read);
                    let _timed = mutex.try_lock_for(Duration::from_micros(50));
                    let _seen = *rwlock.read();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((*mutex.lock(), *rwlock.read(), *spin.lock()), (12, 12, 12));
}

/// Miri knows neither rseq nor membarrier: readers are counted in stripes.
#[test]
fn readers_that_are_counted_per_cpu_meet_a_writer() {
    const MOST_READS_UNTIL_BIASED: u32 = 20_000;
    let lock = LockApiRwLock::from_raw(RawPercpuRwSem::over(RawRwSem::new()), 0);
    // SAFETY: nothing is unlocked here.
    let is_biased = || unsafe { lock.raw() }.is_biased();
    let has_read = |_| {
        assert_eq!(*lock.read(), 0);
        is_biased()
    };
    assert!(
        (0..MOST_READS_UNTIL_BIASED).any(has_read),
        "still not biased after {MOST_READS_UNTIL_BIASED} reads without a write"
    );
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..8).for_each(|_| assert!(*lock.read() <= 2)));
        }
        for _ in 0..2 {
            scope.spawn(|| *lock.write() += 1);
        }
    });
    assert!(!is_biased());
    assert_eq!(lock.into_inner(), 2);
}
