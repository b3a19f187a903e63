//! Flags of `lockmeter mmap`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockmeter_cli::durations::parse_duration;

use super::{FileArguments, ScopeArguments, StackArguments};

const MMAP_EXAMPLES: &str = "\
Examples:
  lockmeter mmap -a -d 10s                   the whole machine
  lockmeter mmap -a --by cgroup -d 1m        by memory control group, such as a service's
  lockmeter mmap -p $(pidof mariadbd) --by caller
  lockmeter mmap -a --no-hold -d 1h          only waits, which costs least
  lockmeter mmap -a -d 10s -o mmap.lockmeter && lockmeter report mmap.lockmeter --by lock,caller
  lockmeter mmap -a -d 10s --format json | jq '.rows[] | {happened, mode, histogram}'";

#[derive(Debug, Args)]
#[command(after_help = MMAP_EXAMPLES)]
pub struct MmapArguments {
    #[command(flatten)]
    pub scope: ScopeArguments,
    /// One histogram for all, or one for each of these; with `cgroup`, the memory control group of the address space
    #[arg(long, value_enum)]
    pub by: Option<MmapBy>,
    /// How long to meter, with a unit (10s, 500ms, 2m); without it, until Ctrl-C or the end of the command
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Meter only waits, not holds
    #[arg(long)]
    pub no_hold: bool,
    #[command(flatten)]
    pub stacks: StackArguments,
    /// How many groups to print; 0 prints all
    #[arg(short = 'n', long, value_name = "GROUPS", default_value_t = 10)]
    pub limit: usize,
    /// How many frames of a stack to print
    #[arg(long, value_name = "FRAMES", default_value_t = lockmeter_render::DEFAULT_FRAMES)]
    pub frames: usize,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = MmapFormat::Histogram)]
    pub format: MmapFormat,
    /// Also write a recording, for `lockmeter report`; `-` is standard output (the report then goes to standard error)
    #[arg(short, long, alias = "record", value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub file: FileArguments,
    /// The command to run and meter
    #[arg(last = true, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

/// What to group by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MmapBy {
    /// The memory control group of the address space
    Cgroup,
    /// The process that takes the lock
    Process,
    /// The stack that waits, or releases (sampled)
    Caller,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MmapFormat {
    /// Powers of two, drawn
    Histogram,
    /// The tables of `report`
    Table,
    /// For programs (documented in docs/reference/json.md)
    Json,
    /// For spreadsheets
    Csv,
}
