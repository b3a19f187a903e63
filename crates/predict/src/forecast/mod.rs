//! From a recording's locks to throughput on more CPUs: as it is, without the lock, and with the lock split.

use std::fmt;

use lockmeter_statistics::Random;
use serde::Serialize;

use lockmeter_profile::{Kind, Report};

use self::fit::{Recorded, fit};
use crate::callers::{ByCaller, MOST_OFF, MeasuredCaller, Workers, by_caller};
use crate::measured::{Measured, MeasuredLock, as_f64};
use crate::network::{Handoff, Network, SECOND_NS};
use crate::processors::{self, Waiters};
use crate::simulation;

mod fit;
mod text;

/// What is asked.
#[derive(Debug, Clone)]
pub struct Plan {
    /// On how many CPUs.
    pub cpus: Vec<usize>,
    /// How many threads each of them has.
    pub threads_per_cpu: usize,
    /// Threads of the recording, where the user knows.
    pub threads: Option<usize>,
    /// Into how many locks the lock is split.
    pub shards: u32,
    /// What handing over costs.
    pub prices: Prices,
}

impl Plan {
    /// Whether all of it can be forecast.
    pub fn check(&self) -> Result<(), TooMuch> {
        let most_cpus = self.cpus.iter().max().copied().unwrap_or(0);
        let threads = most_cpus.saturating_mul(self.threads_per_cpu);
        if threads.max(most_cpus) > MOST_THREADS {
            return Err(TooMuch::Threads(threads.max(most_cpus)));
        }
        if self.shards > MOST_SHARDS {
            return Err(TooMuch::Shards(self.shards));
        }
        let is_price = |ns: f64| (0.0..=LONGEST_PRICE_NS).contains(&ns);
        let prices = is_price(self.prices.spin_ns) && is_price(self.prices.sleep_ns);
        if prices { Ok(()) } else { Err(TooMuch::Price) }
    }
}

/// A century.
const LONGEST_PRICE_NS: f64 = 3.2e18;

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

/// Fewer holds than this say nothing about how long the next ones would be, and how often they would come.
const ENOUGH_HOLDS: u64 = 100;

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
        } else if figures.spin_ns > figures.waited_ns / 2 {
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
    /// CPUs of the recording.
    pub cpus: usize,
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
    /// Why points, or some of their columns, are left out: see [`Self::refuse_if_doubtful`].
    pub refused: Option<String>,
    /// What each of its callers does to the others; `None` if it has one only, or none is known.
    pub by_caller: Option<ByCaller>,
}

impl Forecast {
    /// Leaves out what does not give what was recorded (the exact solution, the simulation, or both), and all of it where the recording
    /// has next to no holds of this lock.
    #[must_use]
    pub fn refuse_if_doubtful(mut self, of: &MeasuredLock) -> Self {
        if of.acquisitions < ENOUGH_HOLDS {
            self.points.clear();
            self.refused = Some(format!(
                "the recording has {} of this lock, fewer than the {ENOUGH_HOLDS} that a forecast needs; record for longer, or \
                 under more load",
                if of.acquisitions == 1 { "1 hold".to_owned() } else { format!("{} holds", of.acquisitions) }
            ));
            return self;
        }
        let Check { with_handoff, simulated, .. } = self.check;
        let is_far = |off: f64| off.abs() > MOST_OFF;
        let whose = match (is_far(with_handoff), is_far(simulated)) {
            (false, false) => return self,
            (true, true) => {
                self.points.clear();
                format!(
                    "the model is off by {:+.0} % where it was recorded, the simulation by {:+.0} %",
                    with_handoff * 100.0,
                    simulated * 100.0
                )
            }
            (true, false) => {
                for point in &mut self.points {
                    (point.spinning, point.sleeping, point.sharded) = (None, None, None);
                }
                format!("the model is off by {:+.0} % where it was recorded", with_handoff * 100.0)
            }
            (false, true) => {
                self.points.iter_mut().for_each(|point| point.simulated = None);
                format!("the simulation is off by {:+.0} % where the lock was recorded", simulated * 100.0)
            }
        };
        let most = MOST_OFF * 100.0;
        let reason = format!(
            "{whose}, and more than {most:.0} % is not to be trusted; say how many threads were at work (--threads)"
        );
        self.refused = Some(reason);
        self
    }

