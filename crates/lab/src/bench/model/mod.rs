//! `lockmeter-lab bench model`: what is predicted of a contended lock against what is measured, and against published figures.
//!
//! The old breakpoint accounting has one hot lock. From what one thread needs for it, and from what single steps of waiting cost
//! here, its acquisitions are simulated step by step; the queueing model says the same from a price of handing over, measured in
//! another load. Then threads run. All in this process, slice after slice, and again those in which other processes took a CPU.

mod alone;
mod recorded;
mod text;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use lock_api::RawMutex;
use lockmeter_experiments::breakpoint::designs::BYTES_OF_A_CPU;
use lockmeter_experiments::breakpoint::race::{Broken, Design, Plan as Race, Work, alone_ns, run_once};
use lockmeter_experiments::contention::{Data, Load, acquisition_ns};
use lockmeter_experiments::locks_under_test::{MeteredMutex, ReaderLock, SPIN_TIMES, TaskMutex};
use lockmeter_experiments::published::{self, Compared, OneThread};
use lockmeter_experiments::step_by_step::{self, Costs, Lock, Simulation};
use lockmeter_experiments::step_costs;
use lockmeter_predict::network::{Handoff, Network, Station};
use lockmeter_predict::processors::{self, Waiters};
use lockmeter_statistics::{Disturbances, Estimate, Machine, Random};
use serde::Serialize;

use self::alone::{Beside, Drifts, Task};
use self::recorded::Recorded;
use super::{Stop, cores, write};
use crate::arguments::bench::ModelArguments;
use crate::time_left::TimeLeft;

/// CPUs that the accounting looks at: holds of a quarter of a microsecond, of one and a half, and of five.
const CPUS: [usize; 3] = [8, 64, 256];
/// What a task computes beside its accounting: little, so that the lock is never free; and so much that it often is.
const WORKS: [Duration; 2] = [Duration::from_micros(2), Duration::from_micros(20)];
/// As published.
const PUBLISHED_CPUS: usize = 256;
/// The kernel's accounting of each CPU lies in that CPU's own memory: in a page of its own, and not all in the same set of a cache.
const PUBLISHED_DATA: Data = Data { words: PUBLISHED_CPUS, stride: 4096 + 64 };
const BREAKPOINTS: u32 = 4;
/// A slot is taken and given back for each breakpoint.
const ACQUISITIONS: usize = 2 * BREAKPOINTS as usize;
/// Short enough to find a moment without other work, long enough for thousands of acquisitions.
const SLICE: Duration = Duration::from_millis(100);
/// Acquisitions of a simulation: its repetitions differ by less than a percent.
const SIMULATED: u64 = 50_000;
/// Where a price is measured, threads compute so much of their hold between two acquisitions: the lock is hot.
const THINK_SHARE: f64 = 0.25;
/// The error that a prediction is to keep within.
const AIM: f64 = 0.15;
/// One round, or two, have no spread to speak of.
const FEWEST_ROUNDS: usize = 3;
#[derive(Debug, Serialize)]
struct Results {
    points: Vec<Point>,
    recorded: Vec<Recorded>,
    /// Why there is none.
    recorded_missing: Option<String>,
    /// What waking a sleeper took, in the last round.
    steps: Option<Costs>,
    one_thread: OneThread,
    published: Vec<Compared>,
    disturbances: Disturbances,
    /// Slices repeated because one thread was faster or slower after them than before, or a line's way another, and those kept although.
    drifts: Drifts,
}

/// Acquisitions a second of the global mutex.
#[derive(Debug, Serialize)]
struct Point {
    lock: &'static str,
    hold_ns: f64,
    think_ns: f64,
    threads: usize,
    measured: Estimate,
    /// Simulated step by step.
    predicted: Estimate,
    /// By the queueing model, with what handing over costs in another load.
    queued: Estimate,
    /// Predicted over measured, less 1, round by round: what the machine does changes from one to the next.
    error: Estimate,
    queue_error: Estimate,
    verdict: Verdict,
}

/// Whether the interval of a point's error lies within the aim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Verdict {
    Within,
    /// Partly: more rounds would tell.
    Undecided,
    Missed,
}

impl Verdict {
    fn on(error: &Estimate) -> Self {
        if error.samples < FEWEST_ROUNDS {
            Self::Undecided
        } else if error.low >= -AIM && error.high <= AIM {
            Self::Within
        } else if error.low > AIM || error.high < -AIM {
            Self::Missed
        } else {
            Self::Undecided
        }
    }
}

