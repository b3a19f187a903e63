//! From a recording's locks to throughput on more CPUs: as it is, without the lock, and with the lock split.

use std::fmt;

use lockmeter_statistics::Random;
use serde::Serialize;

use crate::measured::{Measured, MeasuredLock, as_f64};
use crate::network::{Handoff, Network, SECOND_NS, number};
use crate::{convolution, mva, simulation};

/// What is asked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// On how many CPUs, one thread on each.
    pub cpus: Vec<usize>,
    /// Threads of the recording, where the user knows.
    pub threads: Option<usize>,
    /// Into how many locks the lock is split.
    pub shards: u32,
    /// What handing over costs.
    pub prices: Prices,
}

/// What handing a lock over costs where the recording does not tell.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    /// To a waiter that spins.
    pub spin_ns: f64,
    /// To a waiter that sleeps: it must be woken first.
    pub sleep_ns: f64,
}

/// A cache line travels once to the waiter, once for its first write: some 100 ns each between CPUs.
const TYPICAL_SPIN_NS: f64 = 200.0;
/// From a futex wake to the woken thread's first instruction, on an idle CPU.
const TYPICAL_SLEEP_NS: f64 = 5_000.0;

impl Default for Prices {
    fn default() -> Self {
        Self { spin_ns: TYPICAL_SPIN_NS, sleep_ns: TYPICAL_SLEEP_NS }
    }
}

/// Fewer waits than this say nothing about what handing over costs.
const ENOUGH_WAITS: u64 = 100;

/// Enough that repeated simulations differ by less than a percent.
const SIMULATED_STEPS: u64 = 200_000;

/// How waiters of this lock waited in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Waiting {
    /// Mostly burning a CPU.
    Spinning,
    /// Mostly asleep.
    Sleeping,
    /// Too few waited to tell.
    NotSeen,
}

impl Waiting {
    fn of(figures: &MeasuredLock) -> Self {
        if figures.contended < ENOUGH_WAITS {
            Self::NotSeen
        } else if figures.spin_ns * 2 > figures.waited_ns {
            Self::Spinning
        } else {
            Self::Sleeping
        }
    }
}

/// What the recording says, and what the model makes of it.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// The lock.
    pub lock: String,
    /// Its kind.
    pub kind: String,
    /// The mode.
    pub mode: String,
    /// Threads of the recording: as told, or one for each CPU, or as many as must have been.
    pub threads: usize,
    /// Acquisitions a second in the recording.
    pub recorded_per_second: f64,
    /// Mean hold.
    pub hold_ns: f64,
    /// Mean wait over all acquisitions, contended or not.
    pub wait_ns: f64,
    /// What a thread does elsewhere for each acquisition.
    pub think_ns: f64,
    /// Share of the recording during which the lock was held.
    pub utilization: f64,
    /// How its waiters waited.
    pub waiting: Waiting,
    /// What handing over costs, as the recording's waits say; `None` if they are too few.
    pub fitted_handoff_ns: Option<f64>,
    /// How far the model is from the recording.
    pub check: Check,
    /// On more CPUs.
    pub points: Vec<Point>,
    /// Whether writers and readers share this lock, whose interplay only the simulation knows.
    pub has_readers: bool,
}

/// The model against the recording it was made from: throughput, as a ratio less 1.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Check {
    /// Mean-value analysis, handing over free.
    pub free_handoff: f64,
    /// With what handing over costs.
    pub with_handoff: f64,
    /// The simulation, with the holds that were measured.
    pub simulated: f64,
}

/// Throughput on so many CPUs, in acquisitions a second.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// CPUs, one thread on each.
    pub cpus: usize,
    /// The lock as it is, its waiters spinning.
    pub spinning: f64,
    /// The lock as it is, its waiters asleep.
    pub sleeping: f64,
    /// As the recording's waiters wait (spinning, if none waited), simulated with the holds that were measured.
    pub simulated: f64,
    /// Without the lock.
    pub removed: f64,
    /// With the lock split.
    pub sharded: f64,
}

