//! What metering their locks costs real programs.
//!
//! A server runs with the library preloaded, under a load that never stops. Its control word switches metering in slices of
//! time, in random order, and a round of slices (off, `wait`, `hold`) gives a ratio of throughput for each level: one process, one
//! memory layout, the same connections. `hold` with every hold timed is switched in a process of its own. What the library costs when it is off is found
//! beside a bare server of the same kind, which is another process: that interval is wider. A compressor runs in each way
//! in turn, in random order. Printed are the medians with their confidence intervals. The collector reads the metered
//! programs once a second, as `lockmeter record` does.

mod compressor;
mod database;
mod metered;
mod server;

use std::process::ExitCode;

use anyhow::Result;
use bench_harness::SeedArguments;
use clap::{Parser, ValueEnum};
use lockmeter_statistics::{Estimate, Random};

use crate::compressor::Compressor;
use crate::metered::Metering;
use crate::server::Server;

/// Measures what metering their locks costs real programs: throughput of servers, speed of compressors
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  user-programs                               all programs, about eight minutes
  user-programs --programs memcached          one of them
  user-programs --rounds 5                    does it all work? the numbers mean little")]
struct Arguments {
    /// Rounds of a slice or run of each way
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Programs, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    programs: Vec<ProgramName>,

    #[command(flatten)]
    seed: SeedArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProgramName {
    /// memcached with 4 threads
    Memcached,
    /// redis-server with 2 I/O threads
    Redis,
    /// MariaDB with 8 connections, under sysbench
    Mariadb,
    /// pigz, parallel gzip
    Pigz,
    /// xz with 2 threads
    Xz,
    /// zstd with 2 threads
    Zstd,
}

impl ProgramName {
    fn measure(self, rounds: usize, random: &mut Random) -> Result<Vec<Rounds>> {
        match self {
            Self::Memcached => Server::memcached().measure(rounds, random),
            Self::Redis => Server::redis().measure(rounds, random),
            Self::Mariadb => database::measure(rounds, random),
            // A compressor's run takes as long as several slices.
            Self::Pigz => Ok(vec![Compressor::PIGZ.measure(rounds.div_ceil(2), random)?]),
            Self::Xz => Ok(vec![Compressor::XZ.measure(rounds.div_ceil(2), random)?]),
            Self::Zstd => Ok(vec![Compressor::ZSTD.measure(rounds.div_ceil(2), random)?]),
        }
    }
}

/// What the rounds gave.
#[derive(Debug, Default)]
pub struct Rounds {
    /// The first is what the others are compared with.
    ways: Vec<Metering>,
    /// Of each round, in the order of the ways.
    slices: Vec<Vec<Slice>>,
    unit: &'static str,
}

/// What was measured of one way.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slice {
    /// Work done a second.
    rate: f64,
    /// CPU time of the server for a request.
    cpu_ns: Option<f64>,
}

fn main() -> ExitCode {
    bench_harness::run(run)
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let (mut random, machine) = arguments.seed.begin();
    println!("{machine}\n");
    println!("{:<35}   share of throughput kept, median of rounds, 95 % confidence", "");
    let wanted = match arguments.programs.as_slice() {
        [] => ProgramName::value_variants(),
        some => some,
    };
    for program in wanted {
        let value = program.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        match program.measure(arguments.rounds.into(), &mut random) {
            Ok(comparisons) => comparisons.iter().for_each(|rounds| print(name, rounds, &mut random)),
            Err(error) => println!("{name:<10} NOT MEASURED: {error:#}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(name: &str, rounds: &Rounds, random: &mut Random) {
    let base_name = rounds.ways[0].name();
    let rates: Vec<f64> = rounds.slices.iter().map(|slices| slices[0].rate).collect();
    let Some(base) = Estimate::of(&rates, random) else { return };
    let mut base = format!("{base_name} {:.1} {}", base.median, rounds.unit);
    let mut name = name;
    for (way, metering) in rounds.ways.iter().enumerate().skip(1) {
        let kept: Vec<f64> = rounds.slices.iter().map(|slices| slices[way].rate / slices[0].rate).collect();
        // The inverse: work for the same CPU time.
        let cpu = |slices: &Vec<Slice>| Some(slices[0].cpu_ns? / slices[way].cpu_ns?);
        let cpu: Vec<f64> = rounds.slices.iter().filter_map(cpu).collect();
        let metering = metering.name();
        print!("{name:<10} {base:>24}   {metering:<12} of {base_name:<4}  {}", interval(&kept, random));
        if !cpu.is_empty() {
            print!("   a CPU second {}", interval(&cpu, random));
        }
        println!("  {} rounds", kept.len());
        (name, base) = ("", String::new());
    }
}

fn interval(ratios: &[f64], random: &mut Random) -> String {
    Estimate::of(ratios, random)
        .map_or_else(String::new, |ratio| format!("{:.4} [{:.4}, {:.4}]", ratio.median, ratio.low, ratio.high))
}
