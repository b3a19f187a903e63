//! What a recording says about its locks, as the model needs it.

use std::collections::HashMap;

use lockmeter_profile::{Happened, Kind, Mode, Report, Row};

use crate::network::{Handoff, Network, Station, number};
use crate::simulation::{Duration, Scene, Visit};

/// One lock in one mode.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredLock {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// How it was taken.
    pub mode: Mode,
    /// How often it was taken.
    pub acquisitions: u64,
    /// How long it was held, all acquisitions added up.
    pub held_ns: u64,
    /// How long it was waited for.
    pub waited_ns: u64,
    /// How many of the acquisitions had to wait.
    pub contended: u64,
    /// The part of `waited_ns` that burned a CPU.
    pub spin_ns: u64,
    /// Durations of its holds: means, each with its count.
    pub holds: Vec<(f64, u64)>,
}

impl MeasuredLock {
    /// Mean hold of one acquisition.
    pub fn hold_ns(&self) -> f64 {
        ratio(self.held_ns, self.acquisitions)
    }

    /// Mean wait, over all acquisitions.
    pub fn wait_ns(&self) -> f64 {
        ratio(self.waited_ns, self.acquisitions)
    }

    /// Whether others may hold it the same way at the same time.
    pub fn is_shared(&self) -> bool {
        self.mode == Mode::Read
    }
}

/// Locks beyond these, shortest held, count as computing: a program with thousands of locks is not slower to forecast, and what they
/// are held for is next to nothing.
const MODELLED: usize = 16;

/// The locks of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// For how long holds were metered.
    pub duration_ns: u64,
    /// Locks whose holds were timed, longest held first.
    pub locks: Vec<MeasuredLock>,
    /// Waits for locks whose holds were not timed: the model takes them for computing.
    pub untimed_ns: u64,
    /// CPUs of the machine that was recorded.
    pub cpus: u32,
}

impl Measured {
    /// Takes what is needed from a report grouped by lock.
    pub fn from_report(report: &Report) -> Self {
        let mut locks: Vec<MeasuredLock> = Vec::new();
        let mut untimed_ns = 0_u64;
        let holds = report.rows.iter().filter(|row| row.happened == Happened::Hold);
        let duration_ns = report.duration_ns.saturating_sub(holds.map(|row| row.off_ns).min().unwrap_or(0));
        // As much as there would have been of it in that time.
        let scale = |row: &Row, amount: u64| scaled(amount, duration_ns, report.duration_ns.saturating_sub(row.off_ns));
        let rows_that = |happened| report.rows.iter().filter(move |row| row.happened == happened);
        let mut held = HashMap::new();
        for row in rows_that(Happened::Hold) {
            let Some(key) = Key::of(row) else { continue };
            let lock = timed(row, key, |amount| scale(row, amount));
            // A throughput of nothing cannot be forecast.
            if lock.acquisitions > 0 {
                held.entry(key).or_insert(locks.len());
                locks.push(lock);
            }
        }
        for row in rows_that(Happened::Wait) {
            let Some(key) = Key::of(row) else { continue };
            match held.get(&key).and_then(|at| locks.get_mut(*at)) {
                Some(lock) => {
                    lock.waited_ns = lock.waited_ns.saturating_add(scale(row, row.value.total_ns));
                    lock.spin_ns = lock.spin_ns.saturating_add(scale(row, row.value.spin_ns));
                    lock.contended = lock.contended.saturating_add(scale(row, row.value.count));
                }
                None => untimed_ns = untimed_ns.saturating_add(scale(row, row.value.total_ns)),
            }
        }
        locks.sort_by_key(|lock| std::cmp::Reverse(lock.held_ns));
        Self { duration_ns, locks, untimed_ns, cpus: report.about.cpus }
    }

    /// The fewest threads that can have waited and held as long as was measured.
    pub fn fewest_threads(&self) -> usize {
        let busy_ns: u128 = self.locks.iter().map(|lock| u128::from(lock.held_ns) + u128::from(lock.waited_ns)).sum();
        usize::try_from(busy_ns.div_ceil(u128::from(self.duration_ns.max(1)))).unwrap_or(usize::MAX).max(1)
    }

