//! Short enough for miri, which checks the unsafe code and explores weak memory: `scripts/test-locks miri`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lockmeter_locks::{Mutex, RwLock, RwLockWriteGuard, SpinMutex};

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