pub fn run(arguments: &ModelArguments) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let threads = if arguments.threads.is_empty() {
        [1, 2, 4].map(|each| (each * cores()).max(2)).to_vec()
    } else {
        arguments.threads.clone()
    };
    let mut bench = Bench {
        threads,
        rounds: arguments.rounds,
        random: Random::new(arguments.seed),
        stop: Stop::catch()?,
        disturbances: Disturbances::default(),
        drifts: Drifts::default(),
        time_left: TimeLeft::new(),
        costs: None,
    };
    let points = bench.points()?;
    bench.time_left.clear();
    let one_thread = bench.one_thread()?;
    let recorded = recorded::check(cores(), arguments.rounds, &mut bench.stop, &mut bench.random);
    let (recorded, recorded_missing) = match recorded {
        Ok(recorded) => (recorded, None),
        Err(why) => (Vec::new(), Some(format!("{why:#}"))),
    };
    let results = Results {
        points,
        recorded,
        recorded_missing,
        steps: bench.costs,
        one_thread,
        published: published::compare(one_thread).to_vec(),
        disturbances: bench.disturbances,
        drifts: bench.drifts,
    };
    write(arguments.format, machine, &results, &text::of(&results))
}

struct Bench {
    threads: Vec<usize>,
    rounds: usize,
    random: Random,
    stop: Stop,
    disturbances: Disturbances,
    drifts: Drifts,
    time_left: TimeLeft,
    costs: Option<Costs>,
}

/// What one round gave for one point, in acquisitions a second.
struct Sample {
    threads: usize,
    hold_ns: f64,
    think_ns: f64,
    measured: f64,
    predicted: f64,
    queued: f64,
}

/// What handing a lock over costs.
struct Prices {
    /// While each thread has a CPU: the next holder may have to wake a CPU that went idle.
    own_cpu_ns: f64,
    /// While threads wait for CPUs, too.
    overcommitted_ns: f64,
}

impl Bench {
    /// The points of all rounds. A round goes through all points, so that what drifts meets all of them alike.
    fn points(&mut self) -> Result<Vec<Point>> {
        const SPINS: &str = "lockmeter's Mutex, which spins first";
        const SLEEPS: &str = "pthread_mutex, which sleeps";
        let mut samples: Vec<(&str, Vec<Sample>)> = Vec::new();
        let mut left = 2 * CPUS.len() * self.rounds;
        for _ in 0..self.rounds {
            let mut at = 0;
            for (name, lock) in [(SPINS, Lock::SpinsFirst(SPIN_TIMES)), (SLEEPS, Lock::SleepsAtOnce)] {
                for cpus in CPUS {
                    self.time_left.step("the model", left);
                    left -= 1;
                    if !self.stop.go_on() {
                        break;
                    }
                    let round = match lock {
                        Lock::SpinsFirst(_) => self.round::<TaskMutex>(lock, cpus)?,
                        Lock::SleepsAtOnce => self.round::<MeteredMutex>(lock, cpus)?,
                    };
                    for sample in round {
                        if samples.len() <= at {
                            samples.push((name, Vec::new()));
                        }
                        samples[at].1.push(sample);
                        at += 1;
                    }
                }
            }
        }
        Ok(samples.iter().filter_map(|(name, samples)| self.point(name, samples)).collect())
    }

