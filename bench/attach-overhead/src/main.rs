//! Measures what `lockmeter record -p PID` costs: the metered program, and everybody else on the machine.
//!
//! As `kernel-overhead` does: slices with and without metering in random order, a pair right after each other; the result is
//! the median of the pairs' ratios with its confidence interval. And the kernel's own account of how long each program ran,
//! less that of an empty program on the same tracepoint.

mod loads;
mod metered;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench_bpf_runs::{self as programs, Runs};
use bench_harness::{SeedArguments, as_f64, priority};
use clap::Parser;
use lockmeter_kernel::contention::StackBudget;
use lockmeter_statistics::{Estimate, Random};

use crate::loads::Load;
use crate::metered::{Idler, attach, attach_empty, record_for, stack_ns};

/// Rounds of the run cost: its spread is far smaller than that of the throughput.
const COST_ROUNDS: usize = 15;
const COST_SLICE: Duration = Duration::from_millis(200);

/// Measures what `lockmeter record -p PID` costs: throughput of loads, time in the programs
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  attach-overhead                       all of it, about two minutes
  attach-overhead --quick               does it all work? the numbers mean little
  attach-overhead --loads metered --pairs 120")]
struct Arguments {
    /// Pairs of a bare and a metered slice, for each load
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,

    /// Length of a slice
    #[arg(long, default_value = "200ms", value_parser = humantime::parse_duration)]
    slice: Duration,

    /// Loads, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    loads: Vec<Load>,

    #[command(flatten)]
    seed: SeedArguments,

    /// Few, short slices, to see that all of it works
    #[arg(long)]
    quick: bool,
}

fn main() -> ExitCode {
    bench_harness::run_in_own_session(run)
}

fn run(arguments: &Arguments) -> Result<()> {
    let (mut random, machine) = arguments.seed.begin();
    println!("{machine}\n");
    let idler = Idler::start()?;
    // The loads inherit it; should it fail, they are disturbed more.
    let _ = priority::set(priority::HIGHEST);
    let loads = if arguments.loads.is_empty() { Load::ALL.to_vec() } else { arguments.loads.clone() };
    let (pairs, rounds) = if arguments.quick { (2, 1) } else { (arguments.pairs.into(), COST_ROUNDS) };
    for load in loads {
        throughput(load, &idler, pairs, arguments.slice, &mut random)?;
        RunCost::measure(load, &idler, rounds, &mut random)?.print();
    }
    Ok(())
}

