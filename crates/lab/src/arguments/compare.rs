//! Flags of `lockmeter-lab compare`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockmeter_cli::durations::parse_time;
use lockmeter_cli::swaps::{Variants, parse_variants};
use regex_lite::Regex;

const COMPARE_EXAMPLES: &str = "\
Examples:
  lockmeter-lab compare --swap mutex=std,mutex -- ./benchmark
  lockmeter-lab compare --swap rwlock=std,rwsem,percpu-rwsem --runs 15 -- ./benchmark --threads 4
  lockmeter-lab compare --swap mutex=std,mutex --metric '([0-9.]+) requests per second' -- ./load
  lockmeter-lab compare --swap mutex=std,mutex --metric 'p99: ([0-9.]+) ms' --lower-is-better -- ./load

Variants: mutex: std, mutex; rwlock: std, rwsem, percpu-rwsem; spin: std, spin. `std` is the C library's lock,
called through the same preloaded library as the others, so that the ratio is that of the locks.";

#[derive(Debug, Args)]
#[command(after_help = COMPARE_EXAMPLES)]
pub struct CompareArguments {
    /// A kind of pthread lock, and the variants to compare; each is compared with the first
    #[arg(long, value_name = "KIND=VARIANT,VARIANT…", value_parser = parse_variants)]
    pub swap: Variants,
    /// Swap only locks whose name, or the name of the function that creates or first takes them, contains or matches this
    #[arg(long, value_name = "PATTERN")]
    pub lock: Option<String>,
    /// How often each variant runs
    #[arg(long, value_name = "COUNT", default_value_t = 9, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub runs: u32,
    /// How often each variant runs first, without being measured
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub warmup: u32,
    /// End a run that takes longer than this, and leave its variant out [default: ten times the longest run so far, at least 1m]
    #[arg(long, value_name = "TIME", value_parser = parse_timeout)]
    pub timeout: Option<Duration>,
    /// Compare a number that the command prints, not the time it takes: the last match of this expression's first group
    #[arg(long, value_name = "REGEX", value_parser = parse_metric)]
    pub metric: Option<Regex>,
    /// A higher number is better (the default with --metric)
    #[arg(long, requires = "metric", conflicts_with = "lower_is_better")]
    pub higher_is_better: bool,
    /// A lower number is better
    #[arg(long, requires = "metric")]
    pub lower_is_better: bool,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = CompareFormat::Table)]
    pub format: CompareFormat,
    /// File to write to; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND", required = true, num_args = 1.., allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareFormat {
    /// For people
    Table,
    /// For programs
    Json,
    /// For spreadsheets: every run
    Csv,
}

fn parse_metric(text: &str) -> Result<Regex, String> {
    Regex::new(text).map_err(|error| error.to_string())
}

fn parse_timeout(text: &str) -> Result<Duration, String> {
    let timeout = parse_time(text)?;
    if timeout.is_zero() {
        return Err("a time limit of zero ends every run; give at least 1ms".into());
    }
    Ok(timeout)
}
