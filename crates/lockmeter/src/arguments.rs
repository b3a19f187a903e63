//! The command line.

pub mod agent;
pub mod latency;
pub mod mmap;
pub mod predict;
mod values;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lockmeter_cli::ResultFormat;
use lockmeter_cli::completions::CompletionsArguments;
use lockmeter_cli::durations::parse_duration;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::manual_pages::ManualPagesArguments;
use lockmeter_cli::output::cannot_write;
use lockmeter_cli::progress::{Progress, Unit};
use lockmeter_cli::swaps::{Swaps, parse_swaps};
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::threads::LookPace;
use lockmeter_profile::recording::{RecordingOptions, RecordingWriter};
use lockmeter_profile::view::{NamePattern, TaskPattern};
use lockmeter_profile::{About, Dimension, Kind, Mode};
use lockmeter_recorder::{Asking, HoldOptions, HookChoice, LockOptions, StopSignals, SwapOptions, Which, ask_servers};

pub use values::{Dimensions, Window};
use values::{
    parse_budget, parse_dimensions, parse_interval, parse_kind, parse_mode, parse_permissions, parse_share_ppm,
    parse_window,
};

/// The recording that `record` writes and `report` reads when none is named.
pub const DEFAULT_RECORDING: &str = "out.lockmeter";

/// What `scripts/source-version commit` said when `make` began the build; `None` where Cargo was run alone.
pub const COMMIT: Option<&str> = option_env!("LOCKMETER_COMMIT");

const EXAMPLES: &str = "\
Examples:
  lockmeter record -a -d 10s           meter the whole machine for ten seconds
  lockmeter record -- make -j4         meter a command and its children
  lockmeter report --by lock,caller    who waits, and where
  lockmeter report --by lock,blocker   who makes them wait
  lockmeter top                        the same, live

Exit status:
  0 success, 1 failure, 2 bad command line, 3 not allowed on this kernel or with these privileges,
  4 not a readable recording, 5 no such process, control group or command, 6 output not writable;
  `record -- COMMAND` ends with the command's own status (128 + signal, 126 not executable, 127 not found).";

/// Finds the lock that slows a Linux system down, who waits for it, and who makes them wait.
#[derive(Debug, Parser)]
#[command(name = "lockmeter", version, long_version = long_version(), after_help = EXAMPLES, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

fn long_version() -> &'static str {
    let features = [("static", cfg!(feature = "static"))];
    lockmeter_cli::long_version(env!("CARGO_PKG_VERSION"), COMMIT, &features)
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Meter lock contention and write a recording
    Record(RecordArguments),
    /// Show a recording, grouped as you like
    Report(ReportArguments),
    /// Compare two recordings: what got better or worse
    Diff(DiffArguments),
    /// Show the locks that are waited for now, refreshed each second
    Top(TopArguments),
    /// Show how long mmap_lock, the lock of an address space, is waited for and held
    Mmap(mmap::MmapArguments),
    /// Show what keeps CPUs from their tasks: interrupts, softirqs, timers, work items
    Latency(latency::LatencyArguments),
    /// Meter the whole machine always, and serve metrics of it to Prometheus
    Agent(agent::AgentArguments),
    /// Predict what a lock will cost on more CPUs, and what removing or splitting it would gain
    Predict(predict::PredictArguments),
    /// List the rules that say what threads of programs wait for, or test a file of rules
    Rules(RulesArguments),
    /// Turn metering on in a program that runs under `lockmeter record -- COMMAND`
    On(SwitchArguments),
    /// Turn metering off in a program that runs under `lockmeter record -- COMMAND`
    Off(SwitchArguments),
    /// Show what this kernel and these privileges allow, and how to fix each "no"
    Doctor(DoctorArguments),
    /// Print a script that completes the command line in a shell
    #[command(after_help = lockmeter_cli::completions_examples!("lockmeter"))]
    Completions(CompletionsArguments),
    /// Write the manual pages
    #[command(hide = true)]
    ManualPages(ManualPagesArguments),
    /// Now a command of lockmeter-lab
    #[command(hide = true, disable_help_flag = true)]
    Bench(MovedArguments),
    /// Now a command of lockmeter-lab
    #[command(hide = true, disable_help_flag = true)]
    Compare(MovedArguments),
    /// Now a command of lockmeter-lab
    #[command(hide = true, disable_help_flag = true)]
    Overhead(MovedArguments),
}

