//! Threads that share data: a mutex, a reader-writer lock, and one whose readers share no cache line. Some waits have a time limit.

use std::thread;
use std::time::Duration;

use lockmeter_locks::{Mutex, PercpuRwLock, RawPercpuRwSem, RawRwSem, RwLock};

static JOBS: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static RESULTS: RwLock<Vec<u32>> = RwLock::new(Vec::new());

fn main() {
    JOBS.lock().extend(1..=100);
    let settings = PercpuRwLock::from_raw(RawPercpuRwSem::over(RawRwSem::new()), 2);
    let work = || {
        loop {
            // The guard is dropped before the work.
            let Some(job) = JOBS.lock().pop() else { break };
            let factor = *settings.read();
            RESULTS.write().push(job * factor);
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(work);
        }
    });
    let results = RESULTS.read();
    println!("{} results, their sum is {}", results.len(), results.iter().sum::<u32>());
    assert_eq!((results.len(), results.iter().sum::<u32>()), (100, 10_100));

    let held = JOBS.lock();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| JOBS.try_lock_for(Duration::from_millis(10)).is_some());
        assert!(!waiter.join().expect("the waiter does not panic"));
    });
    drop(held);
    println!("a wait for a lock that is held ended after its 10 ms");
}