/// Predicts what each point of the plan gives for one lock of the recording.
pub fn forecast(measured: &Measured, lock: usize, plan: &Plan) -> Forecast {
    let figures = &measured.locks[lock];
    let threads = plan.threads.unwrap_or(measured.cpus as usize).max(measured.fewest_threads());
    let network = measured.network(lock, threads);
    let station = measured.station(lock);
    let recorded_per_second = as_f64(figures.acquisitions) / as_f64(measured.duration_ns.max(1)) * SECOND_NS;
    let waiting = Waiting::of(figures);
    let fitted = fit_handoff(&network, station, threads, figures);
    let prices = match waiting {
        Waiting::Spinning => Prices { spin_ns: fitted.unwrap_or(plan.prices.spin_ns), ..plan.prices },
        Waiting::NotSeen => plan.prices,
        Waiting::Sleeping => Prices { sleep_ns: fitted.unwrap_or(plan.prices.sleep_ns), ..plan.prices },
    };
    let price = if waiting == Waiting::Sleeping { prices.sleep_ns } else { prices.spin_ns };
    let simulated = |threads_now| {
        let scene = measured.scene(lock, threads, Handoff { base_ns: price, per_waiter_ns: 0.0 });
        simulation::run(&scene, threads_now, SIMULATED_STEPS, &mut Random::new(SEED)).per_second
    };
    let error = |per_second: f64| per_second / recorded_per_second - 1.0;
    let point = |cpus: usize| {
        let on = |network: &Network| convolution::per_second(network, cpus);
        Point {
            cpus,
            spinning: on(&priced(&network, station, prices.spin_ns)),
            sleeping: on(&priced(&network, station, prices.sleep_ns)),
            simulated: simulated(cpus),
            removed: on(&network.without(station)),
            sharded: on(&priced(&network, station, price).with_shards(station, plan.shards)),
        }
    };
    Forecast {
        lock: figures.name.clone(),
        kind: figures.kind.to_string(),
        mode: figures.mode.to_string(),
        threads,
        recorded_per_second,
        hold_ns: figures.hold_ns(),
        wait_ns: figures.wait_ns(),
        think_ns: network.think_ns,
        utilization: as_f64(figures.held_ns) / as_f64(measured.duration_ns.max(1)),
        waiting,
        fitted_handoff_ns: fitted,
        check: Check {
            free_handoff: error(mva::solve(&network, threads).per_second),
            with_handoff: error(convolution::per_second(&priced(&network, station, price), threads)),
            simulated: error(simulated(threads)),
        },
        points: plan.cpus.iter().map(|cpus| point(*cpus)).collect(),
        has_readers: measured.locks.iter().any(|other| other.is_shared() && other.name == figures.name),
    }
}

/// Any: the same each time, so that a forecast is the same for the same recording.
const SEED: u64 = 1;

fn priced(network: &Network, station: usize, base_ns: f64) -> Network {
    let mut network = network.clone();
    if let Some(station) = network.stations.get_mut(station) {
        station.handoff = Handoff { base_ns, per_waiter_ns: 0.0 };
    }
    network
}

/// The price at which the model waits as long as was measured: by halving an interval, for waiting grows with the price.
/// `None` if too few waited; 0 if they waited less than exponential holds would have them wait.
fn fit_handoff(network: &Network, station: usize, threads: usize, figures: &MeasuredLock) -> Option<f64> {
    const LONGEST_NS: f64 = 1e9;
    const HALVINGS: usize = 60;
    if figures.contended < ENOUGH_WAITS || threads < 2 || station >= network.stations.len() {
        return None;
    }
    let residence_ns = convolution::residence_ns_by_price(network, station, threads);
    let residence_ns = |base_ns: f64| residence_ns(Handoff { base_ns, per_waiter_ns: 0.0 });
    let measured_ns = figures.hold_ns() + figures.wait_ns();
    let (mut low, mut high) = (0.0, LONGEST_NS);
    if residence_ns(low) >= measured_ns {
        return Some(0.0);
    }
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if residence_ns(middle) < measured_ns { low = middle } else { high = middle }
    }
    Some(low)
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({}, {}): held {} a time, {:.1} % of the time; waited for {} a time; {} elsewhere for each acquisition",
            self.lock,
            self.kind,
            self.mode,
            time(self.hold_ns),
            self.utilization * 100.0,
            time(self.wait_ns),
            time(self.think_ns)
        )?;
        let how = if self.waiting == Waiting::Sleeping { "slept" } else { "spun" };
        match self.fitted_handoff_ns {
            Some(price) => {
                writeln!(f, "its waiters {how}; as long as they waited, handing it over costs {}", time(price))?
            }
            None => writeln!(f, "too few waited for it to tell what handing it over costs: typical prices stand in")?,
        }
        writeln!(
            f,
            "recorded {}/s with {} threads; the model is off by {:+.1} % ({:+.1} % with free handoffs), the simulation by {:+.1} %\n",
            rate(self.recorded_per_second),
            self.threads,
            self.check.with_handoff * 100.0,
            self.check.free_handoff * 100.0,
            self.check.simulated * 100.0
        )?;
        writeln!(
            f,
            "{:>6} {:>12} {:>12} {:>12} {:>12} {:>12}",
            "CPUS", "SPINNING", "SLEEPING", "SIMULATED", "SHARDED", "REMOVED"
        )?;
        for point in &self.points {
            let cells = [point.spinning, point.sleeping, point.simulated, point.sharded, point.removed];
            write!(f, "{:>6}", point.cpus)?;
            for cell in cells {
                write!(f, " {:>12}", format!("{}/s", rate(cell)))?;
            }
            writeln!(f)?;
        }
        if self.has_readers {
            writeln!(
                f,
                "readers and writers of this lock keep each other out only in the simulation: trust that column"
            )?;
        }
        Ok(())
    }
}

/// A rate with three digits.
fn rate(per_second: f64) -> String {
    let steps = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, letter) = steps.into_iter().find(|(unit, _)| per_second >= *unit).unwrap_or((1.0, ""));
    three_digits(per_second / unit, letter)
}

