//! `lockmeter bench model`: the queueing model against measured points, against a simulation, and against published figures.
//!
//! The old breakpoint accounting has one hot lock. From what one thread needs for it, and from what handing such a lock over
//! costs in another program that knows its own holds, the model says what more threads give; then they run. All in this process, one
//! slice after another, and again those in which other processes took a CPU.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use lock_api::RawMutex;
use lockmeter_experiments::breakpoint::designs::BYTES_OF_A_CPU;
use lockmeter_experiments::breakpoint::race::{Design, Plan as Race, Work, run_once};
use lockmeter_experiments::contention::{Data, Load, acquisition_ns};
use lockmeter_experiments::locks_under_test::{MeteredMutex, ReaderLock, TaskMutex};
use lockmeter_experiments::undisturbed::Disturbances;
use lockmeter_predict::network::{Handoff, Network, Station};
use lockmeter_predict::processors::{self, Waiters};
use lockmeter_predict::published::{self, Compared, OneThread};
use lockmeter_predict::simulation::{self, Scene};
use lockmeter_statistics::{Estimate, Machine, Random};
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::ModelArguments;
use crate::overhead::time_left::TimeLeft;

/// CPUs that the accounting looks at: holds of a quarter of a microsecond, of one and a half, and of five.
const CPUS: [usize; 3] = [8, 64, 256];
/// What a task computes beside its accounting: little, so that the lock is never free; and so much that it often is.
const WORKS: [Duration; 2] = [Duration::from_micros(2), Duration::from_micros(20)];
/// As published.
const PUBLISHED_CPUS: usize = 256;
/// The kernel's accounting of each CPU lies in that CPU's own memory: in a page of its own, and not all in the same set of a cache.
const PUBLISHED_DATA: Data = Data { words: PUBLISHED_CPUS, apart: 4096 + 64 };
const BREAKPOINTS: u32 = 4;
/// A slot is taken and given back for each breakpoint.
const ACQUISITIONS: f64 = 2.0 * BREAKPOINTS as f64;
/// Short enough to find a moment without other work, long enough for thousands of acquisitions.
const SLICE: Duration = Duration::from_millis(100);
/// Steps of a simulation: its repetitions differ by less than a percent.
const STEPS: u64 = 50_000;
/// Where a price is measured, threads compute so much of their hold between two acquisitions: the lock is hot.
const THINK_SHARE: f64 = 0.25;

#[derive(Debug, Serialize)]
struct Results {
    points: Vec<Point>,
    one_thread: OneThread,
    published: Vec<Compared>,
    disturbances: Disturbances,
}

/// Acquisitions a second of the global mutex.
#[derive(Debug, Serialize)]
struct Point {
    lock: &'static str,
    hold_ns: f64,
    think_ns: f64,
    /// What handing it over costs, as measured in another load.
    handoff_ns: f64,
    threads: usize,
    measured: Estimate,
    /// From the medians of all rounds' inputs: a single round's are too noisy.
    predicted: f64,
    simulated: f64,
    /// Predicted over measured, less 1.
    error: Estimate,
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
        time_left: TimeLeft::new(),
        steps_left: 2 * CPUS.len() * arguments.rounds,
    };
    let mut points = bench.points::<TaskMutex>("lockmeter's Mutex, which spins first")?;
    points.extend(bench.points::<MeteredMutex>("pthread_mutex, which sleeps")?);
    bench.time_left.clear();
    let one_thread = bench.one_thread()?;
    let disturbances = bench.disturbances;
    let results = Results { points, one_thread, published: published::compare(one_thread).to_vec(), disturbances };
    write(arguments.format, machine, &results, &text(&results))
}

struct Bench {
    threads: Vec<usize>,
    rounds: usize,
    random: Random,
    stop: Stop,
    disturbances: Disturbances,
    time_left: TimeLeft,
    steps_left: usize,
}

/// What one round gave for one point.
struct Sample {
    hold_ns: f64,
    think_ns: f64,
    handoff_ns: f64,
    /// Acquisitions a second.
    measured: f64,
}

/// What handing a lock over costs.
struct Prices {
    /// While each thread has a CPU: the next holder may have to wake a CPU that went idle.
    own_cpu_ns: f64,
    /// While threads wait for CPUs, too.
    overcommitted_ns: f64,
}

impl Bench {
    fn points<M: RawMutex + Send + Sync>(&mut self, lock: &'static str) -> Result<Vec<Point>> {
        let mut points = Vec::new();
        for cpus in CPUS {
            let mut samples: Vec<Vec<Sample>> = Vec::new();
            for _ in 0..self.rounds {
                self.time_left.step("the model", self.steps_left);
                self.steps_left -= 1;
                if !self.stop.go_on() {
                    break;
                }
                for (at, sample) in self.round::<M>(cpus)?.into_iter().enumerate() {
                    if samples.len() <= at {
                        samples.push(Vec::new());
                    }
                    samples[at].push(sample);
                }
            }
            for (at, samples) in samples.iter().enumerate() {
                points.extend(self.point(lock, self.threads[at % self.threads.len()], samples));
            }
        }
        Ok(points)
    }

