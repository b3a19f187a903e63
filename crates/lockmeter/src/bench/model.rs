//! `lockmeter bench model`: the queueing model against measured points, against a simulation, and against published figures.
//!
//! A program whose only lock is hot (the old breakpoint accounting) runs under `record --user --hold` with one thread. From that
//! recording alone the model says what more threads give; then they run, under the same metering.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use lockmeter_experiments::breakpoint::race::{Design, Plan as Race, Work, run_once};
use lockmeter_experiments::locks_under_test::{ReaderLock, TaskMutex};
use lockmeter_predict::forecast::{Plan, Prices, forecast};
use lockmeter_predict::measured::{Measured, MeasuredLock};
use lockmeter_predict::published::{self, Compared, OneThread};
use lockmeter_profile::Dimension;
use lockmeter_profile::view::Query;
use lockmeter_statistics::{Estimate, Machine, Random};
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::ModelArguments;
use crate::overhead::child::Scratch;
use crate::overhead::time_left::TimeLeft;
use crate::report;

/// CPUs that the accounting looks at: holds of a quarter of a microsecond, of one, and of five.
const CPUS: [usize; 3] = [8, 64, 256];
/// As published.
const PUBLISHED_CPUS: usize = 256;
const BREAKPOINTS: u32 = 4;
/// Long enough that what a process does at its start does not count.
const SLICE: Duration = Duration::from_secs(1);
/// Little beside the accounting: the lock is to be hot.
const WORK: &str = "2us";
/// For times of one thread.
const SHORT_SLICE: Duration = Duration::from_millis(200);

#[derive(Debug, Serialize)]
struct Results {
    points: Vec<Point>,
    one_thread: OneThread,
    published: Vec<Compared>,
}

/// Acquisitions a second of the global mutex.
#[derive(Debug, Serialize)]
struct Point {
    /// CPUs to account for: the longer the list, the longer the hold.
    cpus: usize,
    hold_ns: f64,
    threads: usize,
    measured: Estimate,
    predicted: Estimate,
    simulated: Estimate,
    /// Predicted over measured, less 1, round by round.
    error: Estimate,
}

pub fn run(arguments: &ModelArguments) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let threads = if arguments.threads.is_empty() { (1..=cores()).collect() } else { arguments.threads.clone() };
    let mut random = Random::new(arguments.seed);
    let mut stop = Stop::catch()?;
    let mut points = Vec::new();
    for cpus in CPUS {
        points.extend(measure(cpus, &threads, arguments.rounds, &mut random, &mut stop)?);
    }
    let one_thread = one_thread(arguments.rounds, &mut random)?;
    let results = Results { points, one_thread, published: published::compare(one_thread).to_vec() };
    write(arguments.format, machine, &results, &text(&results))
}

/// What one round gave for one point.
struct Sample {
    hold_ns: f64,
    measured: f64,
    predicted: f64,
    simulated: f64,
}

fn measure(cpus: usize, threads: &[usize], rounds: usize, random: &mut Random, stop: &mut Stop) -> Result<Vec<Point>> {
    let scratch = Scratch::create()?;
    let mut time_left = TimeLeft::new();
    let mut samples: Vec<Vec<Sample>> = threads.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds {
        time_left.step(&format!("the accounting of {cpus} CPUs"), rounds - round);
        if !stop.go_on() {
            break;
        }
        let alone = record(&scratch.recording(), cpus, 1)?;
        let plan = Plan { cpus: threads.to_vec(), threads: Some(1), shards: 16, prices: Prices::default() };
        let said = forecast(&alone, hottest(&alone)?, &plan);
        for ((threads, point), samples) in threads.iter().zip(&said.points).zip(&mut samples) {
            let together = if *threads == 1 { alone.clone() } else { record(&scratch.recording(), cpus, *threads)? };
            let lock = &together.locks[hottest(&together)?];
            samples.push(Sample {
                hold_ns: alone.locks[hottest(&alone)?].hold_ns(),
                measured: per_second(lock, &together),
                predicted: point.spinning,
                simulated: point.simulated,
            });
        }
    }
    time_left.clear();
    let point = |(threads, samples): (&usize, &Vec<Sample>)| {
        let mut of = |of: fn(&Sample) -> f64| Estimate::of(&samples.iter().map(of).collect::<Vec<_>>(), random);
        Some(Point {
            cpus,
            hold_ns: of(|sample| sample.hold_ns)?.median,
            threads: *threads,
            measured: of(|sample| sample.measured)?,
            predicted: of(|sample| sample.predicted)?,
            simulated: of(|sample| sample.simulated)?,
            error: of(|sample| sample.predicted / sample.measured - 1.0)?,
        })
    };
    Ok(threads.iter().zip(&samples).filter_map(point).collect())
}

