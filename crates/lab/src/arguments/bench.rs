//! Flags of `lockmeter-lab bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use lockmeter_cli::ResultFormat;
use lockmeter_cli::durations::parse_duration;
use lockmeter_experiments::mixed::{Mix, Work};

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// lockmeter's locks and their peers over a grid of threads, read shares and lengths of the critical section; and
    /// uncontended pairs
    Locks(LocksArguments),
    /// Breakpoint accounting: the kernel's own, as `perf bench breakpoint thread` measures it, and its designs in user space
    Breakpoint(BreakpointArguments),
    /// Mail delivery that forks a process for each message
    ForkMail(ForkMailArguments),
    /// The policies of the reader-writer semaphore, one switched at a time, beside other locks
    Rwsem(RwsemArguments),
    /// A mix of work modelled on AIM7, without its disk part: jobs a minute as users are added
    Mixed(MixedArguments),
    /// The queueing model of `lockmeter predict`, compared with measurements here and with published figures
    Model(ModelArguments),
    /// All of these experiments, and one report with pictures
    All(AllArguments),
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lockmeter-lab bench locks --quick\n  lockmeter-lab bench locks --csv locks.csv --svg locks.svg\n  \
    lockmeter-lab bench locks --quick --locks Mutex --no-pairs"
)]
pub struct LocksArguments {
    #[command(flatten)]
    pub race: bench_locks::Arguments,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  lockmeter-lab bench breakpoint -b 4 -p 64 -t 64\n  \
    lockmeter record --user --hold -- lockmeter-lab bench breakpoint --only before")]
pub struct BreakpointArguments {
    /// Breakpoints that every thread inherits
    #[arg(short, long, default_value_t = 1, value_parser = parse_breakpoints)]
    pub breakpoints: usize,
    /// Threads that create and join others at once
    #[arg(short, long, default_value_t = 1, value_parser = parse_count)]
    pub parallelism: usize,
    /// Threads that each of them creates before it joins them
    #[arg(short, long, default_value_t = 1, value_parser = parse_count)]
    pub threads: usize,
    /// How often, all parallel threads together
    #[arg(short, long, default_value_t = 10, value_parser = parse_count)]
    pub repeat: usize,
    /// Rounds; everything that is compared runs once in each
    #[arg(long, default_value_t = 10, value_parser = parse_count)]
    pub rounds: usize,
    /// Only the kernel's accounting, or only one design in user space
    #[arg(long, value_enum)]
    pub only: Option<Part>,
    /// perf, to compare with
    #[arg(long, value_name = "PROGRAM", default_value = "perf")]
    pub perf: PathBuf,
    /// In user space: threads at once; without it, 1, 2 for each core, and 32 for each core
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = parse_count)]
    pub user_threads: Vec<usize>,
    /// In user space: CPUs of the machine that is modelled
    #[arg(long, default_value_t = 256, value_parser = parse_count)]
    pub cpus: usize,
    /// In user space: the share of targets that are CPUs, which write what tasks read; the others are tasks
    #[arg(long, value_name = "PERCENT", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=100))]
    pub cpu_targets: u32,
    /// In user space: how long one run lasts
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    pub slice: Duration,
    /// In user space: what a task computes besides its breakpoints; creating and joining a thread takes about as long
    #[arg(long, value_name = "TIME", default_value = "20us", value_parser = parse_duration)]
    pub work: Duration,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The kernel's own
    Kernel,
    /// All designs in user space
    User,
    /// The global mutex
    Before,
    /// Per-task mutexes and a reader lock
    After,
    /// No accounting
    Ideal,
    /// No breakpoints
    Floor,
}