    /// With what its callers do, which a report by lock and caller knows.
    #[must_use]
    pub fn with_callers(mut self, measured: &Measured, lock: usize, report: &Report) -> Self {
        // Callers that hold together do not wait for each other.
        if !self.has_readers && measured.locks[lock].acquisitions >= ENOUGH_HOLDS {
            let callers = MeasuredCaller::of(&measured.locks[lock], report);
            let workers = Workers {
                duration_ns: measured.duration_ns,
                threads: self.threads,
                cpus: self.cpus,
                cpu_wait_ns: Workers::cpu_wait_ns(report, measured.duration_ns),
            };
            self.by_caller = by_caller(&callers, workers);
        }
        self
    }
}

/// The model against the recording it was made from: throughput, as a ratio less 1.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Check {
    /// The exact solution, handing over free.
    pub free_handoff: f64,
    /// With what handing over costs.
    pub with_handoff: f64,
    /// The simulation, with the holds that were measured.
    pub simulated: f64,
}

/// Throughput on this many CPUs, in acquisitions a second; `None` where the model is too far off.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Point {
    /// CPUs.
    pub cpus: usize,
    /// Threads on all of them.
    pub threads: usize,
    /// The lock as it is, its waiters spinning.
    pub spinning: Option<f64>,
    /// The lock as it is, its waiters asleep.
    pub sleeping: Option<f64>,
    /// As the recording's waiters wait (spinning, if none waited), simulated with the holds that were measured.
    pub simulated: Option<f64>,
    /// Without the lock.
    pub removed: f64,
    /// With the lock split.
    pub sharded: Option<f64>,
}

/// Predicts what each point of the plan gives for one lock of the recording.
///
/// # Panics
///
/// If the recording has no such lock.
pub fn forecast(measured: &Measured, lock: usize, plan: &Plan) -> Result<Forecast, TooMuch> {
    plan.check()?;
    let figures = &measured.locks[lock];
    let cpus = (measured.cpus as usize).max(1);
    let threads = threads_of(measured, plan)?;
    let recorded_per_second = as_f64(figures.acquisitions) / as_f64(measured.duration_ns.max(1)) * SECOND_NS;
    let waiting = Waiting::of(figures);
    let waiters = if figures.kind == Kind::Spin { Waiters::Burn } else { Waiters::Yield };
    let typical_ns = if waiting == Waiting::Sleeping { plan.prices.sleep_ns } else { plan.prices.spin_ns };
    let recorded = Recorded { threads, cpus, waiters, per_second: recorded_per_second, typical_ns };
    let fitted = fit(measured, lock, &recorded);
    let (network, station) = (&fitted.network, fitted.station);
    let price = fitted.handoff_ns.unwrap_or(typical_ns);
    let prices = match waiting {
        Waiting::Spinning => Prices { spin_ns: price, ..plan.prices },
        Waiting::NotSeen => plan.prices,
        Waiting::Sleeping => Prices { sleep_ns: price, ..plan.prices },
    };
    let scene = measured.scene(lock, network.think_ns, Handoff { base_ns: price, per_waiter_ns: 0.0 });
    let simulated =
        |threads, cpus| simulation::run(&scene, threads, cpus, SIMULATED_STEPS, &mut Random::new(SEED)).per_second;
    let error = |per_second: f64| per_second / recorded_per_second - 1.0;
    let as_recorded = |price_ns| {
        error(processors::per_second(&network.with_handoff(station, price_ns), station, threads, cpus, waiters))
    };
    let point = |cpus: usize| {
        let threads = cpus * plan.threads_per_cpu;
        let on = |network: &Network, station, waiters| processors::per_second(network, station, threads, cpus, waiters);
        let sharded = network.with_handoff(station, price).with_shards(station, plan.shards);
        Point {
            cpus,
            threads,
            spinning: Some(on(&network.with_handoff(station, prices.spin_ns), station, waiters)),
            sleeping: Some(on(&network.with_handoff(station, prices.sleep_ns), station, Waiters::Yield)),
            simulated: Some(simulated(threads, cpus)),
            removed: on(&network.without(station), usize::MAX, waiters),
            sharded: Some(on(&sharded, sharded.stations.len() - 1, waiters)),
        }
    };
    Ok(Forecast {
        lock: figures.name.clone(),
        kind: figures.kind.to_string(),
        mode: figures.mode.to_string(),
        threads,
        cpus,
        recorded_per_second,
        hold_ns: figures.hold_ns(),
        wait_ns: figures.wait_ns(),
        think_ns: network.think_ns,
        // Readers hold together, and what holds last is rounded.
        utilization: (as_f64(figures.held_ns) / as_f64(measured.duration_ns.max(1))).min(1.0),
        waiting,
        fitted_handoff_ns: fitted.handoff_ns,
        check: Check {
            free_handoff: as_recorded(0.0),
            with_handoff: as_recorded(price),
            simulated: error(simulated(threads, cpus)),
        },
        points: plan.cpus.iter().map(|cpus| point(*cpus)).collect(),
        has_readers: measured.locks.iter().any(|other| other.is_shared() && other.name == figures.name),
        refused: None,
        by_caller: None,
    })
}

