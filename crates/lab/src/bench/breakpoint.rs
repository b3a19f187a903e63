//! `lockmeter-lab bench breakpoint`: the kernel's accounting, beside perf's own benchmark of it, and the designs in user space.

use std::fmt::Write as _;
use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_experiments::breakpoint::kernel::{self, NotHere};
use lockmeter_experiments::breakpoint::race::{Broken, Design, Plan, Point, Table, Work, race, run_once};
use lockmeter_experiments::breakpoint::{Shape, Timing};
use lockmeter_experiments::locks_under_test::{MeteredMutex, MeteredReaderLock, NAMES, ReaderLock, TaskMutex};
use lockmeter_profile::view::Query;
use lockmeter_profile::{Dimension, Happened, Row, Value};
use lockmeter_render::units::counted;
use lockmeter_statistics::{Estimate, Machine, Random};
use serde::Serialize;

use super::{Stop, cores, own_run, write};
use crate::arguments::bench::{BreakpointArguments, Part};
use crate::running_command::Scratch;
use crate::time_left::TimeLeft;

/// This many threads for each core: the first is where a lock is contended, the second where its holders are often not running.
const THREADS_PER_CORE: [usize; 2] = [2, 32];

/// A metered run lasts so long at least, so that its start does not count.
const SHORTEST_METERED: Duration = Duration::from_secs(1);

#[derive(Debug, Default, Serialize)]
struct Results {
    kernel: Option<Kernel>,
    /// Why the kernel's part is missing.
    kernel_missing: Option<String>,
    /// The locks that the designs in user space were built on.
    locks: Option<&'static str>,
    user: Vec<Point>,
    /// Of designs whose runs were metered.
    lock_shares: Vec<LockShare>,
    /// Why none was.
    lock_shares_missing: Option<String>,
}

/// How much of its threads' time a design spends on its locks, with the most threads of the race.
#[derive(Debug, Serialize)]
struct LockShare {
    design: Design,
    threads: usize,
    /// Of their time, from the start of the process to its end.
    waited_ppm: u64,
    /// Waits.
    waits: u64,
}

#[derive(Debug, Serialize)]
struct Kernel {
    /// The run in the middle.
    timing: Timing,
    usecs_per_op: Estimate,
    /// perf's own.
    perf_usecs_per_op: Option<Estimate>,
    /// Ours over perf's, run for run.
    ratio: Option<Estimate>,
    perf_missing: Option<String>,
}

pub fn run(arguments: &BreakpointArguments) -> Result<ExitCode> {
    if let Some(design) = arguments.only.and_then(design) {
        return run_one(arguments, design);
    }
    let machine = Machine::here(arguments.seed);
    let mut random = Random::new(arguments.seed);
    let mut stop = Stop::catch()?;
    let mut results = Results::default();
    if arguments.only != Some(Part::User) {
        match kernel(arguments, &mut random, &mut stop) {
            Ok(kernel) => results.kernel = kernel,
            Err(why) if arguments.only == Some(Part::Kernel) => {
                return Err(Failure::error(Status::NotAllowed, why.to_string()));
            }
            Err(why) => results.kernel_missing = Some(why.to_string()),
        }
    }
    if arguments.only != Some(Part::Kernel) {
        results.locks = Some(NAMES);
        results.user = user(arguments, &mut random, &mut stop)?;
        match lock_shares(arguments, &mut stop) {
            Ok(shares) => results.lock_shares = shares,
            Err(why) => results.lock_shares_missing = Some(format!("{why:#}")),
        }
    }
    write(arguments.format, machine, &results, &text(&results))
}

/// The one design that is asked for, if any.
const fn design(part: Part) -> Option<Design> {
    match part {
        Part::Before => Some(Design::Before),
        Part::After => Some(Design::After),
        Part::Ideal => Some(Design::Ideal),
        Part::Floor => Some(Design::Floor),
        Part::Kernel | Part::User => None,
    }
}

fn plan(arguments: &BreakpointArguments) -> Plan {
    let mut threads = arguments.user_threads.clone();
    if threads.is_empty() {
        threads = [1].into_iter().chain(THREADS_PER_CORE.map(|each| each * cores())).collect();
    }
    let breakpoints = u32::try_from(arguments.breakpoints).unwrap_or(u32::MAX);
    Plan {
        threads,
        breakpoints,
        cpu_targets_percent: arguments.cpu_targets,
        slice: arguments.slice,
        work: Work::lasting(arguments.work),
        cpus: arguments.cpus,
        rounds: arguments.rounds,
        first_cpu: None,
        settling: Duration::ZERO,
    }
}