    /// What a thread does outside its locks for each acquisition of this one: by Little's law the threads' time, less what
    /// they held and waited.
    pub fn think_ns(&self, lock: usize, threads: usize) -> f64 {
        let busy_ns: f64 = self.locks.iter().map(|lock| as_f64(lock.held_ns) + as_f64(lock.waited_ns)).sum();
        let all_ns = number(threads) * as_f64(self.duration_ns);
        (all_ns - busy_ns).max(0.0) / as_f64(self.locks[lock].acquisitions.max(1))
    }

    /// Whether a lock has a part of its own in the network of this lock.
    fn is_modelled(lock: usize, other: usize) -> bool {
        other < MODELLED || other == lock
    }

    /// Acquisitions of each lock for one of this.
    fn visits(&self, lock: usize, of: usize) -> f64 {
        ratio(self.locks[of].acquisitions, self.locks[lock].acquisitions)
    }

    /// The network in which a cycle is one acquisition of this lock. Readers hold together, so their holds count as
    /// computing: the exact solution does not know that a writer keeps them out.
    pub fn network(&self, lock: usize, threads: usize) -> Network {
        let mut network = Network { think_ns: self.think_ns(lock, threads), stations: Vec::new() };
        for (at, other) in self.locks.iter().enumerate() {
            if at != lock && (other.is_shared() || !Self::is_modelled(lock, at)) {
                network.think_ns += self.visits(lock, at) * other.hold_ns();
            } else {
                network.stations.push(Station {
                    name: other.name.clone(),
                    visits: self.visits(lock, at),
                    hold_ns: other.hold_ns(),
                    handoff: Handoff::default(),
                });
            }
        }
        network
    }

    /// Which station of [`Self::network`] the lock is.
    pub fn station(&self, lock: usize) -> usize {
        self.locks[..lock].iter().take(MODELLED).filter(|other| !other.is_shared()).count()
    }

    /// The same for the simulation, with the durations that were measured and with readers as readers, whose holds a network
    /// with so much computing has in that.
    pub fn scene(&self, lock: usize, mut think_ns: f64, handoff: Handoff) -> Scene {
        let mut names: Vec<(&str, Kind)> = Vec::new();
        let mut visits = Vec::new();
        for (at, other) in self.locks.iter().enumerate() {
            if !Self::is_modelled(lock, at) {
                continue;
            }
            if at != lock && other.is_shared() {
                think_ns -= self.visits(lock, at) * other.hold_ns();
            }
            let name = (other.name.as_str(), other.kind);
            let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
                names.push(name);
                names.len() - 1
            });
            visits.push(Visit {
                lock: index,
                shared: other.is_shared(),
                per_cycle: self.visits(lock, at),
                hold: Duration::Histogram(other.holds.clone()),
            });
        }
        let of_lock = (self.locks[lock].name.as_str(), self.locks[lock].kind);
        let locks = names.iter().map(|name| if *name == of_lock { handoff } else { Handoff::default() }).collect();
        Scene { think_ns: think_ns.max(0.0), locks, visits }
    }
}

/// What tells locks apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key<'a> {
    name: &'a str,
    kind: Kind,
    mode: Mode,
}

impl<'a> Key<'a> {
    fn of(row: &'a lockmeter_profile::Row) -> Option<Self> {
        Some(Self { name: row.lock.as_deref()?, kind: row.kind?, mode: row.mode? })
    }
}

fn timed(row: &Row, key: Key<'_>, scale: impl Fn(u64) -> u64) -> MeasuredLock {
    MeasuredLock {
        name: key.name.to_owned(),
        kind: key.kind,
        mode: key.mode,
        acquisitions: scale(row.value.count),
        held_ns: scale(row.value.total_ns),
        waited_ns: 0,
        contended: 0,
        spin_ns: 0,
        holds: row
            .histogram
            .iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(_, count, ns)| (ratio(*ns, *count), *count))
            .collect(),
    }
}

/// What was counted in one time, in another.
pub(crate) fn scaled(amount: u64, to_ns: u64, from_ns: u64) -> u64 {
    let scaled = u128::from(amount) * u128::from(to_ns) / u128::from(from_ns.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { as_f64(part) / as_f64(whole) }
}

#[expect(clippy::cast_precision_loss, reason = "a model needs fewer digits than counts have")]
pub(crate) const fn as_f64(count: u64) -> f64 {
    count as f64
}
