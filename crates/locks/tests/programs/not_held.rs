//! Releases a lock that it does not hold, then uses it: `not_held mutex|held-by-another|write|read`. What becomes of that depends on the
//! build (see `tests/misuse.rs`).

use lockmeter_locks::{RawMutex, RawRwSem};

static MUTEX: RawMutex = RawMutex::new();
static SEMAPHORE: RawRwSem = RawRwSem::new();

/// Enough that threads of two CPUs meet.
const ROUNDS: u32 = 10_000;

fn main() {
    let release = std::env::args().nth(1).expect("not_held mutex|held-by-another|write|read");
    // SAFETY: nothing is held. What then happens is what this program is for.
    unsafe {
        match release.as_str() {
            "mutex" => MUTEX.unlock(),
            "held-by-another" => {
                MUTEX.lock();
                std::thread::spawn(|| MUTEX.unlock()).join().expect("the thread ends well");
                assert!(!MUTEX.try_lock(), "the mutex was taken from its holder");
                MUTEX.unlock();
            }
            "write" => SEMAPHORE.unlock_write(),
            "read" => SEMAPHORE.unlock_read(),
            other => panic!("no lock is called {other}"),
        }
    }
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(|| {
                for _ in 0..ROUNDS {
                    MUTEX.lock();
                    // SAFETY: just locked.
                    unsafe { MUTEX.unlock() };
                    SEMAPHORE.write();
                    // SAFETY: just locked.
                    unsafe { SEMAPHORE.unlock_write() };
                    SEMAPHORE.read();
                    // SAFETY: just locked.
                    unsafe { SEMAPHORE.unlock_read() };
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().expect("the thread ends well"));
    assert!(!MUTEX.is_locked() && !SEMAPHORE.is_locked(), "a lock stayed held");
}
