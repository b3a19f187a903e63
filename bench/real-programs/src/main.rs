//! Whether lockmeter's first answer about real programs is what the programs say themselves.
//!
//! Each program is started with its load. lockmeter watches it for some seconds; in the same seconds the program is asked, again and again,
//! what its threads wait for. Its answer is written down before lockmeter's report is read. Then the load goes on in slices,
//! watched and not, in random order: what watching costs it.

mod cargo_build;
mod frozen;
mod idle_servers;
mod load;
mod mariadb;
mod ours;
mod postgresql;
mod processes;
mod reason;
mod recorder;
mod thread_states;
mod trials;
mod truth;
mod verdict;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bench_harness::SeedArguments;
use clap::Parser;
use lockmeter_statistics::{Estimate, Random};
use serde::Serialize;

use crate::load::{Load, Trial};
use crate::recorder::{Lockmeter, Said};
use crate::trials::TRIALS;
use crate::truth::{Looks, Truth};
use crate::verdict::Verdict;

/// What at least is to be under the right reason.
const RIGHT_REASON: f64 = 0.95;
/// What at most an idle program's threads may be said to wait for locks.
const FALSE_CONTENTION: f64 = 0.01;
/// After a change, before a slice begins.
const SETTLE: Duration = Duration::from_millis(200);

/// Compares lockmeter's first answer about real programs with what the programs say themselves, and measures what watching costs
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  real-programs                                    all programs, about eleven minutes; as root
  real-programs --programs postgresql-hot-row      one of them
  real-programs --seconds 2 --pairs 0              no cost; does it all work?
  real-programs --lockmeter ./target/release/lockmeter")]
struct Arguments {
    /// lockmeter's program [default: the one beside this bench]
    #[arg(long, value_name = "PATH")]
    lockmeter: Option<PathBuf>,

    /// Programs, separated by commas, or the beginnings of their names [default: all]
    #[arg(long, value_delimiter = ',')]
    programs: Vec<String>,

    /// How long each is watched for its truth
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,

    /// Pairs of slices, watched and not, for the cost
    #[arg(long, default_value_t = 8)]
    pairs: u16,

    /// Length of such a slice
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(1..))]
    slice: u64,

    /// Where truths, recordings, reports and results.json are written
    #[arg(long, value_name = "FOLDER", default_value = "target/real-programs")]
    output: PathBuf,

    #[command(flatten)]
    seed: SeedArguments,
}

/// What was measured of one program.
#[derive(Debug, Serialize)]
struct Measured {
    name: &'static str,
    what: &'static str,
    /// How lockmeter was called, the names of files left out.
    command: String,
    truth: Truth,
    said: Said,
    verdict: Verdict,
    /// Throughput that is left while it is watched, if it has any.
    kept: Option<Estimate>,
}

fn main() -> ExitCode {
    bench_harness::run_in_own_session(run)
}

fn run(arguments: &Arguments) -> Result<()> {
    // SAFETY: takes nothing and returns a number.
    ensure!(unsafe { libc::geteuid() } == 0, "lockmeter watches running programs as root: run this as root");
    let lockmeter = Lockmeter { program: arguments.lockmeter()? };
    let wanted: Vec<&Trial> = TRIALS.iter().filter(|trial| arguments.wants(trial.name)).collect();
    ensure!(!wanted.is_empty(), "no program has such a name; known are {}", names().join(", "));
    fs::create_dir_all(&arguments.output).context("cannot make the output folder")?;
    let output = arguments.output.canonicalize().context("cannot find the output folder")?;
    let (mut random, machine) = arguments.seed.begin();
    println!("{machine}");
    let mut measured = Vec::new();
    for trial in wanted {
        println!("\n{}: {}", trial.name, trial.what);
        match measure(trial, &lockmeter, arguments, &output.join(trial.name), &mut random) {
            Ok(one) => {
                one.print();
                measured.push(one);
            }
            Err(error) => println!("  SKIPPED: {error:#}"),
        }
    }
    print_table(&measured);
    let json = serde_json::to_string_pretty(&measured).context("cannot write JSON")?;
    fs::write(output.join("results.json"), json).context("cannot write results.json")?;
    Ok(())
}