impl Command {
    /// Files of rules that were given to a command that tells waits of programs apart; `None` if it does not.
    pub fn rules(&self) -> Option<&[PathBuf]> {
        match self {
            Self::Record(arguments) => Some(&arguments.rules.rules),
            Self::Report(arguments) => Some(&arguments.rules.rules),
            Self::Diff(arguments) => Some(&arguments.rules.rules),
            Self::Top(arguments) => Some(&arguments.rules.rules),
            Self::Agent(arguments) => Some(&arguments.rules.rules),
            Self::Predict(arguments) => Some(&arguments.rules.rules),
            Self::Rules(RulesArguments { command: RulesCommand::List(arguments) }) => Some(&arguments.rules.rules),
            Self::Rules(RulesArguments { command: RulesCommand::Test(arguments) }) => {
                Some(std::slice::from_ref(&arguments.file))
            }
            _ => None,
        }
    }
}

/// Rules beside those that lockmeter comes with.
#[derive(Debug, Args)]
pub struct RuleFileArguments {
    /// A file of rules that name locks of programs (docs/reference/rules.md). It counts before those of /etc/lockmeter/rules.d and
    /// lockmeter's own; of several files, the first counts first. Its rules also apply to recordings made without them
    #[arg(long = "rules", value_name = "FILE")]
    pub rules: Vec<PathBuf>,
}

const RULES_EXAMPLES: &str = "\
Examples:
  lockmeter rules list                            all rules, and where they come from
  lockmeter rules test shop.toml out.lockmeter    what the rules of a file match in a recording
  lockmeter record --rules shop.toml -p PID       meter with them
  lockmeter report --rules shop.toml              read a recording again with them";

#[derive(Debug, Args)]
#[command(after_help = RULES_EXAMPLES)]
pub struct RulesArguments {
    #[command(subcommand)]
    pub command: RulesCommand,
}

#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Show all rules in the order in which they count
    List(RulesListArguments),
    /// Show what each rule of a file matches in a recording, what overlaps and what never matched
    Test(RulesTestArguments),
}

