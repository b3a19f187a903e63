//! The lock that fork-heavy mail meets at, in user space: every fork links each of the child's mappings into a tree that the
//! children of one parent share, every exit unlinks them, and all of them write.
//!
//! On that load the rwsem of 2013 fell 8 % behind a mutex, until its writers, too, spun while the owner ran. Here the same
//! structure runs over any locks, all of them taken for writing: between processes that fork for each message, and between threads.

mod processes;
mod threads;

use std::fmt;
use std::io;
use std::time::Duration;

use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};
use lockmeter_locks::rwsem::{NoHandoff, NoQueue, NoReaderSpin, NoSpin, NoSteal, Policy, ReadersOwn, Standard};
use lockmeter_locks::{RawMutex as OwnMutex, RawRwSem};
use lockmeter_statistics::{Disturbances, Estimate, Random};
use serde::Serialize;

use crate::pthread_locks::{PthreadMutex, PthreadRwLock};
use processes::BetweenProcesses;
use threads::{GuardedTree, Tree};

/// A reader-writer lock that is only ever written under.
pub struct AllWriters<R>(R);

// SAFETY: the one that holds a reader-writer lock exclusively holds it alone.
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

impl<R: BetweenProcesses> BetweenProcesses for AllWriters<R> {
    fn share(&self) -> io::Result<()> {
        self.0.share()
    }
}

/// Who meets at the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Processes that fork a child for each message, which ends, with the lock in a mapping that they share.
    Processes,
    /// Threads that deliver without forking.
    Threads {
        /// How many of a hundred acquisitions only read.
        reads_percent: u32,
    },
}

impl Variant {
    /// All threads write, as forks and exits do.
    pub const WRITING_THREADS: Self = Self::Threads { reads_percent: 0 };
}

/// A lock in the race.
#[derive(Debug, Clone, Copy)]
pub struct Contender {
    /// For a table.
    pub name: &'static str,
    in_processes: Option<fn(usize, Duration) -> io::Result<Run>>,
    in_threads: fn(usize, u32, Duration) -> io::Result<Run>,
}

impl Contender {
    const fn new<M: RawMutex + BetweenProcesses + Send + Sync>(name: &'static str) -> Self {
        Self { name, in_processes: Some(processes::run::<M>), in_threads: threads::run::<Mutex<M, Tree>> }
    }

    /// One between threads alone.
    const fn of_threads<T: GuardedTree>(name: &'static str) -> Self {
        Self { name, in_processes: None, in_threads: threads::run::<T> }
    }

    const fn of_policy<P: Policy>(name: &'static str) -> Self {
        Self::of_threads::<RwLock<RawRwSem<P>, Tree>>(name)
    }

    fn run(&self, variant: Variant, at_once: usize, slice: Duration) -> io::Result<Run> {
        match variant {
            Variant::Processes => match self.in_processes {
                Some(run) => run(at_once, slice),
                None => Err(io::Error::new(io::ErrorKind::Unsupported, format!("{} is for threads alone", self.name))),
            },
            Variant::Threads { reads_percent } => (self.in_threads)(at_once, reads_percent, slice),
        }
    }
}

/// What forks and exits meet at. The first is what the others are compared with, and races twice: how far it is from itself is how far
/// the race can tell locks apart.
pub const FORK_MAIL: [Contender; 6] = [
    Contender::new::<OwnMutex>("Mutex"),
    Contender::new::<OwnMutex>("Mutex again"),
    Contender::new::<AllWriters<RawRwSem>>("RwSem, all writers"),
    Contender::new::<AllWriters<RawRwSem<NoSpin>>>("RwSem without spinning"),
    Contender::new::<PthreadMutex>("pthread_mutex"),
    Contender::new::<AllWriters<PthreadRwLock>>("pthread_rwlock, all writers"),
];

