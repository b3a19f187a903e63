//! Measures what metering kernel lock contention costs.
//!
//! A contended load runs in threads of this process for the whole measurement, and metering is switched on and off in short
//! slices in random order; the result is the median of the ratios of neighbouring slices, with its confidence interval.
//! Comparing whole runs is hopeless on a machine that has other things to do.

mod goals;
mod loads;
mod memory;
mod meters;
mod programs;
mod report;
mod run_cost;
mod throughput;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use bench_harness::{SeedArguments, priority};
use clap::{Parser, ValueEnum};

use crate::loads::{Load, LoadName};
use crate::meters::{MeterName, Meters};
use crate::report::{OneLoad, Report, Summary};
use crate::throughput::Plan;

/// Measures what metering kernel lock contention costs: throughput of contended loads, time in the programs, memory.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  kernel-overhead                                      all of it, about a quarter of an hour
  kernel-overhead --quick                              does it all work? under 20 seconds; the numbers mean little
  kernel-overhead --only run-cost                      nanoseconds a contended acquisition
  kernel-overhead --loads spin --meters empty,default  one load, two meters
  kernel-overhead --perf ~/linux/tools/perf/perf       a perf that was built with BPF skeletons")]
struct Arguments {
    /// Pairs of a bare and a metered slice, for each load and meter
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,

    /// Length of a slice
    #[arg(long, default_value = "100ms", value_parser = slice_length)]
    slice: Duration,

    /// Loads, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    loads: Vec<LoadName>,

    /// Meters whose throughput is compared with bare, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    meters: Vec<MeterName>,

    /// Measure only this
    #[arg(long, value_enum)]
    only: Option<Part>,

    /// The perf to compare with; Debian's has no BPF skeletons
    #[arg(long, default_value = "perf")]
    perf: String,

    #[command(flatten)]
    seed: SeedArguments,

    /// Priority of the loads (as of nice(1)): high, so that what else the machine does disturbs the slices little
    #[arg(long, default_value_t = priority::HIGHEST, allow_negative_numbers = true, value_parser = clap::value_parser!(i8).range(-20..20))]
    nice: i8,

    /// Few, short slices and no other tools, to see that all of it works
    #[arg(long)]
    quick: bool,

    /// Output
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput of the loads, metered over bare
    Throughput,
    /// Time in the programs for each contended acquisition
    RunCost,
}

/// Rounds of the run cost: its spread is far smaller than that of the throughput.
const COST_ROUNDS: usize = 15;
const COST_SLICE: Duration = Duration::from_millis(150);
/// The stack budget adapts every 20 ms, by at most a factor of 8.
const BUDGET_SETTLES: Duration = Duration::from_millis(150);

const QUICK_PAIRS: usize = 2;
const QUICK_SLICE: Duration = Duration::from_millis(30);
const QUICK_COST_ROUNDS: usize = 1;
const QUICK_BUDGET_SETTLES: Duration = Duration::from_millis(40);

/// Shorter ones measure the scheduler, longer ones whatever else the machine does.
const SLICES: std::ops::RangeInclusive<Duration> = Duration::from_millis(10)..=Duration::from_secs(10);

fn slice_length(text: &str) -> Result<Duration, String> {
    let length = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if SLICES.contains(&length) { Ok(length) } else { Err("a slice lasts from 10ms to 10s".to_owned()) }
}

fn main() -> ExitCode {
    bench_harness::run_in_own_session(run)
}

fn run(arguments: &Arguments) -> Result<()> {
    let (mut random, machine) = arguments.seed.begin();
    let settles = if arguments.quick { QUICK_BUDGET_SETTLES } else { BUDGET_SETTLES };
    let mut meters = Meters::load(arguments.perf.clone(), settles)?;
    priority::set(arguments.nice)
        .with_context(|| format!("cannot set the priority to {}; run as root, or with --nice 0", arguments.nice))?;
    // Before any load runs: what cannot work at all should say so at once.
    let memory = memory::measure()?;
    let plan = if arguments.quick {
        Plan { pairs: QUICK_PAIRS, slice: QUICK_SLICE, repeats: false }
    } else {
        Plan { pairs: usize::from(arguments.pairs), slice: arguments.slice, repeats: true }
    };
    let wanted = wanted_meters(arguments);
    let loads = if arguments.loads.is_empty() { LoadName::ALL.to_vec() } else { arguments.loads.clone() };
    let table = arguments.format == Format::Table;
    if table {
        println!("{machine}");
    }
    let (mut throughput, mut run_cost) = (Vec::new(), Vec::new());
    for name in loads {
        let load = Load::start(name)?;
        let mut of_load = None;
        if arguments.only != Some(Part::RunCost) {
            eprintln!("{}: throughput, {} pairs each of {} meters", name.title(), plan.pairs, wanted.len());
            of_load = Some(throughput::measure(&load, &mut meters, &wanted, plan, &mut random)?);
        }
        let mut costs = Vec::new();
        if arguments.only != Some(Part::Throughput) {
            let rounds = if arguments.quick { QUICK_COST_ROUNDS } else { COST_ROUNDS };
            let slice = if arguments.quick { QUICK_SLICE } else { COST_SLICE };
            eprintln!("{}: time in the programs, {rounds} rounds", name.title());
            costs = run_cost::measure(&load, &mut meters, rounds, slice, &mut random)?;
        }
        if table {
            print!("{}", OneLoad { load: name, throughput: of_load.as_ref(), run_cost: &costs });
        }
        throughput.extend(of_load);
        run_cost.extend(costs);
    }
    let report = Report::new(machine, throughput, run_cost, memory);
    match arguments.format {
        Format::Table => print!("{}", Summary(&report)),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report).context("cannot write JSON")?),
    }
    Ok(())
}

fn wanted_meters(arguments: &Arguments) -> Vec<MeterName> {
    let all = || MeterName::ALL.into_iter().filter(|meter| !arguments.quick || !meter.is_other_tool());
    if arguments.meters.is_empty() { all().collect() } else { arguments.meters.clone() }
}