/// Threads of the recording: as the user says, or one for each CPU, or as many as must have been.
fn threads_of(measured: &Measured, plan: &Plan) -> Result<usize, TooMuch> {
    let needed = measured.fewest_threads();
    if needed > MOST_THREADS {
        return Err(TooMuch::ThreadsNeeded(needed));
    }
    let assumed = plan.threads.unwrap_or((measured.cpus as usize).max(1));
    if assumed > MOST_THREADS {
        return Err(if plan.threads.is_some() { TooMuch::Threads(assumed) } else { TooMuch::Cpus(assumed) });
    }
    Ok(assumed.max(needed))
}

/// Any: the same each time, so that a forecast is the same for the same recording.
const SEED: u64 = 1;

/// The time to solve for threads grows with their square; this many take about a second for each lock.
pub const MOST_THREADS: usize = 1024;

/// Each shard is a lock to solve for.
pub const MOST_SHARDS: u32 = 64;

/// What cannot be forecast: a number that sizes the model is too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TooMuch {
    /// The recorded machine has this many CPUs, and the user does not say how many threads were at work.
    Cpus(usize),
    /// At least this many threads must have been at work in the recording.
    ThreadsNeeded(usize),
    /// Threads that the plan asks for.
    Threads(usize),
    /// Shards that the plan asks for.
    Shards(u32),
    /// A price that is negative, infinite or no number.
    Price,
}

impl fmt::Display for TooMuch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(cpus) => write!(
                f,
                "was recorded on {cpus} CPUs, and at most {MOST_THREADS} threads can be forecast; give the number of working \
                threads with --threads"
            ),
            Self::ThreadsNeeded(threads) => write!(
                f,
                "has holds and waits of at least {threads} threads at a time, and at most {MOST_THREADS} can be forecast; record fewer threads"
            ),
            Self::Threads(threads) => write!(
                f,
                "{threads} threads are more than can be forecast; at most {MOST_THREADS}: give fewer --cpus, --threads or --threads-per-cpu"
            ),
            Self::Shards(shards) => {
                write!(f, "{shards} shards are more than can be forecast; at most {MOST_SHARDS}: give fewer --shards")
            }
            Self::Price => write!(f, "the cost of a handoff is negative or too large; give a time such as 200ns"),
        }
    }
}

impl std::error::Error for TooMuch {}