#[derive(Debug, Args)]
pub struct RulesListArguments {
    #[command(flatten)]
    pub rules: RuleFileArguments,
    /// How to write the list
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[derive(Debug, Args)]
pub struct RulesTestArguments {
    /// The file of rules
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The recording; `-` is standard input
    #[arg(default_value = DEFAULT_RECORDING, value_name = "RECORDING")]
    pub recording: PathBuf,
    /// How to write the findings
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

/// Of a command that another program has now: whatever they are, the sentence that says so is the same.
#[derive(Debug, Args)]
pub struct MovedArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    pub all: Vec<OsString>,
}

const RECORD_EXAMPLES: &str = "\
Examples:
  lockmeter record -a -d 10s                     the whole machine, ten seconds
  lockmeter record -a                            until Ctrl-C, which ends it cleanly and reports
  lockmeter record -a -d 10s --html locks.html   and a page to look at, or to attach to a ticket
  lockmeter record -a -- make                    the whole machine, while a command runs
  lockmeter record -p $(pidof mariadbd) -d 1m    a running program: its own locks and the kernel's
  lockmeter record -p 4242,4250 -d 1m            several programs
  lockmeter record --cgroup nginx.service -d 30s
                                                 a systemd unit, or another control group by its path
  lockmeter record -- ./server --flags           a command and its children: their own locks, too
  lockmeter record --hold -- ./server            also how often and how long its own locks are held
  lockmeter record --hold -a -d 10s              who holds kernel locks while others wait, how long
  lockmeter record --swap mutex=mutex -- ./server
                                                 with lockmeter's mutexes in place of pthread's";

/// Whose metering to switch.
#[derive(Debug, Args)]
pub struct SwitchArguments {
    /// The program's process id
    pub pid: u32,
}

/// Whose waits to meter.
#[derive(Debug, Args)]
pub struct ScopeArguments {
    /// Meter the whole machine
    #[arg(short, long)]
    pub all: bool,
    /// Meter these processes, their threads and their children; several as 1,2 or by several options
    #[arg(short, long, value_name = "PID", value_delimiter = ',')]
    pub pid: Vec<u32>,
    /// With --pid, leave the processes' children out
    #[arg(long, requires = "pid")]
    pub no_children: bool,
    /// Meter this control group (version 2) and those below it: its path, or its name, such as a systemd unit's (nginx.service)
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<PathBuf>,
}

/// How much stacks may cost.
#[derive(Debug, Args)]
pub struct StackArguments {
    /// Share of CPU time that taking stacks may use; totals are exact whatever it is
    #[arg(long, value_name = "PERCENT", default_value = "0.3%", value_parser = parse_budget)]
    pub stack_budget: StackBudget,
    /// Take the stack of every wait in the kernel, and time every hold, whatever it costs
    #[arg(long, conflicts_with = "stack_budget")]
    pub every: bool,
}

impl StackArguments {
    pub fn budget(&self) -> StackBudget {
        if self.every { StackBudget::Every } else { self.stack_budget }
    }
}

/// Where the names of stripped programs come from.
#[derive(Debug, Args)]
pub struct NameArguments {
    /// Ask these debuginfod servers for the symbols of stripped programs; URLs with blanks between them. They learn the build ids.
    /// Without this option no server is asked, whatever DEBUGINFOD_URLS says
    #[arg(long, value_name = "URLS", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub debuginfod: Option<String>,
}

impl NameArguments {
    /// Has servers asked from now on, if that is wanted.
    pub fn prepare(&self) -> Result<()> {
        let Some(urls) = &self.debuginfod else { return Ok(()) };
        let mut progress = None;
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let tell = move |asking| match asking {
            Asking::ForSoLong { spent, at_most } => progress
                .get_or_insert_with(|| {
                    Progress::of("asking debuginfod servers", Unit::Limit, Some(milliseconds(at_most)))
                })
                .reach(milliseconds(spent)),
            Asking::Over => progress = None,
        };
        ask_servers(urls, Box::new(tell))
            .map_err(|error| Failure::error(Status::Usage, format!("--debuginfod: {error}")))
    }
}

/// How whole holds of kernel locks are timed.
#[derive(Debug, Args)]
pub struct HookArguments {
    /// With --hold: which function hooks time the holds of kernel locks: fentry where this kernel allows it, else kprobes
    /// (auto), only one of these, or no hooks (none)
    #[arg(long, requires = "hold", value_name = "WAY", default_value = "auto", value_parser = hook_choices())]
    pub hooks: HookChoice,
    /// With --hold, where function hooks are allowed: largest share of the machine's CPU time for the hooks of sleeping locks;
    /// beyond it, holds are timed only part of the time (100%: always timed)
    #[arg(long, requires = "hold", value_name = "PERCENT", default_value = "1%", value_parser = parse_share_ppm)]
    pub hold_budget: u32,
}

impl HookArguments {
    /// Holds of locks that sleep, by such hooks.
    fn hold_options(&self, stacks: &StackArguments) -> HoldOptions {
        const ALL_PPM: u32 = 1_000_000;
        let budget_ppm = (!stacks.every && self.hold_budget < ALL_PPM).then_some(self.hold_budget);
        HoldOptions { hooks: self.hooks, budget_ppm, ..HoldOptions::default() }
    }
}

/// How a recording is written.
#[derive(Debug, Args)]
pub struct FileArguments {
    /// Permissions of the recording in octal, such as 0644, whatever the umask; without it, only its owner may read it (0600)
    #[arg(long, value_name = "MODE", value_parser = parse_permissions)]
    pub mode: Option<u32>,
    /// Keep kernel addresses in the recording; without it, they are replaced by numbers that differ in every recording
    #[arg(long)]
    pub kernel_addresses: bool,
}

impl FileArguments {
    /// For a writer that waits for the reader of a pipe until one of these signals comes.
    fn options(&self, signals: &StopSignals) -> io::Result<RecordingOptions> {
        Ok(RecordingOptions { mode: self.mode(), kernel_addresses: self.kernel_addresses, wait: signals.pipe_wait()? })
    }

    /// The permissions of the recording.
    pub fn mode(&self) -> u32 {
        self.mode.unwrap_or(RecordingOptions::default().mode)
    }

    /// Begins the recording.
    pub fn create(&self, path: &Path, about: &About, signals: &StopSignals) -> Result<RecordingWriter> {
        let options = self.options(signals).context("cannot catch signals")?;
        RecordingWriter::create_with(path, about, options).map_err(cannot_write)
    }