impl Arguments {
    fn lockmeter(&self) -> Result<PathBuf> {
        let program = match &self.lockmeter {
            Some(program) => program.canonicalize().with_context(|| format!("cannot find {}", program.display()))?,
            None => std::env::current_exe().context("cannot tell where this program is")?.with_file_name("lockmeter"),
        };
        ensure!(
            program.exists(),
            "{} is missing; `cargo build --release -p lockmeter` makes it, or give --lockmeter PATH",
            program.display()
        );
        Ok(program)
    }

    fn wants(&self, name: &str) -> bool {
        self.programs.is_empty() || self.programs.iter().any(|beginning| name.starts_with(beginning))
    }
}

fn names() -> Vec<&'static str> {
    TRIALS.iter().map(|trial| trial.name).collect()
}

fn measure(
    trial: &Trial,
    lockmeter: &Lockmeter,
    arguments: &Arguments,
    folder: &Path,
    random: &mut Random,
) -> Result<Measured> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("cannot remove what an earlier run left")?;
    }
    fs::create_dir_all(folder).context("cannot make the output folder")?;
    let recording = folder.join("recording.lockmeter");
    let seconds = Duration::from_secs(arguments.seconds);
    let (truth, command, load) = if trial.by_command {
        let mut load = (trial.start)(folder, Some(lockmeter.record(&recording)?.0))?;
        let truth = ask(trial, load.as_mut(), seconds)?;
        load.end()?;
        (truth, "record -- COMMAND".to_owned(), None)
    } else {
        let mut load = (trial.start)(folder, None)?;
        let recorder = lockmeter.watch(&load.scope(), &recording)?;
        let truth = ask(trial, load.as_mut(), seconds)?;
        recorder.end()?;
        let scope = load.scope().join(" ").replace(|digit: char| digit.is_ascii_digit(), "");
        (truth, format!("record {}", scope.replace("-p ", "-p PID")), Some(load))
    };
    // Before lockmeter's report is read.
    let written = serde_json::to_string_pretty(&truth).context("cannot write JSON")?;
    fs::write(folder.join("truth.json"), written).context("cannot write to the output folder")?;
    let said = lockmeter.says(&recording, trial.task)?;
    let verdict = Verdict::of(&truth, &said);
    let ratios = match load {
        Some(mut load) => watched_in_turn(lockmeter, load.as_mut(), arguments, folder, random)?,
        None => started_in_turn(trial, lockmeter, arguments, folder, random)?,
    };
    let kept = Estimate::of(&ratios, random);
    Ok(Measured { name: trial.name, what: trial.what, command, truth, said, verdict, kept })
}

/// Asks the program for so long what its threads wait for.
fn ask(trial: &Trial, load: &mut dyn Load, seconds: Duration) -> Result<Truth> {
    // The thread that asks.
    processes::hurry(0)?;
    let begun = Instant::now();
    let mut looks = Looks::default();
    // What ends by itself is asked until then.
    while load.is_over()?.map_or(begun.elapsed() < seconds, |is_over| !is_over) {
        load.look(&mut looks)?;
        std::thread::sleep(trial.every);
    }
    Ok(looks.truth(trial.source, trial.until_it_runs, begun))
}

/// Ratios of the work done in a slice, watched to not.
fn watched_in_turn(
    lockmeter: &Lockmeter,
    load: &mut dyn Load,
    arguments: &Arguments,
    folder: &Path,
    random: &mut Random,
) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    if load.work()?.is_none() {
        return Ok(ratios);
    }
    let recording = folder.join("cost.lockmeter");
    for _ in 0..arguments.pairs {
        let mut rates = [0.0; 2];
        let first = random.below(2);
        for watched in [first, 1 - first] {
            let recorder = (watched == 1).then(|| lockmeter.watch(&load.scope(), &recording)).transpose()?;
            std::thread::sleep(SETTLE);
            rates[watched] = rate(load, arguments)?;
            recorder.map_or(Ok(()), recorder::Recorder::end)?;
        }
        ratios.extend((rates[0] > 0.0).then_some(rates[1] / rates[0]));
    }
    Ok(ratios)
}

/// The same of a program that lockmeter starts.
fn started_in_turn(
    trial: &Trial,
    lockmeter: &Lockmeter,
    arguments: &Arguments,
    folder: &Path,
    random: &mut Random,
) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    let recording = folder.join("cost.lockmeter");
    for _ in 0..arguments.pairs {
        let mut rates = [0.0; 2];
        let first = random.below(2);
        for watched in [first, 1 - first] {
            let under = (watched == 1).then(|| lockmeter.record(&recording)).transpose()?;
            let begun = Instant::now();
            let mut load = (trial.start)(folder, under.map(|(command, _)| command))?;
            if load.work()?.is_some() {
                std::thread::sleep(SETTLE);
                rates[watched] = rate(load.as_mut(), arguments)?;
                load.end()?;
            } else {
                // What ends by itself: its time counts.
                load.end()?;
                rates[watched] = 1.0 / begun.elapsed().as_secs_f64();
            }
        }
        ratios.extend((rates[0] > 0.0).then_some(rates[1] / rates[0]));
    }
    Ok(ratios)
}

