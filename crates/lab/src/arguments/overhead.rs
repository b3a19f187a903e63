//! Flags of `lockmeter-lab overhead`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lockmeter_cli::ResultFormat;
use lockmeter_cli::durations::{LONGEST_INTERVAL, parse_time};
use lockmeter_experiments::overhead::Level;

const OVERHEAD_EXAMPLES: &str = "\
Examples:
  lockmeter-lab overhead -- ./benchmark                   whole runs of each level, in random order
  lockmeter-lab overhead --clean 'make clean' --drop-caches -- make -j8
  lockmeter-lab overhead --slices -- make -j8             one run, with metering switched on and off
  lockmeter-lab overhead --attach $(pidof redis-server)   the same in a running program
  lockmeter-lab overhead --preset kernel-build --kernel --runs 300";

#[derive(Debug, Args)]
#[command(after_help = OVERHEAD_EXAMPLES)]
pub struct OverheadArguments {
    /// How often each level runs; with --slices or --attach, how often each is switched on
    #[arg(long, alias = "rounds", value_name = "COUNT", value_parser = parse_runs)]
    pub runs: Option<usize>,
    /// Levels to compare with no metering: off (loaded, but switched off), wait, hold, naive (every acquisition timed, for
    /// comparison)
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', default_value = "off,wait,hold,naive")]
    pub levels: Vec<Level>,
    /// The cost that the verdict is about
    #[arg(long, value_name = "PERCENT", default_value = "1%", value_parser = parse_limit)]
    pub limit: f64,
    /// Shell command to run before each run, not measured
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["attach", "slices"])]
    pub clean: Option<String>,
    /// Also empty the kernel's caches before each run
    #[arg(long, conflicts_with_all = ["attach", "slices"])]
    pub drop_caches: bool,
    /// A ready-made workload: files of the Linux kernel, compiled one batch a round
    #[arg(long, value_enum, conflicts_with_all = ["attach", "clean", "command", "slices"])]
    pub preset: Option<Preset>,
    /// Shell commands, one a line: each round runs the next command with every level. Many short, equal commands give a narrower
    /// interval than a few long ones
    #[arg(long, value_name = "FILE", conflicts_with_all = ["attach", "command", "preset", "slices"])]
    pub each_of: Option<PathBuf>,
    /// Only metering of kernel locks, as `record --kernel -a`
    #[arg(long, conflicts_with = "user")]
    pub kernel: bool,
    /// Switch metering of kernel locks inside one run instead of comparing whole runs
    #[arg(long)]
    pub slices: bool,
    /// Switch metering while this process runs
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "preset"])]
    pub attach: Option<u32>,
    /// With --attach: switch the metering of the program's own locks (it runs under `record -- COMMAND`), not the kernel's
    #[arg(long, requires = "attach")]
    pub user: bool,
    /// How long each level is on at a time, with --slices or --attach
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_slice)]
    pub slice: Duration,
    /// With --attach: how the program's progress is measured; without it, by calls if it makes many
    #[arg(long, value_enum, requires = "attach")]
    pub progress: Option<ProgressBy>,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
    /// The command to run
    #[arg(last = true, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// The files of kernel/ and mm/ in the smallest configuration of Linux
    KernelBuild,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ProgressBy {
    /// Read and write calls a second
    Calls,
    /// The share of user time in its CPU time
    UserTime,
}

/// Shorter slices would consist of switching.
const SHORTEST_SLICE: Duration = Duration::from_millis(20);

fn parse_slice(text: &str) -> Result<Duration, String> {
    let slice = parse_time(text)?;
    if !(SHORTEST_SLICE..=LONGEST_INTERVAL).contains(&slice) {
        return Err("give a slice between 20ms and 1h".into());
    }
    Ok(slice)
}

fn parse_runs(text: &str) -> Result<usize, String> {
    match text.trim().parse() {
        Ok(0) => Err("zero runs show nothing; give at least 6".into()),
        Ok(runs) => Ok(runs),
        Err(_) => Err("give a whole number, at least 6 to get an interval".into()),
    }
}

fn parse_limit(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let share = percent.map(|percent| percent / 100.0).filter(|share| *share > 0.0 && *share <= 1.0);
    share.ok_or_else(|| "give a percentage above 0, such as 1% or 0.5%".into())
}