fn per_second(lock: &MeasuredLock, measured: &Measured) -> f64 {
    lock.acquisitions as f64 / (measured.duration_ns as f64 / 1e9)
}

/// The lock that was held longest.
fn hottest(measured: &Measured) -> Result<usize> {
    if measured.locks.is_empty() {
        Err(anyhow!("the recording holds no lock; is liblockmeter_preload.so the right one?"))
    } else {
        Ok(0)
    }
}

/// The old accounting with so many threads, recorded.
fn record(recording: &Path, cpus: usize, threads: usize) -> Result<Measured> {
    let own = std::env::current_exe().context("cannot tell where lockmeter itself is")?;
    let mut command = Command::new(&own);
    command.args(["record", "--quiet", "--user", "--hold", "-o"]).arg(recording).arg("--").arg(&own);
    command.args(["bench", "breakpoint", "--only", "before", "-b", &BREAKPOINTS.to_string()]);
    let (cpus, threads, slice) = (cpus.to_string(), threads.to_string(), humantime::format_duration(SLICE).to_string());
    command.args(["--cpus", &cpus, "--user-threads", &threads, "--slice", &slice, "--work", WORK]);
    let output = command.stdin(Stdio::null()).output().context("cannot run lockmeter itself")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(anyhow!(
            "recording a run of {threads} thread(s) failed: {}",
            said.lines().last().unwrap_or("it said nothing")
        ));
    }
    let (report, _) = report::load(recording, &Query::by([Dimension::Lock]))?;
    Ok(Measured::from_report(&report))
}

/// What one thread needs for its accounting, on as many CPUs as the published machine has.
fn one_thread(rounds: usize, random: &mut Random) -> Result<OneThread> {
    let work = Work::lasting(Duration::from_micros(2));
    let plan =
        Race { threads: vec![1], breakpoints: BREAKPOINTS, slice: SHORT_SLICE, work, cpus: PUBLISHED_CPUS, rounds };
    let mut differences = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let time = |design| run_once::<TaskMutex, ReaderLock>(design, &plan, 1).map_err(|broken| anyhow!("{broken}"));
        let ideal = time(Design::Ideal)?;
        for (difference, design) in differences.iter_mut().zip([Design::Before, Design::After]) {
            // A slot is taken and given back for each breakpoint.
            difference.push((time(design)? - ideal).max(0.0) / f64::from(2 * BREAKPOINTS));
        }
    }
    let median =
        |samples: &Vec<f64>, random: &mut Random| Estimate::of(samples, random).map_or(0.0, |estimate| estimate.median);
    Ok(OneThread {
        before_ns: median(&differences[0], random),
        after_ns: median(&differences[1], random),
        handoff_ns: Prices::default().spin_ns,
    })
}

fn text(results: &Results) -> String {
    let mut text =
        "From one thread's recording: acquisitions of the global mutex a second, predicted and then measured\n\n"
            .to_owned();
    let _ = writeln!(
        text,
        "{:>8} {:>14} {:>14} {:>14}  ERROR OF THE MODEL",
        "THREADS", "MEASURED", "PREDICTED", "SIMULATED"
    );
    for Point { hold_ns, threads, measured, predicted, simulated, error, .. } in &results.points {
        let Estimate { median, low, high, .. } = error.map(|share| share * 100.0);
        let _ = writeln!(
            text,
            "{:>6.2} µs {threads:>8} {:>14.0} {:>14.0} {:>14.0}  {median:+.1} % [{low:+.1}, {high:+.1}]",
            hold_ns / 1e3,
            measured.median,
            predicted.median,
            simulated.median
        );
    }
    let OneThread { before_ns, after_ns, handoff_ns } = results.one_thread;
    let _ = writeln!(
        text,
        "\nThe published figures of {PUBLISHED_CPUS} CPUs, {} workers, from one thread here: {before_ns:.0} ns for a slot under the global mutex, \
         {after_ns:.0} ns\nunder its own, both with 256 CPUs to account for; a handoff of {handoff_ns:.0} ns; and 35.3 µs of everything else, which is published\n",
        published::WORKERS
    );
    let _ = writeln!(text, "{:<44} {:>12} {:>12} {:>8}", "DESIGN", "PUBLISHED", "PREDICTED", "ERROR");
    for row in &results.published {
        let _ = writeln!(
            text,
            "{:<44} {:>9.1} µs {:>9.1} µs {:>+6.0} %",
            row.design,
            row.published_us,
            row.predicted_us,
            row.error() * 100.0
        );
    }
    text
}