/// Work a second, over a slice.
fn rate(load: &mut dyn Load, arguments: &Arguments) -> Result<f64> {
    let (begun, before) = (Instant::now(), load.work()?.unwrap_or(0));
    std::thread::sleep(Duration::from_millis(arguments.slice));
    let after = load.work()?.unwrap_or(0);
    Ok(bench_harness::as_f64(after.saturating_sub(before)) / begun.elapsed().as_secs_f64())
}

impl Measured {
    fn print(&self) {
        let Self { truth, said, .. } = self;
        println!("  truth ({}), {} looks in {:.1} s:", truth.source, truth.looks, truth.seconds);
        println!("    {:.2} threads blocked: {}", truth.all(), shares(&truth.blocked, truth.all()));
        if !truth.locks.is_empty() {
            let locks = truth.locks.iter().map(|(lock, threads)| {
                format!("{} {:.1} %", lock.split('|').next().unwrap_or_default(), threads / truth.all() * 100.0)
            });
            println!("    for locks: {}", locks.collect::<Vec<_>>().join(", "));
        }
        println!("  lockmeter {}:", self.command);
        let all: f64 = said.blocked.values().sum();
        println!("    {:.2} threads blocked, {:.2} woken: {}", all, said.woken, shares(&said.blocked, all));
        said.sentences.iter().for_each(|sentence| println!("    “{sentence}”"));
    }
}

fn shares(blocked: &std::collections::BTreeMap<reason::Reason, f64>, all: f64) -> String {
    let mut blocked: Vec<_> = blocked.iter().filter(|(_, threads)| **threads > all / 1_000.0).collect();
    blocked.sort_by(|one, other| other.1.total_cmp(one.1));
    let shares = blocked.into_iter().map(|(reason, threads)| format!("{reason} {:.1} %", threads / all * 100.0));
    shares.collect::<Vec<_>>().join(", ")
}

fn print_table(measured: &[Measured]) {
    println!(
        "\n{:<22} {:<18} {:>8} {:>8} {:>7} {:>9} {:>7}  {:<28} goal",
        "program", "command", "blocked", "lockmtr", "right", "lock", "false", "throughput kept"
    );
    for one in measured {
        let all: f64 = one.said.blocked.values().sum();
        let is_idle = TRIALS.iter().any(|trial| trial.name == one.name && trial.is_idle());
        let named = one.verdict.right_lock.map(|right| if right { "yes" } else { "NO" });
        let lock = match (named, one.verdict.right_lock_time) {
            (Some(named), Some(share)) => format!("{named} {:.0} %", share * 100.0),
            (named, _) => named.unwrap_or("–").to_owned(),
        };
        let kept = one.kept.map_or_else(
            || "–".to_owned(),
            |kept| format!("{:.3} [{:.3}, {:.3}] of {}", kept.median, kept.low, kept.high, kept.samples),
        );
        let met = if is_idle {
            one.verdict.false_contention <= FALSE_CONTENTION
        } else {
            one.verdict.right_reason >= RIGHT_REASON && one.verdict.right_lock != Some(false)
        };
        println!(
            "{:<22} {:<18} {:>8.2} {:>8.2} {:>5.1} % {:>9} {:>5.1} %  {:<28} {}",
            one.name,
            one.command,
            one.truth.all(),
            all,
            one.verdict.right_reason * 100.0,
            lock,
            one.verdict.false_contention * 100.0,
            kept,
            if met { "met" } else { "MISSED" }
        );
    }
    println!(
        "blocked, lockmtr: mean number of threads blocked, by the truth and by lockmeter (of all threads in scope)"
    );
    println!(
        "right: share of the truly blocked time under the right reason; lock: named by the first two sentences, and the share of its time that is under it"
    );
    println!(
        "false: time said to be for locks beyond what is true, of all threads' time; goals: right ≥ 95 % and the lock, idle: false ≤ 1 %"
    );
}
