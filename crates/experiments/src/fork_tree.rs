//! The lock that fork-heavy mail meets at, in user space: every fork links each of the child's mappings into a tree that the
//! children of one parent share, every exit unlinks them, and all of them write.
//!
//! On that load the rwsem of 2013 fell 8 % behind a mutex, until its writers, too, spun while the owner ran. Here the same
//! structure runs over any locks, all of them taken for writing.

use std::fmt;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lock_api::{Mutex, RawMutex, RawRwLock};
use lockmeter_locks::rwsem::NoSpin;
use lockmeter_locks::{RawMutex as OwnMutex, RawRwSem};
use lockmeter_statistics::{Disturbances, Estimate, Random};
use serde::Serialize;

use crate::apart::Apart;
use crate::arithmetic;
use crate::pthread_locks::{PthreadMutex, PthreadRwLock};

/// A reader-writer lock that is only ever written under.
pub struct AllWriters<R>(R);

// SAFETY: whoever holds a reader-writer lock exclusively holds it alone.
unsafe impl<R: RawRwLock> RawMutex for AllWriters<R> {
    const INIT: Self = Self(R::INIT);
    type GuardMarker = R::GuardMarker;

    fn lock(&self) {
        self.0.lock_exclusive();
    }

    fn try_lock(&self) -> bool {
        self.0.try_lock_exclusive()
    }

    unsafe fn unlock(&self) {
        // SAFETY: the caller holds it, and so exclusively.
        unsafe { self.0.unlock_exclusive() };
    }
}

/// A lock in the race.
#[derive(Clone, Copy)]
pub struct Contender {
    /// For a table.
    pub name: &'static str,
    run: fn(usize, Duration) -> Run,
}

/// Everything that races; the first is what the others are compared with, and races twice: how far it is from itself is how far
/// the race can tell locks apart.
pub const CONTENDERS: [Contender; 6] = [
    Contender { name: "Mutex", run: run::<OwnMutex> },
    Contender { name: "Mutex again", run: run::<OwnMutex> },
    Contender { name: "RwSem, all writers", run: run::<AllWriters<RawRwSem>> },
    Contender { name: "RwSem without spinning", run: run::<AllWriters<RawRwSem<NoSpin>>> },
    Contender { name: "pthread_mutex", run: run::<PthreadMutex> },
    Contender { name: "pthread_rwlock, all writers", run: run::<AllWriters<PthreadRwLock>> },
];

/// What one run gave.
#[derive(Debug, Clone, Copy)]
struct Run {
    per_second: f64,
    switches_per_message: f64,
}

/// One lock with so many threads.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Threads that deliver at once.
    pub threads: usize,
    /// The lock.
    pub lock: &'static str,
    /// Messages a second.
    pub per_second: Estimate,
    /// Over those of the first contender in the same round.
    pub ratio: Estimate,
    /// Context switches for each message.
    pub switches_per_message: Estimate,
}

/// Races all locks, `rounds` times at each number of threads, in random order, and a round again that others disturbed. `step` is told
/// how many runs are left, and stops the race by returning `false`.
pub fn race(
    threads: &[usize],
    rounds: usize,
    slice: Duration,
    disturbances: &mut Disturbances,
    random: &mut Random,
    mut step: impl FnMut(usize) -> bool,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut left = threads.len() * rounds * CONTENDERS.len();
    for threads in threads {
        let mut done: Vec<Vec<Run>> = Vec::new();
        let mut go_on = true;
        for _ in 0..rounds {
            let round = disturbances.avoid(|| {
                let mut order: Vec<usize> = (0..CONTENDERS.len()).collect();
                random.shuffle(&mut order);
                let mut runs = [None; CONTENDERS.len()];
                for (before, at) in order.into_iter().enumerate() {
                    go_on = go_on && step(left - before);
                    if go_on {
                        runs[at] = Some((CONTENDERS[at].run)(*threads, slice));
                    }
                }
                runs
            });
            left -= CONTENDERS.len();
            done.extend(round.into_iter().collect::<Option<Vec<Run>>>());
        }
        rows.extend((0..CONTENDERS.len()).filter_map(|at| summarise(*threads, at, &done, random)));
        if !go_on {
            break;
        }
    }
    rows
}

fn summarise(threads: usize, at: usize, rounds: &[Vec<Run>], random: &mut Random) -> Option<Row> {
    let mut estimate = |of: &dyn Fn(&Vec<Run>) -> f64| Estimate::of(&rounds.iter().map(of).collect::<Vec<_>>(), random);
    Some(Row {
        threads,
        lock: CONTENDERS[at].name,
        per_second: estimate(&|round| round[at].per_second)?,
        ratio: estimate(&|round| round[at].per_second / round[0].per_second)?,
        switches_per_message: estimate(&|round| round[at].switches_per_message)?,
    })
}