    /// Every work and every number of threads once, with all that the model is told of them.
    fn round<M: RawMutex + Send + Sync>(&mut self, cpus: usize) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        let mut prices = None;
        for work in WORKS.map(Work::lasting) {
            let think_ns = self.time::<M>(Design::Ideal, cpus, work, 1)?;
            let hold_ns = (self.time::<M>(Design::Before, cpus, work, 1)? - think_ns).max(1.0);
            let prices = prices.get_or_insert_with(|| self.prices::<M>(hold_ns, Data::lines_of(cpus * BYTES_OF_A_CPU)));
            for threads in self.threads.clone() {
                let handoff_ns = if threads > cores() { prices.overcommitted_ns } else { prices.own_cpu_ns };
                let measured = 1e9 / self.time::<M>(Design::Before, cpus, work, threads)?;
                samples.push(Sample { hold_ns, think_ns, handoff_ns, measured });
            }
        }
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
        let plan =
            Race { threads: vec![threads], breakpoints: BREAKPOINTS, slice: SLICE, work, cpus, rounds: self.rounds };
        let task_ns = self.disturbances.avoid(|| run_once::<M, ReaderLock>(design, &plan, threads));
        Ok(task_ns.map_err(|broken| anyhow!("{broken}"))? / ACQUISITIONS)
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

    fn point(&mut self, lock: &'static str, threads: usize, samples: &[Sample]) -> Option<Point> {
        let values = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<_>>();
        let mut median = |of| Estimate::of(&values(of), &mut self.random).map(|estimate| estimate.median);
        let (hold_ns, think_ns) = (median(|sample| sample.hold_ns)?, median(|sample| sample.think_ns)?);
        let handoff_ns = median(|sample| sample.handoff_ns)?;
        let network = network(think_ns, hold_ns, handoff_ns);
        let mut scene = Scene::of(&network);
        scene.visits[0].hold = simulation::Duration::Constant(hold_ns);
        let predicted = processors::per_second(&network, 0, threads, cores(), Waiters::Yield);
        let simulated = simulation::run_on(&scene, threads, cores(), STEPS, &mut self.random).per_second;
        let measured = values(|sample| sample.measured);
        let errors: Vec<f64> = measured.iter().map(|measured| predicted / measured - 1.0).collect();
        Some(Point {
            lock,
            hold_ns,
            think_ns,
            handoff_ns,
            threads,
            measured: Estimate::of(&measured, &mut self.random)?,
            predicted,
            simulated,
            error: Estimate::of(&errors, &mut self.random)?,
        })
    }

    /// What one thread needs for its accounting, on as many CPUs as the published machine has.
    fn one_thread(&mut self) -> Result<OneThread> {
        let work = Work::lasting(WORKS[0]);
        let [mut before, mut after, mut handoff] = [const { Vec::new() }; 3];
        for _ in 0..self.rounds {
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

/// The error that the model is to keep within.
const AIM: f64 = 0.15;

fn text(results: &Results) -> String {
    let mut text =
        "Acquisitions of the global mutex a second, predicted from one thread and then measured\n".to_owned();
    let mut lock = "";
    for point in &results.points {
        if point.lock != lock {
            lock = point.lock;
            let _ = writeln!(
                text,
                "\n{lock}\n{:>8} {:>9} {:>9} {:>8} {:>10} {:>10} {:>10}  ERROR OF THE MODEL",
                "HOLD", "THINK", "HANDOFF", "THREADS", "MEASURED", "PREDICTED", "SIMULATED"
            );
        }
        let us = |ns: f64| format!("{:.2} µs", ns / 1e3);
        let Estimate { median, low, high, .. } = point.error.map(|share| share * 100.0);
        let _ = writeln!(
            text,
            "{:>8} {:>9} {:>9} {:>8} {:>10.0} {:>10.0} {:>10.0}  {median:+.1} % [{low:+.1}, {high:+.1}]{}",
            us(point.hold_ns),
            us(point.think_ns),
            us(point.handoff_ns),
            point.threads,
            point.measured.median,
            point.predicted,
            point.simulated,
            if point.error.median.abs() > AIM { "  missed" } else { "" }
        );
    }
    let within = results.points.iter().filter(|point| point.error.median.abs() <= AIM).count();
    let Disturbances { runs, repeated, kept } = results.disturbances;
    let _ = writeln!(
        text,
        "\n{within} of {} points within {:.0} %. Of {runs} slices {repeated} were repeated because other processes took a CPU, and {kept} \
         kept although.",
        results.points.len(),
        AIM * 100.0
    );
    let OneThread { before_ns, after_ns, handoff_ns } = results.one_thread;
    let _ = writeln!(
        text,
        "\nThe published figures of {PUBLISHED_CPUS} CPUs, {} workers, from here: {before_ns:.0} ns of one thread for a slot under the global mutex, \
         {after_ns:.0} ns\nunder its own; {handoff_ns:.0} ns to hand over a mutex with a cache line of each of {PUBLISHED_CPUS} CPUs; and 35.3 µs of \
         everything else, which is published\n",
        published::WORKERS
    );
    let _ = writeln!(text, "{:<32} {:>12} {:>12} {:>8}", "DESIGN", "PUBLISHED", "PREDICTED", "ERROR");
    for row in &results.published {
        let _ = writeln!(
            text,
            "{:<32} {:>9.1} µs {:>9.1} µs {:>+6.0} %",
            row.design,
            row.published_us,
            row.predicted_us,
            row.error() * 100.0
        );
    }
    text
}