    /// Whether any of it was given; without a recording it means nothing.
    pub fn is_given(&self) -> bool {
        self.mode.is_some() || self.kernel_addresses
    }
}

#[derive(Debug, Args)]
#[command(after_help = RECORD_EXAMPLES)]
pub struct RecordArguments {
    #[command(flatten)]
    pub scope: ScopeArguments,
    /// How long to meter, with a unit (10s, 500ms, 2m); without it, until Ctrl-C or the end of the command
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Where to write the recording; `-` is standard output (the command then writes to standard error)
    #[arg(short, long, value_name = "FILE", default_value = DEFAULT_RECORDING)]
    pub output: PathBuf,
    #[command(flatten)]
    pub rules: RuleFileArguments,
    #[command(flatten)]
    pub file: FileArguments,
    /// Also write what was recorded as a page, as `lockmeter report --format html` does, with the permissions of the recording
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// How often to write to the recording; a recorder that is killed loses at most this much
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    #[command(flatten)]
    pub stacks: StackArguments,
    #[command(flatten)]
    pub names: NameArguments,
    /// Also time how long locks are held: every acquisition of the command's own locks and of mmap_lock, and the contended part
    /// of the holds of other sleeping kernel locks
    #[arg(long)]
    pub hold: bool,
    /// Count waits and holds of kernel locks separately for each CPU, for `report --by cpu`; with many CPUs the recording gets larger
    #[arg(long, conflicts_with = "user")]
    pub per_cpu: bool,
    /// More symbols of the running kernel than it lists itself, such as its variables (/boot/System.map-RELEASE)
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    pub system_map: Option<PathBuf>,
    /// Swap the command's pthread locks for lockmeter's: mutex=mutex, rwlock=rwsem, rwlock=percpu-rwsem, spin=spin
    #[arg(long, value_name = "KIND=VARIANT,…", conflicts_with = "kernel", value_parser = parse_swaps)]
    pub swap: Option<Swaps>,
    #[command(flatten)]
    pub hooks: HookArguments,
    /// With --hold, where function hooks are allowed: only locks of this kind (mutex, rwsem, percpu-rwsem; spin, rwlock)
    #[arg(long, requires = "hold", value_parser = parse_kind)]
    pub kind: Option<Kind>,
    /// With --hold, where function hooks are allowed: leave out holds shorter than this (100us, 1ms)
    #[arg(long, requires = "hold", value_name = "TIME", value_parser = parse_duration)]
    pub min: Option<Duration>,
    /// Also time how long spinning locks are held: hooks every spinlock function of the kernel, and switches itself off when
    /// that takes more than --spin-budget
    #[arg(long, requires = "hold")]
    pub spin_holds: bool,
    /// With --spin-holds: largest share of the machine's CPU time for these hooks
    #[arg(long, requires = "spin_holds", value_name = "PERCENT", default_value = "5%", value_parser = parse_share_ppm)]
    pub spin_budget: u32,
    /// Time only holds of locks whose name contains this, or matches it if it has `*` or `?`. With --swap instead: swap only
    /// locks whose name matches so, or the name of the function that creates or first takes them
    #[arg(long, value_name = "PATTERN")]
    pub lock: Option<NamePattern>,
    /// Only the program's own locks; of a command, these need no privileges
    #[arg(long, conflicts_with = "kernel")]
    pub user: bool,
    /// Only kernel locks
    #[arg(long)]
    pub kernel: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    pub quiet: bool,
    /// The command to run and meter
    #[arg(last = true, value_name = "COMMAND", num_args = 1.., allow_hyphen_values = true)]
    pub command: Vec<OsString>,
}

impl RecordArguments {
    /// What these flags ask for, of this scope.
    pub fn lock_options(&self, scope: Scope) -> LockOptions {
        let holds = HoldOptions {
            kind: self.kind,
            spinning: self.spin_holds,
            min: self.min,
            spin_budget_ppm: self.spin_budget,
            ..self.hooks.hold_options(&self.stacks)
        };
        let swap = self.swap.as_ref().map(|swaps| SwapOptions {
            swaps: swaps.to_string(),
            pattern: self.lock.as_ref().map(ToString::to_string),
        });
        let which = match (self.user, self.kernel) {
            (true, _) => Which::User,
            (_, true) => Which::Kernel,
            _ => Which::All,
        };
        LockOptions {
            command: self.command.clone(),
            which,
            stacks: self.stacks.budget(),
            holds: self.hold.then_some(holds),
            per_cpu: self.per_cpu,
            swap,
            ..LockOptions::usual(scope)
        }
    }
}

fn hook_choices() -> impl TypedValueParser<Value = HookChoice> {
    let find = |name: String| HookChoice::ALL.into_iter().find(|choice| choice.name() == name);
    PossibleValuesParser::new(HookChoice::ALL.map(HookChoice::name)).try_map(move |name| find(name).ok_or("not known"))
}

/// How rows are grouped and chosen.
#[derive(Debug, Args)]
pub struct QueryArguments {
    /// Group by up to three of: lock, instance, caller, blocker, root, kind, mode, task, blocker-task, root-task, cgroup, object, filesystem, context, cpu
    #[arg(long, value_name = "WHAT[,WHAT…]", default_value = "lock", value_parser = parse_dimensions)]
    pub by: Dimensions,
    /// Only locks of this kind (spin, rwlock, mutex, rwsem, percpu-rwsem, rt-mutex, semaphore; idle: condvar,
    /// barrier, join, park, futex)
    #[arg(long, value_parser = parse_kind)]
    pub kind: Option<Kind>,
    /// Only waits in this mode (exclusive, read, write)
    #[arg(long, value_parser = parse_mode)]
    pub mode: Option<Mode>,
    /// Only locks of programs
    #[arg(long, conflicts_with = "kernel")]
    pub user: bool,
    /// Only locks of the kernel
    #[arg(long)]
    pub kernel: bool,
    /// Only locks whose name contains this, or matches it if it has `*` or `?`
    #[arg(long, value_name = "PATTERN")]
    pub lock: Option<NamePattern>,
    /// Only waits of this process id, or of tasks whose name contains or matches this
    #[arg(long, value_name = "PID|PATTERN")]
    pub task: Option<TaskPattern>,
    /// Also show what lockmeter itself waited for
    #[arg(long)]
    pub own: bool,
    /// How many rows to print in a table; 0 prints all. Without it, at most 20, and none below 1 % of the waited time
    #[arg(short = 'n', long, value_name = "ROWS")]
    limit: Option<usize>,
    /// How many frames of a stack to print in a table
    #[arg(long, value_name = "FRAMES", default_value_t = lockmeter_render::DEFAULT_FRAMES)]
    pub frames: usize,
}

impl QueryArguments {
    /// How many rows to print at most; 0 for all.
    pub fn rows(&self) -> usize {
        self.limit.unwrap_or(20)
    }

