//! A program whose locks are lockmeter's own, for `lockmeter record -- contended`: who waits for them, and for how long, is known
//! in advance.

use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use lockmeter_locks::instrument::Metered;
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawMutex, RawRwSem};

/// How long each holder sleeps with the lock.
const HELD: Duration = Duration::from_millis(20);

static HOT_MUTEX: lock_api::Mutex<RawMutex<Metered>, u64> = lock_api::Mutex::new(0);
static HOT_RWSEM: lock_api::RwLock<RawRwSem<Standard, Metered>, u64> = lock_api::RwLock::new(0);

#[inline(never)]
fn waits_for_the_mutex() {
    let mut number = HOT_MUTEX.lock();
    thread::sleep(HELD);
    *number += 1;
}

#[inline(never)]
fn waits_to_read(held: &Barrier) {
    held.wait();
    assert_eq!(*HOT_RWSEM.read(), 1);
}

fn main() {
    // One of four is the first; the others wait for one, two and three holds.
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(waits_for_the_mutex);
        }
    });
    // A writer holds it when the reader comes.
    let held = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| waits_to_read(&held));
        let mut number = HOT_RWSEM.write();
        held.wait();
        thread::sleep(HELD);
        *number = 1;
    });
    println!("{} of 4 had the mutex", HOT_MUTEX.lock());
}
