//! Measures what metering interrupts, softirqs, timers and work items costs.
//!
//! As `kernel-overhead` does: slices with and without metering in random order, a pair right after each other while the load goes on;
//! the result is the median of the pairs' ratios with its confidence interval. And the kernel's own account of how long each program
//! ran, less that of an empty program on the same tracepoint.

mod loads;

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::process::ExitCode;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bench_bpf_runs::{self as programs, Runs};
use bench_harness::{SeedArguments, as_f64, priority};
use clap::{Parser, ValueEnum};
use libbpf_rs::OpenObject;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use lockmeter_kernel::contention::{self, ContentionSource, Metered, Scope, StackBudget};
use lockmeter_kernel::latency::{LatencySource, Options, RUNNERS};
use lockmeter_profile::Source;
use lockmeter_statistics::{Estimate, Random};

use crate::loads::Load;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/empty.skel.rs"));
}
use skeleton::{EmptySkel, EmptySkelBuilder};

/// The share of throughput that metering may cost.
const GOAL_LOSS: f64 = 0.01;
/// What an event may take beyond an empty program.
const GOAL_EVENT_NS: f64 = 200.0;

/// From attaching or detaching to the slice: what the kernel puts off (freeing programs) is done, and the first windows are over.
const SETTLE: Duration = Duration::from_millis(400);
/// As often as lockmeter looks, until it has seen whether anybody waits.
const TICK: Duration = Duration::from_millis(100);
const TICKS_TO_SETTLE: u32 = 12;

/// Rounds of the run cost: its spread is far smaller than that of the throughput.
const COST_ROUNDS: usize = 9;
const COST_SLICE: Duration = Duration::from_millis(200);
/// Rounds of the programs' share of CPU time, as steady.
const SHARE_ROUNDS: usize = 5;

/// Measures what `lockmeter latency` costs: throughput of loads, time in the programs.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  latency-overhead                       all of it, about eight minutes
  latency-overhead --quick               does it all work? the numbers mean little
  latency-overhead --loads page-faults --pairs 120")]
struct Arguments {
    /// Pairs of a bare and a metered slice, for each load
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,

    /// Length of a slice: it must hold a few of the windows in which that is timed which comes very often
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    slice: Duration,

    /// What each pair compares with bare, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    meters: Vec<Meter>,

    /// Measure throughput only, not what each program's runs take
    #[arg(long)]
    throughput: bool,

    /// Loads, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    loads: Vec<Load>,

    /// Also list long runs, with the locks they wait for
    #[arg(long, value_parser = humantime::parse_duration)]
    threshold: Option<Duration>,

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
    // The loads inherit it; should it fail, they are disturbed more.
    let _ = priority::set(priority::HIGHEST);
    let loads = if arguments.loads.is_empty() { Load::ALL.to_vec() } else { arguments.loads.clone() };
    let options = Options { runners: RUNNERS.to_vec(), threshold: arguments.threshold, every: false };
    let meters = if arguments.meters.is_empty() { Meter::ALL.to_vec() } else { arguments.meters.clone() };
    let (pairs, rounds) = if arguments.quick { (2, 1) } else { (arguments.pairs.into(), COST_ROUNDS) };
    for load in loads {
        let throughput = throughput(load, &options, &meters, pairs, arguments.slice, &mut random)?;
        throughput.print(load);
        if !arguments.throughput {
            run_cost(load, &Options { every: true, ..options.clone() }, rounds, &mut random)?.print();
        }
    }
    Ok(())
}

/// What a slice is metered with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Meter {
    /// As `lockmeter latency` does
    Latency,
    /// With `--every`
    Every,
    /// An empty program on each of its tracepoints
    Empty,
    /// What `lockmeter mmap` attaches and counts, for these are the loads that its goal names, too
    Mmap,
    /// What `lockmeter record --kernel` does: it sees the same wake-ups
    Record,
    /// An empty program at each wake-up: the least that a program there costs
    EmptyWaking,
}

impl Meter {
    const ALL: [Self; 6] = [Self::Latency, Self::Mmap, Self::Record, Self::EmptyWaking, Self::Every, Self::Empty];

