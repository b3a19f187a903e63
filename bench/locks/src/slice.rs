//! A slice: some threads, one lock, a little while.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, ensure};
use lockmeter_statistics::ThreadsInStep;

use crate::lock_under_test::{Load, Measured, Tally};
use crate::waits::Waits;

/// What the threads of one slice did.
#[derive(Debug, Clone)]
pub struct Slice {
    tallies: Vec<Tally>,
    elapsed: Duration,
}

impl Slice {
    /// Acquisitions a second.
    pub fn rate(&self) -> f64 {
        self.acquisitions() as f64 / self.elapsed.as_secs_f64()
    }

    /// Of all threads.
    pub fn acquisitions(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.acquisitions).sum()
    }

    /// The slowest thread's part of an even share: 1 is fair, 0 starved.
    pub fn slowest_share(&self) -> f64 {
        let slowest = self.tallies.iter().map(|tally| tally.acquisitions).min().unwrap_or(0);
        slowest as f64 * self.tallies.len() as f64 / (self.acquisitions().max(1)) as f64
    }

    /// Of all threads.
    pub fn context_switches(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.context_switches).sum()
    }

    /// Of a timed slice.
    pub fn waited_ns(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.waited_ns).sum()
    }

    /// Of a timed slice.
    pub fn longest_wait_ns(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.longest_wait_ns).max().unwrap_or(0)
    }

    /// Of a timed slice.
    pub fn waits(&self) -> Waits {
        let mut all = Waits::default();
        self.tallies.iter().for_each(|tally| all.add_all(&tally.waits));
        all
    }
}

/// Lets `threads` work under `load` for about `length`, and checks that the lock was one.
pub fn contend(lock: &dyn Measured, threads: usize, load: Load, length: Duration, seed: u64) -> Result<Slice> {
    let done = in_step(threads, length)
        .run(|thread| thread, |thread, stop| lock.contend(load, seed.wrapping_add(thread as u64 + 1), stop));
    let (tallies, elapsed) = (done.results, done.until_stopped);
    let writes: u64 = tallies.iter().map(|tally| tally.writes).sum();
    ensure!(
        lock.writes() == writes,
        "{writes} writes left only {} behind: this lock let two in at once",
        lock.writes()
    );
    Ok(Slice { tallies, elapsed })
}

/// Nanoseconds that a pair takes each of `threads` threads, in picoseconds.
pub fn pair_ps(lock: &dyn Measured, threads: usize, reads: bool, length: Duration) -> u64 {
    let pairs = |(), stop: &AtomicBool| if reads { lock.read_pairs(stop) } else { lock.write_pairs(stop) };
    let done = in_step(threads, length).run(|_| (), pairs);
    let each = u128::from(done.results.iter().sum::<u64>().max(1));
    u64::try_from(done.until_stopped.as_nanos() * 1000 * threads as u128 / each).unwrap_or(u64::MAX)
}

fn in_step(threads: usize, length: Duration) -> ThreadsInStep {
    ThreadsInStep { threads, length, settling: Duration::ZERO }
}