    /// Whether small rows are left to the last line.
    pub const fn folds_small(&self) -> bool {
        self.limit.is_none()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For people: each row's histogram, drawn
    Histogram,
    /// For programs (documented in docs/reference/json.md)
    Json,
    /// For spreadsheets
    Csv,
    /// Folded stacks of the waiters, for flame graphs; with `--by lock,blocker`, of those who make them wait
    Folded,
    /// Google's pprof
    Pprof,
    /// For browsers: one page that needs nothing else, with all groupings, graphs and windows
    Html,
}

const REPORT_EXAMPLES: &str = "\
Examples:
  lockmeter report                               the locks of out.lockmeter
  lockmeter report --by lock,caller              who waits for them
  lockmeter report --by lock,blocker -n 5        who makes them wait
  lockmeter report --by lock,root                where chains of waiters end
  lockmeter report --by object                   contended objects by type (inodes by file system)
  lockmeter report monday.lockmeter tuesday.lockmeter     both added up
  lockmeter report --format json | jq '.rows[0]'
  lockmeter report --format folded | flamegraph.pl > waits.svg
  lockmeter report --format pprof -o locks.pb.gz && go tool pprof -top locks.pb.gz
  lockmeter report --format html -o report.html  a page to look at, or to attach to a ticket";

#[derive(Debug, Args)]
#[command(after_help = REPORT_EXAMPLES)]
pub struct ReportArguments {
    /// The recordings, which are added up if there are several; `-` is standard input
    #[arg(default_value = DEFAULT_RECORDING, value_name = "RECORDING")]
    pub recordings: Vec<PathBuf>,
    #[command(flatten)]
    pub rules: RuleFileArguments,
    #[command(flatten)]
    pub query: QueryArguments,
    /// Order by this column
    #[arg(long, value_name = "COLUMN", default_value = "total_ns")]
    pub sort: String,
    /// Only this part of each recording, as offsets from its start: 2s..5s, 10s.., ..1m
    #[arg(long, value_name = "FROM..TO", value_parser = parse_window)]
    pub window: Option<Window>,
    /// For a recording of `lockmeter latency`: draw each row's histograms
    #[arg(long)]
    pub histogram: bool,
    /// How to write the report
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// File to write to; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  lockmeter diff before.lockmeter after.lockmeter
  lockmeter diff before.lockmeter after.lockmeter --by lock,caller --format json
  lockmeter diff before.lockmeter after.lockmeter --format html -o diff.html
  lockmeter diff --before old-1 old-2 old-3 --after new-1 new-2 new-3";

#[derive(Debug, Args)]
#[command(
    after_help = DIFF_EXAMPLES,
    override_usage = "lockmeter diff [OPTIONS] BEFORE AFTER\n       \
        lockmeter diff [OPTIONS] --before RECORDING… --after RECORDING…"
)]
pub struct DiffArguments {
    /// The recording to compare with, and the one to judge; one of the two may be `-`, standard input
    #[arg(value_names = ["BEFORE", "AFTER"], num_args = 2, required_unless_present_any = ["before", "after"])]
    pub recordings: Vec<PathBuf>,
    /// Several recordings to compare with; three or more on each side show how much runs differ by themselves
    #[arg(long, value_name = "RECORDING", num_args = 1.., requires = "after", conflicts_with = "recordings")]
    pub before: Vec<PathBuf>,
    /// Several recordings to judge
    #[arg(long, value_name = "RECORDING", num_args = 1.., requires = "before", conflicts_with = "recordings")]
    pub after: Vec<PathBuf>,
    #[command(flatten)]
    pub rules: RuleFileArguments,
    #[command(flatten)]
    pub query: QueryArguments,
    /// How to write the comparison
    #[arg(long, value_enum, default_value_t = DiffFormat::Table)]
    pub format: DiffFormat,
    /// File to write to; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// For people
    Table,
    /// For programs (documented in docs/reference/json.md)
    Json,
    /// For browsers: one page that needs nothing else, with flame graphs of the changes in red and blue
    Html,
}

/// What looks at all threads may take of a CPU: a fifth of what `top` may. A look at a thousand busy threads takes a millisecond.
const LOOKS_PPM: u32 = 2_000;

const TOP_EXAMPLES: &str = "\
Examples:
  lockmeter top                         the whole machine; ? on the screen lists the keys
  lockmeter top -p 4242 --interval 5s   a program and its children
  lockmeter top --by lock,caller        grouped by lock and caller
  lockmeter top --hold                  also how long kernel locks are held
  lockmeter top --latency               what keeps CPUs from their tasks
  lockmeter top out.lockmeter           plays a recording
  lockmeter top --format json | jq .head.sentence
                                        one JSON object a line, as `report --format json` has it";

#[derive(Debug, Args)]
#[command(after_help = TOP_EXAMPLES)]
pub struct TopArguments {
    /// A recording to play instead of metering; `-` is standard input
    #[arg(value_name = "RECORDING", conflicts_with_all = ["latency", "all", "pid", "cgroup", "hold", "stack_budget", "every", "interval", "duration", "debuginfod"])]
    pub recording: Option<PathBuf>,
    /// Show what keeps CPUs from their tasks (as `lockmeter latency`) instead of locks
    #[arg(long, conflicts_with_all = ["all", "pid", "cgroup", "by", "mode", "user", "kernel", "task", "own", "frames", "stack_budget", "every", "hold"])]
    pub latency: bool,
    /// How to write the rows; on a terminal, a table is an interactive screen
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
    #[command(flatten)]
    pub scope: ScopeArguments,
    #[command(flatten)]
    pub rules: RuleFileArguments,
    #[command(flatten)]
    pub query: QueryArguments,
    /// Also show how long kernel locks are held: mmap_lock, and other sleeping locks by function hooks where this kernel allows
    /// them, else only the contended part of each hold
    #[arg(long)]
    pub hold: bool,
    #[command(flatten)]
    pub hooks: HookArguments,
    /// Order by this column
    #[arg(long, value_name = "COLUMN", default_value = "total_ns")]
    pub sort: String,
    #[command(flatten)]
    pub stacks: StackArguments,
    #[command(flatten)]
    pub names: NameArguments,
    /// How often to refresh
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,
    /// How long, with a unit; without it, until `q` or Ctrl-C
    #[arg(short, long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

impl TopArguments {
    /// What these flags ask for, of this scope.
    pub fn lock_options(&self, scope: Scope) -> LockOptions {
        LockOptions {
            stacks: self.stacks.budget(),
            holds: self.hold.then(|| self.hooks.hold_options(&self.stacks)),
            per_cpu: self.query.by.0.contains(&Dimension::Cpu),
            counts_unfinished: false,
            looks: LookPace::Share { ppm: LOOKS_PPM },
            ..LockOptions::usual(scope)
        }
    }
}

#[derive(Debug, Args)]
pub struct DoctorArguments {
    /// How to write the findings
    #[arg(long, value_enum, default_value_t = ResultFormat::Table)]
    pub format: ResultFormat,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