    const fn title(self) -> &'static str {
        match self {
            Self::Latency => "lockmeter latency / bare",
            Self::Every => "lockmeter latency --every / bare",
            Self::Empty => "empty programs / bare",
            Self::Mmap => "lockmeter mmap / bare",
            Self::Record => "lockmeter record / bare",
            Self::EmptyWaking => "empty program at wake-ups / bare",
        }
    }

    /// Whether a goal is set for it.
    const fn has_goal(self) -> bool {
        matches!(self, Self::Latency | Self::Mmap)
    }

    /// Whether what its programs ran for is told.
    const fn has_run_share(self) -> bool {
        !matches!(self, Self::Every | Self::Empty)
    }

    fn attach(self, options: &Options) -> Result<Attached> {
        let mut attached = Attached::default();
        match self {
            Self::Empty | Self::EmptyWaking => attached.empty = Some(attach_empty(self == Self::EmptyWaking)?),
            Self::Mmap | Self::Record => {
                let metered = if self == Self::Mmap { Metered::MmapLock { holds: true } } else { Metered::Waits };
                let options = contention::Options { scope: Scope::Machine, stacks: StackBudget::DEFAULT, metered };
                attached.contention = Some(ContentionSource::start(&options)?);
            }
            Self::Latency | Self::Every => {
                let options = Options { every: self == Self::Every, ..options.clone() };
                attached.latency = Some(LatencySource::start(&options)?);
            }
        }
        attached.settle()?;
        Ok(attached)
    }

    /// The rate of a slice, with everything attached for a while.
    fn rate(self, options: &Options, operations: &AtomicU64, slice: Duration) -> Result<f64> {
        let attached = self.attach(options)?;
        let rate = loads::rate(operations, slice);
        drop(attached);
        Ok(rate)
    }

    /// What its programs run for, by the kernel's own account: steadier than any throughput. A value for each round.
    fn runs(
        self,
        load: Load,
        options: &Options,
        rounds: usize,
        slice: Duration,
    ) -> Result<Vec<BTreeMap<String, Runs>>> {
        load.run(|_| {
            let runs = |_| {
                let attached = self.attach(options)?;
                let switch = programs::switch_on_statistics()?;
                let before = programs::own();
                thread::sleep(slice);
                let ran = programs::between(&before, &programs::own());
                drop((switch, attached));
                Ok(ran)
            };
            (0..rounds).map(runs).collect()
        })
    }
}

/// Metering that goes on as long as this lives.
#[derive(Default)]
struct Attached {
    empty: Option<EmptySkel<'static>>,
    contention: Option<ContentionSource>,
    latency: Option<LatencySource>,
}

impl Attached {
    /// Both sources time their own programs at first, which costs more than it tells of; a tick ends that. And that of contention needs some
    /// ticks, and an empty table, to see whether anybody waits.
    fn settle(&mut self) -> Result<()> {
        thread::sleep(SETTLE);
        if let Some(source) = &mut self.contention {
            source.drain()?;
            for _ in 0..TICKS_TO_SETTLE {
                source.tick();
                thread::sleep(TICK);
            }
        }
        if let Some(source) = &mut self.latency {
            source.tick();
        }
        Ok(())
    }
}

struct Throughput {
    operations_per_s: Estimate,
    ratios: Vec<(Meter, Estimate)>,
    /// What the programs themselves take.
    run_shares: Vec<RunShare>,
}

/// What a meter's programs run for.
struct RunShare {
    meter: Meter,
    /// Of the load's CPU time.
    share: Estimate,
    /// By program: runs a second, and the mean of one.
    programs: Vec<(String, f64, Estimate)>,
}

impl RunShare {
    fn of(
        meter: Meter,
        load: Load,
        rounds: &[BTreeMap<String, Runs>],
        slice: Duration,
        random: &mut Random,
    ) -> Option<Self> {
        let cpu_time_ns = slice.as_secs_f64() * 1e9 * as_f64(load.cpus());
        let share =
            |ran: &BTreeMap<String, Runs>| ran.values().map(|runs| as_f64(runs.time_ns)).sum::<f64>() / cpu_time_ns;
        let share = Estimate::of(&rounds.iter().map(share).collect::<Vec<_>>(), random)?;
        let mut programs = Vec::new();
        for name in rounds.first()?.keys() {
            let runs: Vec<Runs> = rounds.iter().filter_map(|ran| ran.get(name).copied()).collect();
            let count: u64 = runs.iter().map(|runs| runs.count).sum();
            let means: Vec<f64> = runs.iter().map(|runs| runs.mean_ns()).collect();
            let a_second = as_f64(count) / as_f64(runs.len() as u64) / slice.as_secs_f64();
            if a_second >= FEWEST_RUNS_A_SECOND {
                programs.push((name.clone(), a_second, Estimate::of(&means, random)?));
            }
        }
        Some(Self { meter, share, programs })
    }