/// The policies of our reader-writer semaphore, each switched by itself, and other locks. The first two as in [`FORK_MAIL`].
pub const POLICIES: [Contender; 13] = [
    Contender::of_threads::<Mutex<OwnMutex, Tree>>("Mutex"),
    Contender::of_threads::<Mutex<OwnMutex, Tree>>("Mutex again"),
    Contender::of_policy::<Standard>("RwSem"),
    Contender::of_policy::<NoSpin>("RwSem, no spinning"),
    Contender::of_policy::<NoReaderSpin>("RwSem, none on readers"),
    Contender::of_policy::<NoQueue>("RwSem, no MCS queue"),
    Contender::of_policy::<NoSteal>("RwSem, no stealing"),
    Contender::of_policy::<NoHandoff>("RwSem, no handoff"),
    Contender::of_policy::<ReadersOwn>("RwSem, readers set owner"),
    Contender::of_threads::<Mutex<PthreadMutex, Tree>>("pthread_mutex"),
    Contender::of_threads::<RwLock<PthreadRwLock, Tree>>("pthread_rwlock"),
    Contender::of_threads::<std::sync::Mutex<Tree>>("std Mutex"),
    Contender::of_threads::<std::sync::RwLock<Tree>>("std RwLock"),
];

/// What is computed between two mappings, in steps of arithmetic: some 200 ns.
const WORK: u64 = 150;

/// What one run gave.
#[derive(Debug, Clone, Copy)]
struct Run {
    per_second: f64,
    switches_per_message: f64,
}

/// One lock with this many processes or threads.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Processes or threads that deliver at once.
    pub at_once: usize,
    /// The lock.
    pub lock: &'static str,
    /// Messages a second.
    pub per_second: Estimate,
    /// Over those of the first contender in the same round.
    pub ratio: Estimate,
    /// Context switches for each message.
    pub switches_per_message: Estimate,
}

/// How to race.
#[derive(Debug, Clone, Copy)]
pub struct Plan<'a> {
    /// The locks.
    pub contenders: &'a [Contender],
    /// Who meets at the lock.
    pub variant: Variant,
    /// How many of them deliver at once.
    pub at_once: &'a [usize],
    /// How often each lock runs with each number of them.
    pub rounds: usize,
    /// How long a run lasts.
    pub slice: Duration,
}

/// Races all locks, in random order, and a round again that others disturbed. `step` is told how many runs are left, and stops the race by
/// returning `false`. The error is that of a run: a lock did not exclude, or there were no more processes to be had.
pub fn race(
    plan: Plan<'_>,
    disturbances: &mut Disturbances,
    random: &mut Random,
    mut step: impl FnMut(usize) -> bool,
) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    let mut left = plan.at_once.len() * plan.rounds * plan.contenders.len();
    for at_once in plan.at_once {
        let mut done: Vec<Vec<Run>> = Vec::new();
        let mut state = Ok(true);
        for _ in 0..plan.rounds {
            let round = disturbances.avoid(|| {
                let mut order: Vec<usize> = (0..plan.contenders.len()).collect();
                random.shuffle(&mut order);
                let mut runs = vec![None; plan.contenders.len()];
                for (before, at) in order.into_iter().enumerate() {
                    if !matches!(state, Ok(true)) {
                        break;
                    }
                    let left = left - before;
                    state = if step(left) {
                        match plan.contenders[at].run(plan.variant, *at_once, plan.slice) {
                            Ok(run) => {
                                runs[at] = Some(run);
                                Ok(true)
                            }
                            // Ctrl-C ends the processes of a run, too.
                            Err(_) if !step(left) => Ok(false),
                            Err(why) => Err(why),
                        }
                    } else {
                        Ok(false)
                    };
                }
                runs
            });
            left -= plan.contenders.len();
            done.extend(round.into_iter().collect::<Option<Vec<Run>>>());
        }
        let go_on = state?;
        rows.extend(
            (0..plan.contenders.len())
                .filter_map(|at| summarise(*at_once, plan.contenders[at].name, at, &done, random)),
        );
        if !go_on {
            break;
        }
    }
    Ok(rows)
}

fn summarise(at_once: usize, lock: &'static str, at: usize, rounds: &[Vec<Run>], random: &mut Random) -> Option<Row> {
    let mut estimate = |of: &dyn Fn(&Vec<Run>) -> f64| Estimate::of(&rounds.iter().map(of).collect::<Vec<_>>(), random);
    Some(Row {
        at_once,
        lock,
        per_second: estimate(&|round| round[at].per_second)?,
        ratio: estimate(&|round| round[at].per_second / round[0].per_second)?,
        switches_per_message: estimate(&|round| round[at].switches_per_message)?,
    })
}