/// A duration with three digits.
fn time(ns: f64) -> String {
    let steps = [(1e9, "s"), (1e6, "ms"), (1e3, "µs")];
    let (unit, name) = steps.into_iter().find(|(unit, _)| ns >= *unit).unwrap_or((1.0, "ns"));
    three_digits(ns / unit, name)
}

fn three_digits(value: f64, unit: &str) -> String {
    let digits = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.digits$} {unit}").trim_end().to_owned()
}

/// Threads that would be too many to solve for in a moment.
pub const MOST_CPUS: usize = 1024;

/// Whether a number of CPUs can be solved for.
pub fn is_possible(cpus: usize) -> bool {
    (1..=MOST_CPUS).contains(&cpus) && number(cpus) > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::{Kind, Mode};

    fn lock(name: &str, mode: Mode, acquisitions: u64, hold_ns: u64, waited_ns: u64) -> MeasuredLock {
        MeasuredLock {
            name: name.into(),
            kind: Kind::Mutex,
            mode,
            acquisitions,
            held_ns: acquisitions * hold_ns,
            waited_ns,
            contended: acquisitions / 10,
            spin_ns: 0,
            holds: vec![(as_f64(hold_ns), acquisitions)],
        }
    }

    /// A second of one thread that computes 3 µs and holds the lock 1 µs.
    fn one_thread() -> Measured {
        let hot = MeasuredLock { contended: 0, ..lock("hot", Mode::Exclusive, 250_000, 1_000, 0) };
        Measured { duration_ns: 1_000_000_000, locks: vec![hot], untimed_ns: 0, cpus: 1 }
    }

    fn plan() -> Plan {
        Plan { cpus: vec![1, 4, 16], threads: Some(1), shards: 16, prices: Prices { spin_ns: 0.0, sleep_ns: 1_000.0 } }
    }

    #[test]
    fn a_recording_of_one_thread_is_met_exactly_and_saturates_at_one_hold_a_time() {
        let forecast = forecast(&one_thread(), 0, &plan());
        assert!((forecast.think_ns - 3_000.0).abs() < 1e-6);
        assert!(forecast.check.free_handoff.abs() < 1e-9);
        assert!(forecast.check.simulated.abs() < 0.02, "{:?}", forecast.check);
        let last = forecast.points[2];
        assert!((last.spinning / 1e6 - 1.0).abs() < 1e-3, "{last:?}");
        assert!((last.sleeping / 0.5e6 - 1.0).abs() < 1e-2, "{last:?}");
        assert!((last.removed / 4e6 - 1.0).abs() < 1e-9, "{last:?}");
        assert!(last.sharded > last.spinning && last.sharded < last.removed, "{last:?}");
    }

    #[test]
    fn what_handing_over_costs_is_found_again_in_the_waits_that_it_causes() {
        let network = Network { think_ns: 3_000.0, stations: one_thread().network(0, 1).stations };
        let solved = convolution::solve(&priced(&network, 0, 700.0), 4);
        let acquisitions = 1_000_000;
        let waited_ns = (solved.stations[0].residence_ns - 1_000.0) * as_f64(acquisitions);
        let figures = lock("hot", Mode::Exclusive, acquisitions, 1_000, waited_ns as u64);
        let fitted = fit_handoff(&network, 0, 4, &figures).unwrap();
        assert!((fitted - 700.0).abs() < 1.0, "{fitted}");
    }

    #[test]
    fn more_threads_are_assumed_where_fewer_cannot_have_waited_so_long() {
        let mut measured = one_thread();
        measured.locks[0].waited_ns = 2_500_000_000;
        assert_eq!(measured.fewest_threads(), 3);
        assert_eq!(forecast(&measured, 0, &plan()).threads, 3);
    }

    /// Makes sure that thousands of locks are no more work than a few, and that the lock asked for is there, however short its holds.
    #[test]
    fn a_lock_far_down_the_list_has_its_place_in_the_network() {
        let mut measured = one_thread();
        let small = |number: u64| lock(&format!("small{number}"), Mode::Exclusive, 1_000, 100 + number % 7, 0);
        measured.locks.extend((0..5_000).map(small));
        let forecast = forecast(&measured, 4_000, &plan());
        assert_eq!(forecast.lock, "small3999");
        assert!(
            forecast.check.free_handoff.abs() < 1e-6 && forecast.check.simulated.abs() < 0.05,
            "{:?}",
            forecast.check
        );
    }

    #[test]
    fn readers_do_not_queue_for_each_other() {
        let mut measured = one_thread();
        measured.locks[0].mode = Mode::Read;
        let forecast = forecast(&measured, 0, &plan());
        assert!((forecast.points[2].simulated / 4e6 - 1.0).abs() < 0.05, "{:?}", forecast.points);
        assert!(forecast.has_readers);
    }

    #[test]
    fn numbers_are_shown_with_three_digits() {
        assert_eq!(
            (time(999.0).as_str(), time(1_234.0).as_str(), rate(2.5e6).as_str()),
            ("999 ns", "1.23 µs", "2.50 M")
        );
    }
}