/// Metered against bare.
fn throughput(load: Load, idler: &Idler, pairs: usize, slice: Duration, random: &mut Random) -> Result<()> {
    let (mut bare, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..pairs {
        let mut rates = [0.0; 2];
        let mut order = [false, true];
        random.shuffle(&mut order);
        for metered in order {
            rates[usize::from(metered)] = if metered {
                let mut source = attach(load, idler, StackBudget::DEFAULT)?;
                load.run(|| drop(record_for(&mut source, slice)))
            } else {
                load.run(|| thread::sleep(slice))
            };
        }
        if rates[0] <= 0.0 {
            bail!("the load did nothing in a whole slice: {}", load.title());
        }
        bare.push(rates[0]);
        ratios.push(rates[1] / rates[0]);
    }
    let mut estimate = |samples: &[f64]| Estimate::of(samples, random).context("no slice was measured");
    let (bare, ratio) = (estimate(&bare)?, estimate(&ratios)?);
    println!("{}: {:.0} {} a second", load.title(), bare.median, load.operation());
    let loss = (1.0 - ratio.median) * 100.0;
    println!(
        "  lockmeter record -p / bare      {:.4}  [{:.4}, {:.4}]  loss {loss:>5.2} %  {} pairs",
        ratio.median, ratio.low, ratio.high, ratio.samples
    );
    Ok(())
}

/// The programs by their names: lockmeter's, empty ones, and what runs them.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("sched_switch", "e_sched_switch", "context switch"), ("sched_waking", "e_sched_waking", "wake-up")];

/// What the programs' runs cost under one load.
#[derive(Default)]
struct RunCost {
    programs: Vec<OneProgram>,
    /// With the default budget.
    stack_ns: Option<Estimate>,
    stacks_per_s: f64,
}

struct OneProgram {
    what: &'static str,
    runs_per_s: f64,
    /// Without stacks.
    mean_ns: Estimate,
    empty_ns: Estimate,
    beyond_ns: Estimate,
}

impl RunCost {
    /// Each round times the empty programs and lockmeter's without stacks once, in random order; what lies beyond the empty
    /// ones is taken within the round. Stacks are timed by lockmeter itself, in a slice without the kernel's timing.
    fn measure(load: Load, idler: &Idler, rounds: usize, random: &mut Random) -> Result<Self> {
        let mut runs: [Vec<[Runs; 2]>; PROGRAMS.len()] = Default::default();
        let (mut stacks_ns, mut stacks) = (Vec::new(), 0);
        for _ in 0..rounds {
            let mut order = [true, false];
            random.shuffle(&mut order);
            let mut of_round = [[Runs::default(); 2]; PROGRAMS.len()];
            for ours in order {
                let ran = timed(load, idler, ours)?;
                for (of_program, ran) in of_round.iter_mut().zip(ran) {
                    of_program[usize::from(ours)] = ran;
                }
            }
            for (all, of_program) in runs.iter_mut().zip(of_round) {
                all.push(of_program);
            }
            let mut source = attach(load, idler, StackBudget::DEFAULT)?;
            load.run(|| {
                let overhead = record_for(&mut source, COST_SLICE).overhead;
                stacks += overhead.stacks;
                stacks_ns.extend(stack_ns(&overhead));
            });
        }
        let rounds = as_f64(rounds as u64);
        let slices_s = rounds * COST_SLICE.as_secs_f64();
        let mut cost = Self {
            stacks_per_s: as_f64(stacks) / slices_s,
            stack_ns: Estimate::of(&stacks_ns, random),
            ..Self::default()
        };
        for ((.., what), runs) in PROGRAMS.into_iter().zip(&runs) {
            let mut estimate = |of: &dyn Fn(&[Runs; 2]) -> f64| {
                let samples: Vec<f64> = runs.iter().map(of).collect();
                Estimate::of(&samples, random).context("no slice was timed")
            };
            cost.programs.push(OneProgram {
                what,
                runs_per_s: as_f64(runs.iter().map(|[_, ours]| ours.count).sum()) / slices_s,
                mean_ns: estimate(&|[_, ours]| ours.mean_ns())?,
                empty_ns: estimate(&|[empty, _]| empty.mean_ns())?,
                beyond_ns: estimate(&|[empty, ours]| ours.mean_ns() - empty.mean_ns())?,
            });
        }
        Ok(cost)
    }

    fn print(&self) {
        println!("  {:<18} {:>10} {:>8} {:>10}   beyond the empty program, ns", "each", "a second", "ns", "empty, ns");
        for program in &self.programs {
            let OneProgram { what, runs_per_s, mean_ns, empty_ns, beyond_ns } = program;
            println!(
                "  {what:<18} {runs_per_s:>10.0} {:>8.0} {:>10.0}   {:.0} [{:.0}, {:.0}]",
                mean_ns.median, empty_ns.median, beyond_ns.median, beyond_ns.low, beyond_ns.high
            );
        }
        if let Some(stack) = self.stack_ns {
            let Estimate { median, low, high, .. } = stack;
            println!("  {:<18} {:>10.0} {median:>8.0} [{low:.0}, {high:.0}]", "copied stack", self.stacks_per_s);
        }
        println!();
    }
}

/// Runs of the programs in a slice, in the order of [`PROGRAMS`].
fn timed(load: Load, idler: &Idler, ours: bool) -> Result<[Runs; PROGRAMS.len()]> {
    let mut source = None;
    let mut empty = None;
    if ours {
        source = Some(attach(load, idler, StackBudget::Share { ppm: 0 })?);
    } else {
        empty = Some(attach_empty().context("cannot attach the empty programs: run as root")?);
    }
    let switch = programs::switch_on_statistics()?;
    let mut looks = [programs::own(), programs::own()];
    load.run(|| {
        looks[0] = programs::own();
        thread::sleep(COST_SLICE);
        looks[1] = programs::own();
    });
    drop(switch);
    drop((source, empty));
    let ran = programs::between(&looks[0], &looks[1]);
    let mut of_programs = [Runs::default(); PROGRAMS.len()];
    for (to, (own, of_nobody, what)) in of_programs.iter_mut().zip(PROGRAMS) {
        *to = ran.get(if ours { own } else { of_nobody }).copied().unwrap_or_default();
        if to.count == 0 {
            bail!("no {what} was seen in a whole slice");
        }
    }
    Ok(of_programs)
}