#[expect(clippy::cast_precision_loss, reason = "counts stay below 2^52")]
const fn count(value: u64) -> f64 {
    value as f64
}

/// The result as a table.
pub struct Table<'a> {
    /// Who met at the lock.
    pub variant: Variant,
    /// The race's.
    pub rows: &'a [Row],
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at_once = match self.variant {
            Variant::Processes => "PROCESSES",
            Variant::Threads { .. } => "THREADS",
        };
        writeln!(
            f,
            "{at_once:>9}  {:<28} {:>11} {:>26} {:>17}",
            "LOCK", "MESSAGES/S", "OVER MUTEX", "SWITCHES/MESSAGE"
        )?;
        for row in self.rows {
            let Estimate { median, low, high, .. } = row.ratio;
            let ratio = format!("{median:.3} [{low:.3}, {high:.3}]");
            writeln!(
                f,
                "{:>9}  {:<28} {:>11.0} {ratio:>26} {:>17.3}",
                row.at_once, row.lock, row.per_second.median, row.switches_per_message.median
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_statistics::Patience;

    use super::*;
    use crate::processes::in_child_alone;

    /// No round is repeated, however busy the machine is.
    const PATIENCE: Patience = Patience { tries: 1, free: 0 };

    fn short_race(variant: Variant, at_once: &[usize], rounds: usize, go_on: impl FnMut(usize) -> bool) -> Vec<Row> {
        let plan = Plan { contenders: &FORK_MAIL, variant, at_once, rounds, slice: Duration::from_millis(5) };
        race(plan, &mut Disturbances::with(PATIENCE), &mut Random::new(1), go_on).unwrap()
    }

    /// Makes sure of the structure itself: a run fails if a lock lets two in.
    fn every_lock_keeps_order(variant: Variant) {
        let rows = short_race(variant, &[1, 4], 2, |_| true);
        assert_eq!(rows.len(), 2 * FORK_MAIL.len());
        let first = rows[0].ratio;
        assert!((first.low - 1.0).abs() < 1e-12 && (first.high - 1.0).abs() < 1e-12);
        assert!(rows.iter().all(|row| row.per_second.median > 0.0));
    }

    #[test]
    fn every_lock_keeps_the_tree_in_order_and_the_first_is_its_own_measure() {
        every_lock_keeps_order(Variant::WRITING_THREADS);
    }

    #[test]
    fn every_lock_keeps_the_tree_of_real_processes_in_order() {
        in_child_alone(|| every_lock_keeps_order(Variant::Processes));
    }

    /// Makes sure of each policy and lock under readers and writers, whose tree is not changed while it is read.
    #[test]
    fn every_policy_keeps_the_tree_in_order_whatever_share_reads() {
        for reads_percent in [0, 50, 95] {
            let plan = Plan {
                contenders: &POLICIES,
                variant: Variant::Threads { reads_percent },
                at_once: &[1, 4],
                rounds: 1,
                slice: Duration::from_millis(5),
            };
            let rows = race(plan, &mut Disturbances::with(PATIENCE), &mut Random::new(1), |_| true).unwrap();
            assert_eq!(rows.len(), 2 * POLICIES.len());
            assert!(rows.iter().all(|row| row.per_second.median > 0.0), "{rows:?}");
        }
    }

    #[test]
    fn what_is_for_threads_alone_races_between_no_processes() {
        let plan = Plan {
            contenders: &POLICIES,
            variant: Variant::Processes,
            at_once: &[1],
            rounds: 1,
            slice: Duration::ZERO,
        };
        let refused = race(plan, &mut Disturbances::with(PATIENCE), &mut Random::new(1), |_| true).unwrap_err();
        assert!(refused.to_string().ends_with("is for threads alone"), "{refused}");
    }

    #[test]
    fn a_race_that_is_broken_off_gives_the_rounds_it_has() {
        let mut left = FORK_MAIL.len() + 2;
        let go_on = |_| {
            left -= 1;
            left > 0
        };
        let rows = short_race(Variant::WRITING_THREADS, &[1, 2], 5, go_on);
        assert!(rows.iter().all(|row| row.at_once == 1 && row.per_second.samples == 1), "{rows:?}");
        assert_eq!(rows.len(), FORK_MAIL.len());
    }
}
