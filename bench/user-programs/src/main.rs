//! What metering their locks costs real programs.
//!
//! A server runs three times at once: bare, metered at level `wait`, and at level `hold`. A load asks one of them at a time,
//! in slices in random order, and a round of three slices gives two ratios of throughput. A compressor runs in each of the
//! three ways in turn, in random order, and a round gives two ratios of time. Printed are the medians with their confidence
//! intervals. The collector reads the metered programs once a second, as `lockmeter record` does.

mod compressor;
mod metered;
mod server;

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Result;
use bench_statistics::{Estimate, Machine, Random};
use clap::{Parser, ValueEnum};

use crate::compressor::Compressor;
use crate::server::Server;

/// Measures what metering their locks costs real programs: throughput of servers, speed of compressors
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  user-programs                               all programs, about five minutes
  user-programs --programs memcached          one of them
  user-programs --rounds 5                    does it all work? the numbers mean little")]
struct Arguments {
    /// Rounds of a slice or run of each way
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,

    /// Programs, separated by commas [default: all]
    #[arg(long, value_delimiter = ',', value_enum)]
    programs: Vec<ProgramName>,

    /// Seed of the random order [default: from the clock]
    #[arg(long)]
    seed: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ProgramName {
    /// memcached with 4 threads
    Memcached,
    /// redis-server with 2 I/O threads
    Redis,
    /// pigz, parallel gzip
    Pigz,
    /// xz with 2 threads
    Xz,
    /// zstd with 2 threads
    Zstd,
}

impl ProgramName {
    fn measure(self, rounds: usize, random: &mut Random) -> Result<Rounds> {
        match self {
            Self::Memcached => Server::memcached().measure(rounds, random),
            Self::Redis => Server::redis().measure(rounds, random),
            // A compressor's run takes as long as several slices.
            Self::Pigz => Compressor::PIGZ.measure(rounds.div_ceil(2), random),
            Self::Xz => Compressor::XZ.measure(rounds.div_ceil(2), random),
            Self::Zstd => Compressor::ZSTD.measure(rounds.div_ceil(2), random),
        }
    }
}

/// What the rounds gave: the rate of each way, as [`metered::WAYS`] orders them.
#[derive(Debug, Default)]
pub struct Rounds {
    rates: Vec<[f64; 3]>,
    unit: &'static str,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("user-programs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::from(since.subsec_nanos()));
    let seed = arguments.seed.unwrap_or_else(clock);
    let mut random = Random::new(seed);
    println!("{}\n", Machine::here(seed));
    println!("{:<10} {:>22}   throughput of bare, median of rounds, 95 % confidence", "", "bare");
    let wanted = match arguments.programs.as_slice() {
        [] => ProgramName::value_variants(),
        some => some,
    };
    for program in wanted {
        let value = program.to_possible_value();
        let name = value.as_ref().map_or("", |value| value.get_name());
        match program.measure(arguments.rounds.into(), &mut random) {
            Ok(rounds) => print(name, &rounds, &mut random),
            Err(error) => println!("{name:<10} NOT MEASURED: {error:#}"),
        }
    }
    Ok(())
}

fn print(name: &str, rounds: &Rounds, random: &mut Random) {
    let column = |way: usize| rounds.rates.iter().map(|rates| rates[way]).collect::<Vec<_>>();
    let ratio = |way: usize| rounds.rates.iter().map(|rates| rates[way] / rates[0]).collect::<Vec<_>>();
    let Some(bare) = Estimate::of(&column(0), random) else { return };
    let bare = format!("{:.1} {}", bare.median, rounds.unit);
    for (way, level) in [(1, "wait"), (2, "hold")] {
        let Some(ratio) = Estimate::of(&ratio(way), random) else { return };
        let (name, bare) = if way == 1 { (name, bare.as_str()) } else { ("", "") };
        println!(
            "{name:<10} {bare:>22}   {level}  {:.4}  [{:.4}, {:.4}]  {} rounds",
            ratio.median, ratio.low, ratio.high, ratio.samples
        );
    }
}