#[derive(Debug, Args)]
pub struct ForkMailArguments {
    /// Clients that send at once; without it, one, two and four for each core
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = parse_count)]
    pub clients: Vec<usize>,
    /// How long each step lasts
    #[arg(short, long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub duration: Duration,
    /// How often each step is repeated, in random order
    #[arg(long, default_value_t = 3, value_parser = parse_count)]
    pub rounds: usize,
    /// Rounds of the comparison of locks between processes and between threads; 0 leaves it out
    #[arg(long, value_name = "ROUNDS", default_value_t = 60)]
    pub races: usize,
    /// Mailboxes that messages go to in turn
    #[arg(long, default_value_t = 64, value_parser = parse_count)]
    pub mailboxes: usize,
    /// Bytes of a message
    #[arg(long, default_value_t = 2048, value_parser = parse_count)]
    pub bytes: usize,
    /// Write spool and mailbox to the disk (fsync) before a message is acknowledged
    #[arg(long)]
    pub fsync: bool,
    /// Where spool and mailboxes are made; without it, among the temporary files
    #[arg(long, value_name = "FOLDER")]
    pub spool: Option<PathBuf>,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lockmeter-lab bench rwsem\n  lockmeter-lab bench rwsem --threads 8 --reads 0,50,95"
)]
pub struct RwsemArguments {
    /// Threads at once; without it, one, two and four for each core
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = parse_count)]
    pub threads: Vec<usize>,
    /// How many of a hundred acquisitions only read
    #[arg(long, value_name = "PERCENT,…", value_delimiter = ',', default_value = "0,80",
        value_parser = clap::value_parser!(u32).range(..=99))]
    pub reads: Vec<u32>,
    /// Rounds; each lock runs once in each, for 30 ms
    #[arg(long, default_value_t = 40, value_parser = parse_count)]
    pub rounds: usize,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lockmeter-lab bench mixed\n  lockmeter-lab bench mixed --preset high-systime\n  lockmeter-lab bench mixed --mix fork=4,file=2 --users 8,32"
)]
pub struct MixedArguments {
    /// Users at once, step by step; without it, 1 to 16 for each core
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = parse_count)]
    pub users: Vec<usize>,
    /// Jobs that each user does in a step
    #[arg(long, default_value_t = 5, value_parser = parse_count)]
    pub jobs: usize,
    /// How often a job does each kind of work: compute, fork, pipe, signal, mmap, share, file
    #[arg(long, value_name = "WORK=TIMES,…", default_value = "compute=1,fork=1,pipe=1,signal=1,mmap=1,file=1")]
    pub mix: Mix,
    /// Instead of --mix: a mix modelled on AIM7's of this name
    #[arg(long, value_enum, conflicts_with = "mix")]
    pub preset: Option<Preset>,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

/// Mixes whose throughput the mails of 2013 give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Preset {
    /// System calls alone: fork=3,pipe=2,signal=1,mmap=3,share=2,file=2
    HighSystime,
    /// A file that all users map, and some of everything else: compute=2,fork=1,pipe=1,signal=1,mmap=1,share=6,file=1
    Shared,
}

impl Preset {
    /// The weights are ours: AIM7's tests that need a disk, a network or floating point have no counterpart here.
    fn mix(self) -> Mix {
        use Work::{Compute, File, Fork, Mmap, Pipe, Share, Signal};
        Mix(match self {
            Self::HighSystime => vec![(Fork, 3), (Pipe, 2), (Signal, 1), (Mmap, 3), (Share, 2), (File, 2)],
            Self::Shared => {
                vec![(Compute, 2), (Fork, 1), (Pipe, 1), (Signal, 1), (Mmap, 1), (Share, 6), (File, 1)]
            }
        })
    }
}

impl MixedArguments {
    /// What a job does.
    pub fn mix(&self) -> Mix {
        self.preset.map_or_else(|| self.mix.clone(), Preset::mix)
    }
}

#[derive(Debug, Args)]
pub struct ModelArguments {
    /// Threads of the points that are measured; without it, one up to as many as there are cores
    #[arg(long, value_name = "COUNT,…", value_delimiter = ',', value_parser = parse_count)]
    pub threads: Vec<usize>,
    /// Rounds of each point
    #[arg(long, default_value_t = 5, value_parser = parse_count)]
    pub rounds: usize,
    /// Seed of the random order
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[derive(Debug, Args)]
pub struct AllArguments {
    /// Folder for the report, its pictures and the measurements; what is there already is not measured again
    #[arg(long, value_name = "FOLDER")]
    pub report: PathBuf,
    /// The short form: at most five minutes
    #[arg(long)]
    pub short: bool,
    /// perf, to compare with
    #[arg(long, value_name = "PROGRAM", default_value = "perf")]
    pub perf: PathBuf,
}

/// More threads, users or rounds than this are surely mistyped.
const MOST: usize = 1_000_000;

fn parse_count(text: &str) -> Result<usize, String> {
    let count = text.trim().parse().ok().filter(|count| (1..=MOST).contains(count));
    count.ok_or_else(|| format!("give a whole number between 1 and {MOST}"))
}

fn parse_breakpoints(text: &str) -> Result<usize, String> {
    let most = lockmeter_experiments::breakpoint::kernel::MOST_BREAKPOINTS;
    let count = text.trim().parse().ok().filter(|count| *count <= most);
    count.ok_or_else(|| format!("give a number of breakpoints up to {most} (x86 has 4)"))
}
