//! Flags of `lockmeter predict`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use lockmeter_cli::ResultFormat;
use lockmeter_cli::durations::parse_time;
use lockmeter_profile::view::NamePattern;

use super::{DEFAULT_RECORDING, RuleFileArguments};

const PREDICT_EXAMPLES: &str = "\
Examples:
  lockmeter record --user --hold -- ./server && lockmeter predict
  lockmeter predict out.lockmeter --lock queue_lock --cpus 8,32,128
  lockmeter predict --threads 6     the program had six working threads, not one for each CPU
  lockmeter predict --threads 32 --threads-per-cpu 4 --cpus 8,16   more threads than CPUs";

#[derive(Debug, Args)]
#[command(after_help = PREDICT_EXAMPLES)]
pub struct PredictArguments {
    /// A recording with holds (`record --hold`); `-` is standard input
    #[arg(default_value = DEFAULT_RECORDING)]
    pub recording: PathBuf,
    #[command(flatten)]
    pub rules: RuleFileArguments,
    /// The locks to predict for: those whose name contains this, or matches it if it has `*` or `?`; without it, those held longest
    #[arg(long, value_name = "PATTERN")]
    pub lock: Option<NamePattern>,
    /// Numbers of CPUs to forecast for
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', default_value = "4,16,64,256", value_parser = parse_count)]
    pub cpus: Vec<usize>,
    /// How many threads run on each of these CPUs
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = parse_count)]
    pub threads_per_cpu: usize,
    /// How many threads did the work in the recording; without it, one for each CPU
    #[arg(long, value_parser = parse_count)]
    pub threads: Option<usize>,
    /// How many locks the column SHARDED splits it into
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(2..=64))]
    pub shards: u32,
    /// What handing the lock to a spinning waiter costs, if the recording does not show it
    #[arg(long, value_name = "TIME", default_value = "200ns", value_parser = parse_time)]
    pub spin_handoff: Duration,
    /// What handing the lock to a sleeping waiter costs, if the recording does not show it
    #[arg(long, value_name = "TIME", default_value = "5us", value_parser = parse_time)]
    pub sleep_handoff: Duration,
    /// How many locks to show
    #[arg(short = 'n', long, value_name = "LOCKS", default_value_t = 3)]
    pub limit: usize,
    /// How to write the forecasts
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

fn parse_count(text: &str) -> Result<usize, String> {
    let most = lockmeter_predict::forecast::MOST_THREADS;
    let count = text.trim().parse().ok().filter(|count| (1..=most).contains(count));
    count.ok_or_else(|| format!("give a number between 1 and {most}"))
}