impl TooMuch {
    /// Whether the recording is the cause, not the plan.
    pub const fn is_recorded(self) -> bool {
        matches!(self, Self::Cpus(_) | Self::ThreadsNeeded(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::view::{self, Query};
    use lockmeter_profile::{
        About, Blocker, BlockerSource, Bucket, Dimension, Frame, Happened, Interval, Key, Kind, Lock, Mode, Naming,
        OfFilesystem, Sampled, Total, Value,
    };

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
        Plan {
            cpus: vec![1, 4, 16],
            threads: Some(1),
            threads_per_cpu: 1,
            shards: 16,
            prices: Prices { spin_ns: 0.0, sleep_ns: 1_000.0 },
        }
    }

    #[test]
    fn a_recording_of_one_thread_is_met_exactly_and_saturates_at_one_hold_a_time() {
        let forecast = forecast(&one_thread(), 0, &plan()).unwrap();
        assert!((forecast.think_ns - 3_000.0).abs() < 1e-6);
        assert!(forecast.check.free_handoff.abs() < 1e-9);
        assert!(forecast.check.simulated.abs() < 0.02, "{:?}", forecast.check);
        let last = forecast.points[2];
        assert!((last.spinning.unwrap() / 1e6 - 1.0).abs() < 1e-3, "{last:?}");
        assert!((last.sleeping.unwrap() / 0.5e6 - 1.0).abs() < 1e-2, "{last:?}");
        assert!((last.removed / 4e6 - 1.0).abs() < 1e-9, "{last:?}");
        assert!(last.sharded > last.spinning && last.sharded.unwrap() < last.removed, "{last:?}");
    }

    #[test]
    fn more_threads_are_assumed_where_fewer_cannot_have_waited_so_long() {
        let mut measured = one_thread();
        measured.locks[0].waited_ns = 2_500_000_000;
        assert_eq!(measured.fewest_threads(), 3);
        assert_eq!(forecast(&measured, 0, &plan()).unwrap().threads, 3);
    }

    /// Makes sure that thousands of locks are no more work than a few, and that the lock asked for is there, however short its holds.
    #[test]
    fn a_lock_far_down_the_list_has_its_place_in_the_network() {
        let mut measured = one_thread();
        let small = |number: u64| lock(&format!("small{number}"), Mode::Exclusive, 1_000, 100 + number % 7, 0);
        measured.locks.extend((0..5_000).map(small));
        let forecast = forecast(&measured, 4_000, &plan()).unwrap();
        assert_eq!(forecast.lock, "small3999");
        assert!(
            forecast.check.free_handoff.abs() < 1e-6 && forecast.check.simulated.abs() < 0.05,
            "{:?}",
            forecast.check
        );
    }

    /// Makes sure that a model that does not even give what was recorded gives nothing else either.
    #[test]
    fn a_model_that_is_far_off_forecasts_nothing_and_says_why() {
        let near = forecast(&one_thread(), 0, &plan()).unwrap();
        assert!(near.clone().refuse_if_doubtful(&one_thread().locks[0]).refused.is_none());
        let check = Check { with_handoff: 0.2, simulated: -0.3, ..near.check };
        let far = Forecast { check, ..near.clone() }.refuse_if_doubtful(&one_thread().locks[0]);
        assert!(far.points.is_empty() && far.to_string().contains("no forecast for other CPUs"), "{far}");
        let reason = far.refused.unwrap();
        assert!(reason.contains("+20 %") && reason.contains("-30 %"), "{reason}");
        let one_is_near = Forecast { check: Check { simulated: 0.1, ..check }, ..near.clone() }
            .refuse_if_doubtful(&one_thread().locks[0]);
        let point = one_is_near.points[0];
        assert_eq!((point.spinning, point.sleeping, point.sharded), (None, None, None));
        assert!(
            point.simulated.is_some() && one_is_near.to_string().contains("the model is off by +20 %"),
            "{one_is_near}"
        );
        let other_is_near =
            Forecast { check: Check { with_handoff: 0.1, ..check }, ..near }.refuse_if_doubtful(&one_thread().locks[0]);
        let point = other_is_near.points[0];
        assert!(point.simulated.is_none() && point.spinning.is_some(), "{other_is_near}");
    }

    /// Two callers of the lock `rare`, which hold it equally often.
    fn of_two_callers(holds: u64) -> Report {
        let mut interval = Interval { duration_ns: 1_000_000_000, ..Interval::default() };
        let (name, naming) = ("rare".to_owned(), Naming::Symbol);
        let lock = interval.tables.intern_lock(Lock { name, object: None, naming, detail: String::new() });
        let key = Key { bucket: Bucket::of(250), ..Key::of(Happened::Hold, lock, Kind::Mutex, Mode::Exclusive) };
        let value = Value { count: holds / 2, total_ns: holds / 2 * 250, max_ns: 250, spin_ns: 0 };
        for address in [1, 2] {
            let function = Some(format!("caller_{address}"));
            let frame = interval.tables.intern_frame(Frame { address, function, offset: 0, module: None });
            let sampled = Sampled {
                key,
                instance: None,
                filesystem: OfFilesystem::None,
                site: Some(interval.tables.intern_stack(vec![frame])),
                blocker: Blocker::unknown(BlockerSource::NotSampled),
                stacks: holds / 2,
                estimate: value,
            };
            interval.totals.push(Total { key, value });
            interval.sampled.push(sampled);
        }
        view::report(&About::default(), std::iter::once(interval), &Query::by([Dimension::Lock, Dimension::Caller]))
    }

    /// Regression: 24 holds in a minute were drawn as a line to 256 CPUs.
    #[test]
    fn of_a_few_holds_nothing_is_forecast() {
        let mut measured = one_thread();
        for (holds, is_enough) in [(1, false), (99, false), (100, true)] {
            measured.locks[0] = lock("rare", Mode::Exclusive, holds, holds * 250, 0);
            let forecast = forecast(&measured, 0, &plan()).unwrap().refuse_if_doubtful(&measured.locks[0]);
            assert_eq!(forecast.points.is_empty(), !is_enough, "{holds}: {forecast}");
            assert_eq!(forecast.to_string().contains("fewer than the 100"), !is_enough, "{forecast}");
            let by_caller = forecast.with_callers(&measured, 0, &of_two_callers(holds)).by_caller;
            assert_eq!(by_caller.is_some(), is_enough, "{holds}: {by_caller:?}");
        }
    }

    #[test]
    fn readers_do_not_queue_for_each_other() {
        let mut measured = one_thread();
        measured.locks[0].mode = Mode::Read;
        let forecast = forecast(&measured, 0, &plan()).unwrap();
        assert!((forecast.points[2].simulated.unwrap() / 4e6 - 1.0).abs() < 0.05, "{:?}", forecast.points);
        assert!(forecast.has_readers);
    }

    /// Makes sure that no number of a recording or a plan sizes the model without a bound.
    #[test]
    fn more_threads_than_can_be_forecast_are_refused() {
        let on_many = Measured { cpus: u32::MAX, ..one_thread() };
        let assumed = Plan { threads: None, ..plan() };
        assert_eq!(forecast(&on_many, 0, &assumed).unwrap_err(), TooMuch::Cpus(u32::MAX as usize));
        assert_eq!(forecast(&on_many, 0, &plan()).unwrap().threads, 1, "the user says how many");
        let short = Measured { duration_ns: 1, ..one_thread() };
        assert_eq!(forecast(&short, 0, &plan()).unwrap_err(), TooMuch::ThreadsNeeded(250_000_000));
        let wide = Plan { cpus: vec![1, usize::MAX], threads_per_cpu: 2, ..plan() };
        assert_eq!(forecast(&one_thread(), 0, &wide).unwrap_err(), TooMuch::Threads(usize::MAX));
        let split = Plan { shards: 65, ..plan() };
        assert_eq!(forecast(&one_thread(), 0, &split).unwrap_err(), TooMuch::Shards(65));
        let endless = Plan { prices: Prices { spin_ns: f64::NAN, sleep_ns: 0.0 }, ..plan() };
        assert_eq!(forecast(&one_thread(), 0, &endless).unwrap_err(), TooMuch::Price);
    }

    #[test]
    fn numbers_at_the_end_of_their_range_give_numbers() {
        let mut measured = one_thread();
        let most = MeasuredLock {
            held_ns: u64::MAX,
            waited_ns: u64::MAX,
            contended: u64::MAX,
            spin_ns: u64::MAX,
            holds: vec![(1.8e19, u64::MAX), (0.0, u64::MAX)],
            ..lock("most", Mode::Exclusive, 1, 0, 0)
        };
        measured.locks.push(most);
        measured.locks.push(lock("least", Mode::Read, u64::MAX, 0, 0));
        measured.duration_ns = u64::MAX;
        for at in 0..measured.locks.len() {
            let forecast = forecast(&measured, at, &plan()).unwrap();
            assert!(forecast.utilization <= 1.0);
            for point in forecast.points {
                let rates = [point.spinning, point.sleeping, point.simulated, Some(point.removed), point.sharded];
                assert!(rates.iter().flatten().all(|rate| rate.is_finite() && *rate >= 0.0), "{rates:?}");
            }
        }
    }
}