fn broken(broken: Broken) -> anyhow::Error {
    Failure::error(Status::Failed, broken.to_string())
}

/// One design alone, over libc's locks, so that `record` can meter it.
fn run_one(arguments: &BreakpointArguments, design: Design) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let plan = plan(arguments);
    let mut text = String::new();
    let mut times = Vec::new();
    for threads in &plan.threads {
        let task_ns = run_once::<MeteredMutex, MeteredReaderLock>(design, &plan, *threads).map_err(broken)?;
        let _ = writeln!(
            text,
            "{}, {}: {:.3} µs/op",
            counted(*threads as u64, "thread", "threads"),
            design.title(),
            task_ns / 1e3
        );
        times.push((*threads, task_ns));
    }
    write(arguments.format, machine, &std::collections::BTreeMap::from([("task_ns", times)]), &text)
}

fn user(arguments: &BreakpointArguments, random: &mut Random, stop: &mut Stop) -> Result<Vec<Point>> {
    let mut time_left = TimeLeft::new();
    let points = race::<TaskMutex, ReaderLock>(&plan(arguments), random, |left| {
        time_left.step("designs in user space", left);
        stop.go_on()
    });
    time_left.clear();
    points.map_err(broken)
}

/// What lockmeter says of runs of the designs, one after another. Fewer if it was interrupted.
fn lock_shares(arguments: &BreakpointArguments, stop: &mut Stop) -> Result<Vec<LockShare>> {
    let scratch = Scratch::create()?;
    let plan = plan(arguments);
    let Some(threads) = plan.threads.iter().copied().max() else { return Ok(Vec::new()) };
    let slice = arguments.slice.max(SHORTEST_METERED);
    let mut shares = Vec::new();
    for part in [Part::Before, Part::After, Part::Ideal, Part::Floor] {
        let Some(design) = design(part).filter(|_| stop.go_on()) else { break };
        let name = part.to_possible_value().context("every design has a name")?;
        let words = [
            ("--only", name.get_name().to_owned()),
            ("-b", arguments.breakpoints.to_string()),
            ("--user-threads", threads.to_string()),
            ("--cpus", arguments.cpus.to_string()),
            ("--cpu-targets", arguments.cpu_targets.to_string()),
            ("--slice", humantime::format_duration(slice).to_string().replace(' ', "")),
            ("--work", humantime::format_duration(arguments.work).to_string().replace(' ', "")),
        ];
        let words: Vec<&str> = words.iter().flat_map(|(flag, value)| [*flag, value]).collect();
        let query = Query::by([Dimension::Lock, Dimension::Caller]);
        let report = own_run::metered(&scratch, stop, "breakpoint", &words, &query)?;
        // Threads that begin and end wait for each other as well.
        let is_of_design = |row: &&Row| {
            let calls = row.caller.as_deref().unwrap_or_default();
            row.happened == Happened::Wait && calls.iter().any(|function| is_of_accounting(function))
        };
        let mut waits = Value::default();
        report.rows.iter().filter(is_of_design).for_each(|row| waits.merge(&row.value));
        let threads_ns = u128::from(report.duration_ns) * threads as u128;
        let waited_ppm = u64::try_from(u128::from(waits.total_ns) * 1_000_000 / threads_ns.max(1))?;
        shares.push(LockShare { design, threads, waited_ppm, waits: waits.count });
    }
    Ok(shares)
}

/// Whether a function takes slots or gives them back, as programs with and without inlined functions name it.
fn is_of_accounting(function: &str) -> bool {
    let (name, generics) = function.split_once('<').unwrap_or((function, ""));
    let is_method = matches!(name, "take" | "give_back" | "take_on_cpu" | "give_back_on_cpu");
    (is_method && generics.contains("breakpoint::designs::")) || function.contains("::Accounting>::")
}

