//! `lockmeter-lab bench breakpoint`: the kernel's accounting, beside perf's own benchmark of it, and the designs in user space.

use std::fmt::Write as _;
use std::io;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_experiments::breakpoint::kernel::{self, NotHere};
use lockmeter_experiments::breakpoint::race::{Broken, Design, Plan, Point, Table, Work, race, run_once};
use lockmeter_experiments::breakpoint::{Shape, Timing};
use lockmeter_experiments::locks_under_test::{MeteredMutex, NAMES, ReaderLock, TaskMutex};
use lockmeter_render::units::counted;
use lockmeter_statistics::{Estimate, Machine, Random};
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::{BreakpointArguments, Part};
use crate::time_left::TimeLeft;

/// So many threads for each core: the first is where a lock is contended, the second where its holders are often not running.
const THREADS_PER_CORE: [usize; 2] = [2, 32];

#[derive(Debug, Default, Serialize)]
struct Results {
    kernel: Option<Kernel>,
    /// Why the kernel's part is missing.
    kernel_missing: Option<String>,
    /// The locks that the designs in user space were built on.
    locks: Option<&'static str>,
    user: Vec<Point>,
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
    let one = match arguments.only {
        Some(Part::Before) => Some(Design::Before),
        Some(Part::After) => Some(Design::After),
        Some(Part::Ideal) => Some(Design::Ideal),
        Some(Part::Floor) => Some(Design::Floor),
        Some(Part::Kernel | Part::User) | None => None,
    };
    if let Some(design) = one {
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
    }
    write(arguments.format, machine, &results, &text(&results))
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

/// One design alone, over libc's mutex, so that `record` can meter it.
fn run_one(arguments: &BreakpointArguments, design: Design) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let plan = plan(arguments);
    let mut text = String::new();
    let mut times = Vec::new();
    for threads in &plan.threads {
        let task_ns = run_once::<MeteredMutex, ReaderLock>(design, &plan, *threads).map_err(broken)?;
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
            "The designs in user space, over {locks}; a task is set up with its breakpoints and taken down\n\n{}",
            Table(&results.user)
        );
    }
    text
}
