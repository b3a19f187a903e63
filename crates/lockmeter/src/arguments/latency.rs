//! Flags of `lockmeter latency`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockmeter_cli::durations::parse_duration;
use lockmeter_profile::Kind;

use super::FileArguments;
use super::values::{parse_interval, parse_threshold};

const LATENCY_EXAMPLES: &str = "\
Examples:
  lockmeter latency -d 10s                   what ran in ten seconds, the longest single run first
  lockmeter latency --interval 1s            each second, until Ctrl-C; then a summary
  lockmeter latency --threshold 1ms          also each run of 1 ms and more, with its waits for locks
  lockmeter latency --irq --softirq --histogram -d 5s
  lockmeter latency --sort cpu_ppm -d 10s    what takes most CPU time
  lockmeter latency -d 1m -o lat.lockmeter && lockmeter report lat.lockmeter --format json";

#[derive(Debug, Args)]
#[command(after_help = LATENCY_EXAMPLES)]
pub struct LatencyArguments {
    #[command(flatten)]
    pub runners: RunnerArguments,
    /// List each run that lasts this long (with a unit: 1ms, 200us), with the locks it waited for
    #[arg(long, value_name = "TIME", value_parser = parse_threshold)]
    pub threshold: Option<Duration>,
    /// Time every interrupt and softirq, whatever it costs; without it, very frequent ones are timed only part of the time.
    /// --threshold times all as well
    #[arg(long)]
    pub every: bool,
    /// Print a table this often, and a summary at the end
    #[arg(long, value_name = "TIME", value_parser = parse_interval)]
    pub interval: Option<Duration>,
    /// How long to meter, with a unit (10s, 500ms, 2m); without it, until Ctrl-C
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Also write a recording, for `lockmeter report`; `-` is standard output (tables then go to standard error)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub file: FileArguments,
    /// Order by this column
    #[arg(long, value_name = "COLUMN", default_value = "max_ns")]
    pub sort: String,
    /// How many rows to print in each table; 0 prints all
    #[arg(short = 'n', long, value_name = "ROWS", default_value_t = 20)]
    pub limit: usize,
    /// Draw each row's histograms of runs and delays
    #[arg(long)]
    pub histogram: bool,
    /// How to write what ran
    #[arg(long, value_enum, default_value_t = LatencyFormat::Table)]
    pub format: LatencyFormat,
}

/// What to meter: all of it unless some are chosen.
#[derive(Debug, Args)]
pub struct RunnerArguments {
    /// Handlers of hard interrupts
    #[arg(long)]
    pub irq: bool,
    /// Softirqs
    #[arg(long)]
    pub softirq: bool,
    /// Tasklets
    #[arg(long)]
    pub tasklet: bool,
    /// Functions of timers and of high-resolution timers
    #[arg(long)]
    pub timer: bool,
    /// Work items of workqueues
    #[arg(long)]
    pub work: bool,
}

impl RunnerArguments {
    /// The kinds chosen; all where none is.
    pub fn kinds(&self) -> Vec<Kind> {
        let chosen = [
            (self.irq, Kind::Irq),
            (self.softirq, Kind::Softirq),
            (self.tasklet, Kind::Tasklet),
            (self.timer, Kind::Timer),
            (self.timer, Kind::Hrtimer),
            (self.work, Kind::Work),
        ];
        let kinds: Vec<Kind> = chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, kind)| kind).collect();
        if kinds.is_empty() { lockmeter_kernel::latency::RUNNERS.to_vec() } else { kinds }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LatencyFormat {
    /// For people
    Table,
    /// For programs (documented in docs/reference/json.md)
    Json,
    /// For spreadsheets
    Csv,
}
