//! A program whose locks are lockmeter's own, for `lockmeter record -- contended`: who waits for them, and for how long, it says
//! itself, as one line of JSON.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use lockmeter_locks::instrument::Metered;
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawMutex, RawRwSem};

/// How long each holder sleeps with the lock.
const HELD: Duration = Duration::from_millis(20);
const THREADS: usize = 4;
const ROUNDS: u32 = 3;

static HOT_MUTEX: lock_api::Mutex<RawMutex<Metered>, u32> = lock_api::Mutex::new(0);
static HOT_RWSEM: lock_api::RwLock<RawRwSem<Standard, Metered>, u32> = lock_api::RwLock::new(0);

/// Whether it had to, and how long at most.
#[inline(never)]
fn waits_for_the_mutex() -> (u32, Duration) {
    let (mut waits, mut waited) = (0, Duration::ZERO);
    let begin = Instant::now();
    let mut number = HOT_MUTEX.try_lock().unwrap_or_else(|| {
        let number = HOT_MUTEX.lock();
        (waits, waited) = (1, begin.elapsed());
        number
    });
    thread::sleep(HELD);
    *number += 1;
    (waits, waited)
}

/// How long at most; nothing if the writer was gone when this thread got to run.
#[inline(never)]
fn waits_to_read(held: &Barrier) -> Option<Duration> {
    held.wait();
    let begin = Instant::now();
    if HOT_RWSEM.try_read().is_some() {
        return None;
    }
    assert_eq!(*HOT_RWSEM.read(), 1);
    Some(begin.elapsed())
}

/// A writer holds it when the reader comes.
fn read_behind_a_writer() -> Option<Duration> {
    let held = Barrier::new(2);
    thread::scope(|scope| {
        let reader = scope.spawn(|| waits_to_read(&held));
        let mut number = HOT_RWSEM.write();
        held.wait();
        thread::sleep(HELD);
        *number = 1;
        drop(number);
        reader.join().expect("the reader does not panic")
    })
}

fn main() {
    let start = Barrier::new(THREADS);
    let contender = || {
        start.wait();
        (0..ROUNDS)
            .map(|_| waits_for_the_mutex())
            .fold((0, Duration::ZERO), |(waits, waited), (one, once)| (waits + one, waited + once))
    };
    let (waits, waited) = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(contender)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no contender panics"))
            .fold((0, Duration::ZERO), |(waits, waited), (some, while_)| (waits + some, waited + while_))
    });
    let read = loop {
        if let Some(waited) = read_behind_a_writer() {
            break waited;
        }
    };
    println!(
        r#"{{"had": {}, "waits": {waits}, "wait_ns": {}, "read_wait_ns": {}}}"#,
        HOT_MUTEX.lock(),
        waited.as_nanos(),
        read.as_nanos()
    );
}