/// Mappings of a small process.
const MAPPINGS: usize = 24;
/// What a child computes between two of its mappings, in steps of arithmetic: some 200 ns.
const WORK: u64 = 150;

/// The tree: which child links which mapping.
type Tree = Vec<(usize, usize)>;

fn run<M: RawMutex + Send + Sync>(threads: usize, slice: Duration) -> Run {
    // Lock and tree lie alike whatever the lock's size: elsewhere the one or the other lock may share a line with the tree, and is
    // then up to a sixth faster.
    let tree: Apart<Mutex<M, Tree>> = Apart(Mutex::new(Vec::new()));
    let tree = &tree.0;
    let (start, stop) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let switches = context_switches();
    let (messages, elapsed) = std::thread::scope(|scope| {
        let (start, stop) = (&start, &stop);
        let worker = |child: usize| {
            move || {
                start.wait();
                let (begin, mut messages) = (Instant::now(), 0_u64);
                while !stop.load(Ordering::Relaxed) {
                    deliver(tree, child);
                    messages += 1;
                }
                (messages, begin, Instant::now())
            }
        };
        let workers: Vec<_> = (0..threads).map(|child| scope.spawn(worker(child))).collect();
        start.wait();
        std::thread::sleep(slice);
        stop.store(true, Ordering::Relaxed);
        // A panic in a worker is a bug, and the scope passes it on.
        let done: Vec<_> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
        let begin = done.iter().map(|(_, begin, _)| *begin).min();
        let end = done.iter().map(|(.., end)| *end).max();
        let elapsed = begin.zip(end).map_or(Duration::ZERO, |(begin, end)| end - begin);
        (done.iter().map(|(messages, ..)| *messages).sum::<u64>(), elapsed)
    });
    assert!(tree.lock().is_empty(), "every child unlinks what it linked: the lock does not exclude");
    let messages = count(messages.max(1));
    Run {
        per_second: messages / elapsed.as_secs_f64().max(f64::MIN_POSITIVE),
        switches_per_message: count(context_switches() - switches) / messages,
    }
}

/// A child is forked, and exits.
fn deliver<M: RawMutex>(tree: &Mutex<M, Tree>, child: usize) {
    for mapping in 0..MAPPINGS {
        arithmetic::steps(WORK);
        tree.lock().push((child, mapping));
    }
    for mapping in 0..MAPPINGS {
        arithmetic::steps(WORK);
        let mut links = tree.lock();
        if let Some(at) = links.iter().rposition(|link| *link == (child, mapping)) {
            links.swap_remove(at);
        }
    }
}

/// Of this process so far.
fn context_switches() -> u64 {
    // SAFETY: all-zero is a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: writes one rusage, which is ours.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^52")]
const fn count(value: u64) -> f64 {
    value as f64
}

/// The result as a table.
pub struct Table<'a>(pub &'a [Row]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8}  {:<28} {:>11} {:>26} {:>17}",
            "THREADS", "LOCK", "MESSAGES/S", "OVER MUTEX", "SWITCHES/MESSAGE"
        )?;
        for row in self.0 {
            let Estimate { median, low, high, .. } = row.ratio;
            let ratio = format!("{median:.3} [{low:.3}, {high:.3}]");
            writeln!(
                f,
                "{:>8}  {:<28} {:>11.0} {ratio:>26} {:>17.3}",
                row.threads, row.lock, row.per_second.median, row.switches_per_message.median
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_statistics::Patience;

    use super::*;

    /// No round is repeated, however busy the machine is.
    const PATIENCE: Patience = Patience { tries: 1, free: 0 };

    /// Makes sure of the structure itself: `run` panics if a lock lets two in.
    #[test]
    fn every_lock_keeps_the_tree_in_order_and_the_first_is_its_own_measure() {
        let rows =
            race(&[1, 4], 2, Duration::from_millis(5), &mut Disturbances::with(PATIENCE), &mut Random::new(1), |_| {
                true
            });
        assert_eq!(rows.len(), 2 * CONTENDERS.len());
        let first = rows[0].ratio;
        assert!((first.low - 1.0).abs() < 1e-12 && (first.high - 1.0).abs() < 1e-12);
        assert!(rows.iter().all(|row| row.per_second.median > 0.0));
    }

    #[test]
    fn a_race_that_is_broken_off_gives_the_rounds_it_has() {
        let mut left = CONTENDERS.len() + 2;
        let go_on = |_| {
            left -= 1;
            left > 0
        };
        let rows =
            race(&[1, 2], 5, Duration::from_millis(2), &mut Disturbances::with(PATIENCE), &mut Random::new(1), go_on);
        assert!(rows.iter().all(|row| row.threads == 1 && row.per_second.samples == 1), "{rows:?}");
        assert_eq!(rows.len(), CONTENDERS.len());
    }
}