/// Ours and perf's alternately, whichever first. `None` if it was interrupted before the first.
fn kernel(arguments: &BreakpointArguments, random: &mut Random, stop: &mut Stop) -> Result<Option<Kernel>, NotHere> {
    let shape = Shape {
        breakpoints: arguments.breakpoints,
        parallelism: arguments.parallelism,
        threads: arguments.threads,
        repeat: arguments.repeat,
    };
    let mut perf_missing = perf(arguments).err();
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    let mut time_left = TimeLeft::new();
    for round in 0..arguments.rounds {
        time_left.step("the kernel's accounting", arguments.rounds - round);
        if !stop.go_on() {
            break;
        }
        let perf_first = random.below(2) == 0;
        let run_perf = |missing: &mut Option<String>| {
            missing.is_none().then(|| perf(arguments).map_err(|why| *missing = Some(why)).ok()).flatten()
        };
        let before = if perf_first { run_perf(&mut perf_missing) } else { None };
        let timing = kernel::run(shape)?;
        let after = if perf_first { None } else { run_perf(&mut perf_missing) };
        if let Some(perf) = before.or(after) {
            theirs.push(perf);
            ratios.push(timing.usecs_per_op() / perf);
        }
        ours.push(timing);
    }
    time_left.clear();
    ours.sort_by_key(|timing| timing.total_ns);
    let Some(timing) = ours.get(ours.len() / 2).copied() else { return Ok(None) };
    let times: Vec<f64> = ours.iter().map(Timing::usecs_per_op).collect();
    let Some(usecs_per_op) = Estimate::of(&times, random) else { return Ok(None) };
    let perf_usecs_per_op = Estimate::of(&theirs, random);
    Ok(Some(Kernel { timing, usecs_per_op, perf_usecs_per_op, ratio: Estimate::of(&ratios, random), perf_missing }))
}

/// Microseconds an operation, as perf says. The error is a sentence.
fn perf(arguments: &BreakpointArguments) -> Result<f64, String> {
    let number = |count: usize| count.to_string();
    let (b, p, t) = (number(arguments.breakpoints), number(arguments.parallelism), number(arguments.threads));
    let mut command = Command::new(&arguments.perf);
    command.args(["bench", "-r", &number(arguments.repeat), "breakpoint", "thread", "-b", &b, "-p", &p, "-t", &t]);
    let output = command.stdin(Stdio::null()).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => "perf is not installed; on Debian: apt-get install linux-perf".to_owned(),
        _ => format!("cannot run {}: {error}", arguments.perf.display()),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    let field = |line: &str| line.trim().strip_suffix("usecs/op").and_then(|number| number.trim().parse().ok());
    text.lines().find_map(field).ok_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        format!("perf printed no usecs/op ({})", complaint.lines().next().unwrap_or("and no reason").trim())
    })
}

fn text(results: &Results) -> String {
    let mut text = String::new();
    if let Some(why) = &results.kernel_missing {
        let _ = writeln!(text, "The kernel's accounting is not measured: {why}\n");
    }
    if let Some(kernel) = &results.kernel {
        let _ = write!(text, "# Running 'breakpoint/thread' benchmark:\n{}", kernel.timing);
        let shown = |estimate: &Estimate| format!("{:.3} [{:.3}, {:.3}]", estimate.median, estimate.low, estimate.high);
        let runs = counted(kernel.usecs_per_op.samples as u64, "run", "runs");
        let _ = writeln!(text, "\nusecs/op of {runs}, median with 95 % interval: {}", shown(&kernel.usecs_per_op));
        match (&kernel.perf_usecs_per_op, &kernel.ratio, &kernel.perf_missing) {
            (Some(perf), Some(ratio), _) => {
                let _ = writeln!(text, "perf's own, in between: {}; ours / perf's: {}\n", shown(perf), shown(ratio));
            }
            (_, _, Some(why)) => {
                let _ = writeln!(text, "not compared with perf's own: {why}\n");
            }
            _ => {}
        }
    }
    if let Some(locks) = results.locks {
        let _ = write!(
            text,
            "The designs in user space, over {locks}; a target is set up with its breakpoints and taken down\n\n{}",
            Table(&results.user)
        );
    }
    if let Some(LockShare { threads, .. }) = results.lock_shares.first() {
        let threads = counted(*threads as u64, "thread", "threads");
        let _ = writeln!(
            text,
            "\nThe time of {threads} that waited for the designs' locks, over libc's, as lockmeter metered it:\n\n{:>9} {:>9}",
            "WAITING", "WAITS"
        );
        for share in &results.lock_shares {
            let percent = share.waited_ppm as f64 / 1e4;
            let _ = writeln!(text, "{:>9} {:>9}  {}", format!("{percent:.2} %"), share.waits, share.design.title());
        }
    }
    if let Some(why) = &results.lock_shares_missing {
        let _ = writeln!(text, "\nThe time that the designs spend on their locks is not measured: {why}");
    }
    text
}
