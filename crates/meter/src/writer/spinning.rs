//! Waits of threads that spin: for how long of them they had a CPU.
//!
//! A thread that spins and reads the clock all the while sees by itself that it was preempted: the clock has moved on. That takes no
//! system call, which a filter of the program's could forbid.

use super::{Waiting, clock};

/// Between two readings: a thread that has its CPU comes by far more often, but for interrupts. Sleeping for another thread to run takes
/// longer than this.
const PREEMPTED_NS: u64 = 50_000;

/// Polls of a word that does not change until the lock is tried all the same.
const MOST_POLLS: u32 = 1 << 10;

/// Spins until `try_it` has the lock, whose `word` changes when it is released; `false`, and nothing done, where that would say nothing.
pub fn spin(waiting: &mut Waiting, word: impl Fn() -> u32, try_it: impl Fn() -> bool) -> bool {
    let Some(counter) = clock::counter().filter(|_| waiting.counted) else { return false };
    let mut last = counter.ticks();
    let mut off_cpu = 0;
    let mut read_clock = || {
        let now = counter.ticks();
        if counter.between_ns(last, now) >= PREEMPTED_NS {
            off_cpu += now - last;
        }
        last = now;
    };
    loop {
        let locked = word();
        for _ in 0..MOST_POLLS {
            core::hint::spin_loop();
            read_clock();
            if word() != locked {
                break;
            }
        }
        let has_it = try_it();
        // While a thread is preempted the lock is released, as often as not.
        read_clock();
        if has_it {
            break;
        }
    }
    waiting.off_cpu = off_cpu;
    true
}