    fn print(&self) {
        let [median, low, high] = [self.share.median, self.share.low, self.share.high].map(|share| share * 100.0);
        let meter = self.meter.title().trim_end_matches(" / bare");
        println!("  programs of {meter} ran for {median:.2} % [{low:.2}, {high:.2}] of the load's CPU time");
        for (name, a_second, mean_ns) in &self.programs {
            println!(
                "    {name:<16} {a_second:>9.0} a second, {:>4.0} ns [{:.0}, {:.0}]",
                mean_ns.median, mean_ns.low, mean_ns.high
            );
        }
    }
}

/// Each meter's slices against a bare one right before or after each.
fn throughput(
    load: Load,
    options: &Options,
    meters: &[Meter],
    pairs: usize,
    slice: Duration,
    random: &mut Random,
) -> Result<Throughput> {
    let mut all_bare = Vec::new();
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); meters.len()];
    load.run(|operations| {
        for _ in 0..pairs {
            for (meter, ratios) in meters.iter().zip(&mut ratios) {
                let mut order = [true, false];
                random.shuffle(&mut order);
                let (mut bare, mut metered) = (0.0, 0.0);
                for is_metered in order {
                    if is_metered {
                        metered = meter.rate(options, operations, slice)?;
                    } else {
                        thread::sleep(SETTLE);
                        bare = loads::rate(operations, slice);
                    }
                }
                if bare <= 0.0 {
                    bail!("the load {} did nothing in a whole slice", load.title());
                }
                all_bare.push(bare);
                ratios.push(metered / bare);
            }
        }
        Ok(())
    })?;
    let mut estimate = |samples: &[f64]| Estimate::of(samples, random).context("no slice was measured");
    let operations_per_s = estimate(&all_bare)?;
    let ratios = meters.iter().zip(&ratios).map(|(meter, samples)| Ok((*meter, estimate(samples)?)));
    let ratios = ratios.collect::<Result<_>>()?;
    let mut run_shares = Vec::new();
    for meter in meters.iter().filter(|meter| meter.has_run_share()) {
        let runs = meter.runs(load, options, SHARE_ROUNDS.min(pairs), slice)?;
        run_shares.push(RunShare::of(*meter, load, &runs, slice, random).context("no slice was measured")?);
    }
    Ok(Throughput { operations_per_s, ratios, run_shares })
}

impl Throughput {
    fn print(&self, load: Load) {
        println!("{}: {:.0} {} a second", load.title(), self.operations_per_s.median, load.operation());
        for (meter, ratio) in &self.ratios {
            print_ratio(meter.title(), *ratio);
        }
        self.run_shares.iter().for_each(RunShare::print);
        for (meter, ratio) in self.ratios.iter().filter(|(meter, _)| meter.has_goal()) {
            let loss = ratio.map(|ratio| 1.0 - ratio);
            let meter = meter.title().trim_end_matches(" / bare");
            println!("  goal: {meter} loses at most {:.0} %: {}", GOAL_LOSS * 100.0, verdict(loss, GOAL_LOSS));
        }
        println!();
    }
}

fn print_ratio(what: &str, ratio: Estimate) {
    println!(
        "  {what:<32} {:.4}  [{:.4}, {:.4}]  loss {:>5.2} %  {} pairs",
        ratio.median,
        ratio.low,
        ratio.high,
        (1.0 - ratio.median) * 100.0,
        ratio.samples
    );
}

fn verdict(cost: Estimate, goal: f64) -> &'static str {
    match cost {
        cost if cost.high <= goal => "met",
        cost if cost.low > goal => "MISSED",
        _ => "undecided: within the spread",
    }
}

/// What the programs' runs cost under one load.
struct RunCost {
    /// By program: runs a second and mean time, and that of its empty counterpart.
    programs: Vec<(String, f64, Estimate, Option<Estimate>)>,
    beyond_empty_ns: Estimate,
}

/// The empty program on the same tracepoint as one of ours, by their names, which the kernel cuts.
const EMPTY_OF: [(&str, &str); 16] = [
    ("softirq_raise", "e_softirq_raise"),
    ("softirq_entry", "e_softirq_entry"),
    ("softirq_exit", "e_softirq_exit"),
    ("hrtimer_entry", "e_hrtimer_entry"),
    ("hrtimer_exit", "e_hrtimer_exit"),
    ("timer_entry", "e_timer_entry"),
    ("timer_exit", "e_timer_exit"),
    ("local_timer_ent", "e_loc_entry"),
    ("local_timer_exi", "e_loc_exit"),
    ("reschedule_entr", "e_res_entry"),
    ("reschedule_exit", "e_res_exit"),
    ("call_single_ent", "e_call_entry"),
    ("call_single_exi", "e_call_exit"),
    ("work_queue", "e_work_queue"),
    ("work_start", "e_work_start"),
    ("work_end", "e_work_end"),
];

