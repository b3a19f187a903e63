//! What a program says of itself, while lockmeter watches it.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use crate::reason::Reason;
use crate::thread_states::Thread;

/// Looks at a program, or its own sums at their first and last.
#[derive(Debug, Default)]
pub struct Looks {
    looks: usize,
    threads: usize,
    blocked: BTreeMap<(Reason, &'static str), f64>,
    sums: Option<[Sum; 2]>,
    sum_of: Option<(Reason, &'static str)>,
    /// Whether the looks at its threads have found the same waits under this reason.
    sum_is_part_of: Option<Reason>,
}

/// A program's own sum of its waits, at some moment of its own clock.
#[derive(Debug, Clone, Copy)]
pub struct Sum {
    pub at_ns: u64,
    pub work: u64,
    pub waited_ns: u64,
}

/// What is true of the seconds in which it was watched.
#[derive(Debug, Default, Serialize)]
pub struct Truth {
    /// How it is known.
    pub source: &'static str,
    /// How often it was asked.
    pub looks: usize,
    /// Whether its waits last until the thread runs, not only until it is woken.
    pub until_it_runs: bool,
    /// Mean number of threads; `None` where only waits are known.
    pub threads: Option<f64>,
    /// Mean number of threads that were blocked, by what for.
    pub blocked: BTreeMap<Reason, f64>,
    /// Mean number of threads that were blocked, by the lock.
    pub locks: BTreeMap<&'static str, f64>,
    /// Seconds between the first look and the last.
    pub seconds: f64,
}

impl Looks {
    /// One look at all threads; `told` is what the program says of one that is blocked, where it says more than the kernel.
    pub fn threads(&mut self, threads: &[Thread], told: impl Fn(u32, Reason) -> Option<(Reason, &'static str)>) {
        self.looks += 1;
        self.threads += threads.len();
        for thread in threads {
            if let Some(reason) = thread.blocked {
                *self.blocked.entry(told(thread.tid, reason).unwrap_or((reason, ""))).or_default() += 1.0;
            }
        }
    }

    /// The program's own sum of waits for this.
    pub fn sum(&mut self, reason: Reason, lock: &'static str, sum: Sum) {
        self.looks += 1;
        self.sum_of = Some((reason, lock));
        self.sums = Some([self.sums.map_or(sum, |[first, _]| first), sum]);
    }

    /// The same, of waits that looks at its threads have found as `seen`.
    pub fn sum_among(&mut self, seen: Reason, lock: &'static str, sum: Sum) {
        self.sum(Reason::UserLock, lock, sum);
        self.looks -= 1;
        self.sum_is_part_of = Some(seen);
    }

    pub fn truth(&self, source: &'static str, until_it_runs: bool, begun: Instant) -> Truth {
        let mut truth = Truth { source, looks: self.looks, until_it_runs, ..Truth::default() };
        truth.seconds = begun.elapsed().as_secs_f64();
        let mut add = |(reason, lock): (Reason, &'static str), threads: f64| {
            *truth.blocked.entry(reason).or_default() += threads;
            if !lock.is_empty() {
                *truth.locks.entry(lock).or_default() += threads;
            }
        };
        for (what, times) in &self.blocked {
            add(*what, times / count(self.looks));
        }
        if let (Some([first, last]), Some(what)) = (self.sums, self.sum_of) {
            let passed_ns = last.at_ns.saturating_sub(first.at_ns).max(1);
            let waited_ns = last.waited_ns.saturating_sub(first.waited_ns);
            let threads = bench_harness::as_f64(waited_ns) / bench_harness::as_f64(passed_ns);
            add(what, threads);
            if let Some(seen) = self.sum_is_part_of {
                add((seen, ""), -threads);
            }
        }
        truth.threads = (self.threads > 0).then(|| count(self.threads) / count(self.looks));
        truth
    }
}

impl Truth {
    /// Mean number of threads that were blocked.
    pub fn all(&self) -> f64 {
        self.blocked.values().sum()
    }

    pub fn for_locks(&self) -> f64 {
        self.blocked.iter().filter(|(reason, _)| reason.is_lock()).map(|(_, threads)| threads).sum()
    }

    /// The lock for which most threads were blocked, and for more than a hundredth of the blocked time.
    pub fn worst_lock(&self) -> Option<&'static str> {
        let worth_naming = self.locks.iter().filter(|(_, threads)| **threads * 100.0 > self.all());
        worth_naming.max_by(|one, other| one.1.total_cmp(other.1)).map(|(lock, _)| *lock)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^52")]
const fn count(number: usize) -> f64 {
    number as f64
}