    /// Every work and every number of threads once, with all that is needed to predict them.
    fn round<M: RawMutex + Send + Sync>(&mut self, lock: Lock, cpus: usize) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let shares = self.disturbances.avoid(|| alone_ns::<M>(cpus, BREAKPOINTS));
        let mut costs = self.disturbances.avoid(step_costs::measure);
        let gap_ns = self.time::<M>(Design::Ideal, cpus, Work::NONE, 1)?;
        let hold_ns = self.time::<M>(Design::Before, cpus, Work::NONE, 1)? - gap_ns;
        let prices = self.prices::<M>(hold_ns.max(1.0), Data::lines_of(cpus * BYTES_OF_A_CPU));
        for work in WORKS.map(Work::lasting) {
            let task = Task { cpus, work, gap_ns, shares };
            for threads in self.threads.clone() {
                let (measured_ns, Beside { alone, passing, wakes }) = self.beside_one_thread::<M>(&task, threads)?;
                (costs.line_ns, costs.moved_ns, costs.wakes) = (passing.line_ns, passing.moved_ns, wakes);
                let price_ns = if threads > cores() { prices.overcommitted_ns } else { prices.own_cpu_ns };
                let network = network(alone.think_ns, alone.mean_hold_ns(), price_ns);
                let cycle = alone.cycle();
                let simulation = Simulation { lock, cycle: &cycle, costs: &costs, threads, cpus: cores() };
                let outcome = step_by_step::run(simulation, SIMULATED, &mut self.random);
                samples.push(Sample {
                    threads,
                    hold_ns: alone.mean_hold_ns(),
                    think_ns: alone.think_ns,
                    measured: 1e9 / measured_ns,
                    predicted: outcome.per_second,
                    queued: processors::per_second(&network, 0, threads, cores(), Waiters::Yield),
                });
            }
        }
        self.costs = Some(costs);
        Ok(samples)
    }

    /// Nanoseconds for each of a task's acquisitions.
    fn time<M: RawMutex + Send + Sync>(
        &mut self,
        design: Design,
        cpus: usize,
        work: Work,
        threads: usize,
    ) -> Result<f64> {
        let plan = race(cpus, work, SLICE, None);
        let task_ns = self.disturbances.avoid_unless_failed(|| run_once::<M, ReaderLock>(design, &plan, threads));
        Ok(task_ns.map_err(broken)? / ACQUISITIONS as f64)
    }

    /// By a load of known holds that write as much as the accounting does, and do nothing else that it does.
    fn prices<M: RawMutex + Send + Sync>(&mut self, hold_ns: f64, data: Data) -> Prices {
        let work = |ns: f64| Work::lasting(Duration::from_nanos(ns as u64));
        let (hold, think) = (work(hold_ns), work(hold_ns * THINK_SHARE));
        let mut time = |threads| {
            self.disturbances.avoid(|| acquisition_ns::<M>(Load { hold, data, think, threads, slice: SLICE }))
        };
        let alone_ns = time(1);
        let think_ns = hold_ns * THINK_SHARE;
        let bare = network(think_ns, (alone_ns - think_ns).max(1.0), 0.0);
        let mut price = |threads| processors::price_ns(&bare, threads, cores(), time(threads));
        Prices { own_cpu_ns: price(2.min(cores())), overcommitted_ns: price(2 * cores()) }
    }

    fn point(&mut self, lock: &'static str, samples: &[Sample]) -> Option<Point> {
        let mut of =
            |of: fn(&Sample) -> f64| Estimate::of(&samples.iter().map(of).collect::<Vec<_>>(), &mut self.random);
        let error = of(|sample| sample.predicted / sample.measured - 1.0)?;
        Some(Point {
            lock,
            hold_ns: of(|sample| sample.hold_ns)?.median,
            think_ns: of(|sample| sample.think_ns)?.median,
            threads: samples.first()?.threads,
            measured: of(|sample| sample.measured)?,
            predicted: of(|sample| sample.predicted)?,
            queued: of(|sample| sample.queued)?,
            verdict: Verdict::on(&error),
            error,
            queue_error: of(|sample| sample.queued / sample.measured - 1.0)?,
        })
    }

    /// What one thread needs for its accounting, on as many CPUs as the published machine has.
    fn one_thread(&mut self) -> Result<OneThread> {
        let work = Work::lasting(WORKS[0]);
        let [mut before, mut after, mut handoff] = [const { Vec::new() }; 3];
        for _ in 0..self.rounds {
            if !self.stop.go_on() {
                break;
            }
            let ideal_ns = self.time::<TaskMutex>(Design::Ideal, PUBLISHED_CPUS, work, 1)?;
            let mut beyond = |design| -> Result<f64> {
                Ok((self.time::<TaskMutex>(design, PUBLISHED_CPUS, work, 1)? - ideal_ns).max(0.0))
            };
            let before_ns = beyond(Design::Before)?;
            before.push(before_ns);
            after.push(beyond(Design::After)?);
            handoff.push(self.prices::<TaskMutex>(before_ns, PUBLISHED_DATA).own_cpu_ns);
        }
        let mut median =
            |samples: &[f64]| Estimate::of(samples, &mut self.random).map_or(0.0, |estimate| estimate.median);
        Ok(OneThread { before_ns: median(&before), after_ns: median(&after), handoff_ns: median(&handoff) })
    }
}

/// A lock, and what threads do between two acquisitions.
fn network(think_ns: f64, hold_ns: f64, base_ns: f64) -> Network {
    let handoff = Handoff { base_ns, per_waiter_ns: 0.0 };
    Network { think_ns, stations: vec![Station { name: "global mutex".into(), visits: 1.0, hold_ns, handoff }] }
}

/// One run of threads that take and give back slots.
fn race(cpus: usize, work: Work, slice: Duration, first_cpu: Option<usize>) -> Race {
    let settling = Duration::ZERO;
    Race {
        threads: Vec::new(),
        breakpoints: BREAKPOINTS,
        cpu_targets_percent: 0,
        slice,
        work,
        cpus,
        rounds: 1,
        first_cpu,
        settling,
    }
}

fn broken(broken: Broken) -> anyhow::Error {
    anyhow!("{broken}")
}