/// Programs that run less often are not listed with the throughput.
const FEWEST_RUNS_A_SECOND: f64 = 100.0;

/// Below this many runs in a slice a mean says nothing.
const FEWEST_RUNS: u64 = 20;

/// Each round times both sets of programs once, in random order.
fn run_cost(load: Load, options: &Options, rounds: usize, random: &mut Random) -> Result<RunCost> {
    let mut means: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut rates: BTreeMap<String, f64> = BTreeMap::new();
    let mut beyond = Vec::new();
    for _ in 0..rounds {
        let mut order = [true, false];
        random.shuffle(&mut order);
        let mut of_round = BTreeMap::new();
        for ours in order {
            let ran =
                if ours { timed(load, || LatencySource::start(options)) } else { timed(load, || attach_empty(false)) }?;
            of_round.extend(ran);
        }
        for (name, runs) in &of_round {
            if runs.count >= FEWEST_RUNS {
                means.entry(name.clone()).or_default().push(as_f64(runs.time_ns) / as_f64(runs.count));
                rates.insert(name.clone(), as_f64(runs.count) / COST_SLICE.as_secs_f64());
            }
        }
        beyond.extend(beyond_empty_ns(&of_round));
    }
    let mut estimate = |samples: Option<&Vec<f64>>| samples.and_then(|samples| Estimate::of(samples, random));
    let mut programs = Vec::new();
    for (name, empty) in EMPTY_OF {
        if let Some(mean_ns) = estimate(means.get(name)) {
            programs.push((name.to_owned(), rates[name], mean_ns, estimate(means.get(empty))));
        }
    }
    let beyond_empty_ns = estimate(Some(&beyond)).context("no program ran often enough")?;
    Ok(RunCost { programs, beyond_empty_ns })
}

/// The mean over all events of what they cost beyond an empty program on the same tracepoint.
fn beyond_empty_ns(ran: &BTreeMap<String, Runs>) -> Option<f64> {
    let (mut events, mut beyond_ns) = (0.0, 0.0);
    for (name, empty) in EMPTY_OF {
        let (Some(ours), Some(empty)) = (ran.get(name), ran.get(empty)) else { continue };
        if ours.count >= FEWEST_RUNS && empty.count >= FEWEST_RUNS {
            let mean = |runs: &Runs| as_f64(runs.time_ns) / as_f64(runs.count);
            events += as_f64(ours.count);
            beyond_ns += (mean(ours) - mean(empty)) * as_f64(ours.count);
        }
    }
    (events > 0.0).then(|| beyond_ns / events)
}

fn timed<Attached, E: std::error::Error + Send + Sync + 'static>(
    load: Load,
    attach: impl FnOnce() -> Result<Attached, E>,
) -> Result<BTreeMap<String, Runs>> {
    let attached = attach()?;
    let switch = programs::switch_on_statistics()?;
    let mut ran = BTreeMap::new();
    load.run(|_| {
        let before = programs::own();
        thread::sleep(COST_SLICE);
        ran = programs::between(&before, &programs::own());
    });
    drop(switch);
    drop(attached);
    Ok(ran)
}

/// Those of `lockmeter latency`, or the one at wake-ups.
fn attach_empty(waking: bool) -> Result<EmptySkel<'static>, libbpf_rs::Error> {
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = EmptySkelBuilder::default().open(storage)?;
    for mut program in open.open_object_mut().progs_mut() {
        let is_waking = program.name() == "e_sched_waking";
        program.set_autoload(is_waking == waking);
    }
    let mut skeleton = open.load()?;
    skeleton.attach()?;
    Ok(skeleton)
}

impl RunCost {
    fn print(&self) {
        println!("  {:<18} {:>12} {:>10} {:>10} {:>12}", "program", "runs a s", "ns", "empty, ns", "beyond, ns");
        for (name, rate, mean_ns, empty_ns) in &self.programs {
            let empty = empty_ns.map_or("-".to_owned(), |empty| format!("{:.0}", empty.median));
            let beyond = empty_ns.map_or("-".to_owned(), |empty| format!("{:.0}", mean_ns.median - empty.median));
            println!("  {name:<18} {rate:>12.0} {:>10.0} {empty:>10} {beyond:>12}", mean_ns.median);
        }
        let beyond = self.beyond_empty_ns;
        println!(
            "  an event beyond an empty program: {:.0} ns [{:.0}, {:.0}]; goal: at most {GOAL_EVENT_NS:.0} ns: {}\n",
            beyond.median,
            beyond.low,
            beyond.high,
            verdict(beyond, GOAL_EVENT_NS)
        );
    }
}
