//! What a view of a recording says: the rows that every sink shows.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::interval::{BlockerSource, Overhead};
use crate::lock::Naming;
use crate::loss::Losses;
use crate::rules::RuleSet;
use crate::sample::{Context, Happened, HoldBasis, Kind, Mode, Value, named_enum};
use crate::slow_hold::HolderTime;
use crate::swap::Swaps;
use crate::switched_off::SwitchedOff;
use crate::thread_time::{HolderState, SpinLoop, ThreadState};

named_enum! {
    /// What rows can be grouped by. Lock, kind and mode always stay apart in a row that has a lock.
    Dimension {
        /// The lock's class.
        Lock = 1, "lock";
        /// The single lock (its address): an estimate, for the heaviest only.
        Instance = 2, "instance";
        /// The stack that waited.
        Caller = 3, "caller";
        /// The stack that made it wait.
        Blocker = 4, "blocker";
        /// The kind of lock.
        Kind = 5, "kind";
        /// The process that waited.
        Task = 6, "task";
        /// Its control group.
        Cgroup = 7, "cgroup";
        /// The type of the object the lock lies in.
        Object = 8, "object";
        /// The end of the chain: what the blocker waited for itself, and who had that.
        Root = 9, "root";
        /// How the lock was to be taken: exclusively, for reading, for writing.
        Mode = 10, "mode";
        /// The file system of the object that a kernel lock lies in.
        Filesystem = 11, "filesystem";
        /// What waited: a task, a softirq or an interrupt.
        Context = 12, "context";
        /// The CPU on which the wait, or the hold, ended.
        Cpu = 13, "cpu";
        /// The process and thread that made it wait.
        BlockerTask = 14, "blocker-task";
        /// The process and thread at the end of the chain.
        RootTask = 15, "root-task";
    }
}

impl Dimension {
    /// Whether rows of this dimension tell apart who is to blame for a wait.
    pub const fn is_of_blame(self) -> bool {
        matches!(self, Self::Blocker | Self::BlockerTask | Self::Root | Self::RootTask)
    }

    /// Whether rows of this dimension rest on sampled stacks rather than on exact totals.
    pub const fn is_sampled(self) -> bool {
        matches!(
            self,
            Self::Instance
                | Self::Caller
                | Self::Blocker
                | Self::BlockerTask
                | Self::Root
                | Self::RootTask
                | Self::Filesystem
        )
    }
}

/// A recording, grouped.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// What the rows are grouped by, in the order asked for.
    pub by: Vec<Dimension>,
    /// Whether some locks were asked for and others not, while the threads' time is that of all.
    pub leaves_locks_out: bool,
    /// What was recorded, where and how.
    pub about: About,
    /// When the window of this report began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// How long the window is (metered time; gaps are not counted).
    pub duration_ns: u64,
    /// How many intervals it rests on.
    pub intervals: u64,
    /// Everything that was waited for in the window, lockmeter's own waits apart.
    pub waits: Value,
    /// The part of them that programs waited for locks of their own.
    pub user_waits: Value,
    /// What is known of the spinning in them.
    pub spinning: Spinning,
    /// The waits of goroutines among these.
    pub goroutines: Goroutines,
    /// What lockmeter's own process waited for.
    pub own_waits: Value,
    /// Waited time (in `waits`) whose lock has a name.
    pub named_ns: u64,
    /// The lock that cost most, and who blocked it.
    pub worst: Option<Worst>,
    /// Waits that timed out, which are not in `waits`; `None` if there were none.
    pub timed_out: Option<TimedOut>,
    /// How many holds are in the rows.
    pub holds: u64,
    /// How many of them were counted and not timed.
    pub untimed_holds: u64,
    /// The groups, longest total first.
    pub rows: Vec<Row>,
    /// The longest single contended holds, longest first.
    pub slow_holds: Vec<SlowHoldRow>,
    /// Where the time of the threads went; `None` if they were not watched.
    pub threads: Option<ThreadsReport>,
    /// What was lost.
    pub losses: Losses,
    /// What became of the locks of programs that were to be swapped.
    pub swaps: Swaps,
    /// For how long of the window metering was switched off in programs.
    pub off: SwitchedOff,
    /// What metering cost.
    pub overhead: Overhead,
}

/// What is known of the spinning in waits, beside its sum.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spinning {
    /// For how long threads that wait for spinning locks had no CPU.
    pub preempted_ns: u64,
    /// The part of the sum that is an estimate.
    pub sampled: SampledSpin,
}

/// What is known of goroutines.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Goroutines {
    /// How many looks at all that wait; 0: there were none, or they could not be seen.
    pub looks: u64,
    /// The part of all waits that is theirs.
    pub parked: ParkedTime,
}

impl Spinning {
    /// How far the sum may be from the truth, either way, in 95 of 100 cases; 0 if it is exact.
    pub fn sampled_error_ns(&self) -> u64 {
        if self.sampled.samples > 0 { self.sampled.error_ns() } else { 0 }
    }
}

/// CPU time spent spinning, as samples of what CPUs ran tell it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SampledSpin {
    /// How many samples met it.
    pub samples: u64,
    /// What they stand for.
    pub total_ns: u64,
    /// The part of that which was added to waited time: the others are in waits that were counted otherwise.
    pub added_ns: u64,
    /// The variance of the time, in square nanoseconds.
    pub variance_ns2: f64,
}

impl SampledSpin {
    /// Where all samples hit, or hardly any, they seem to have no error: as if this many more had hit, and as many missed.
    const MORE_SAMPLES: f64 = 2.0;

    /// Adds what others met.
    pub fn merge(&mut self, other: &Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.added_ns = self.added_ns.saturating_add(other.added_ns);
        self.variance_ns2 += other.variance_ns2;
    }

    /// How far the time may be from the truth, either way, in 95 of 100 cases.
    pub fn error_ns(&self) -> u64 {
        let each_ns = self.total_ns as f64 / self.samples.max(1) as f64;
        let variance_ns2 = self.variance_ns2.max(0.0) + (Self::MORE_SAMPLES * each_ns).powi(2);
        (HoldBasis::OF_95_PERCENT * variance_ns2.sqrt()) as u64
    }
}

/// Time that goroutines were parked, as looks at them tell it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ParkedTime {
    /// How many looks found any.
    pub looks: u64,
    /// What they stand for.
    pub total_ns: u64,
    /// The variance of the time, in square nanoseconds.
    pub variance_ns2: f64,
}

impl ParkedTime {
    /// Adds what others found.
    pub fn merge(&mut self, other: &Self) {
        self.looks = self.looks.saturating_add(other.looks);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.variance_ns2 += other.variance_ns2;
    }

    /// How far the time may be from the truth, either way, in 95 of 100 cases.
    pub fn error_ns(&self) -> u64 {
        (HoldBasis::OF_95_PERCENT * self.variance_ns2.max(0.0).sqrt()) as u64
    }
}

/// What rates are computed in parts of, so that the sum of two is as exact as one.
const SCALE: u128 = 1 << 20;

impl Report {
    /// `times` that part of all waits in a nanosecond of metered time; `None` when none passed. Programs may have been metered for
    /// less time than the kernel.
    pub fn waited_rate(&self, part: fn(&Value) -> u64, times: u64) -> Option<u64> {
        let user = part(&self.user_waits);
        let user_ns = self.duration_ns.saturating_sub(self.off.all_ns);
        let kernel = part(&self.waits).saturating_sub(user);
        let rate =
            |amount: u64, time_ns: u64| u128::from(amount) * u128::from(times) * SCALE / u128::from(time_ns.max(1));
        let sum = rate(kernel, self.duration_ns) + rate(user, user_ns);
        (self.duration_ns > 0).then(|| u64::try_from((sum + SCALE / 2) / SCALE).unwrap_or(u64::MAX))
    }
}

/// Where the time of the threads in scope went.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ThreadsReport {
    /// All of it: running, runnable and blocked.
    pub total_ns: u64,
    /// For how long they were watched.
    pub watched_ns: u64,
    /// The part of it that threads were at rest.
    pub rest_ns: u64,
    /// What they did otherwise, longest first. With the rest it adds up to the whole.
    pub states: Vec<StateTime>,
    /// Where threads were blocked, longest first.
    pub sleeps: Vec<SleepRow>,
    /// Who waits for a lock when the window ends: deadlocks first, then the oldest.
    pub open_waits: Vec<OpenWaitRow>,
    /// Who waited for a lock when it ended: killed, or with its process. In the same order.
    pub cut_waits: Vec<OpenWaitRow>,
    /// How much of the running was spinning, and where, longest first.
    pub spins: Vec<SpinRow>,
    /// How many samples of threads that ran these rest on; 0: none were taken.
    pub run_samples: u64,
}

impl ThreadsReport {
    pub(crate) fn put_in_order(&mut self) {
        self.states.sort_by_key(|time| (Reverse(time.total_ns), time.state));
        self.sleeps.sort_by(|one, other| {
            let key = |row: &SleepRow| (Reverse(row.total_ns), row.state);
            key(one).cmp(&key(other)).then_with(|| (&one.comm, &one.stack).cmp(&(&other.comm, &other.stack)))
        });
        self.spins.sort_by(|one, other| {
            let key = |row: &SpinRow| (Reverse(row.spun.total_ns), row.how, row.kind);
            key(one)
                .cmp(&key(other))
                .then_with(|| (&one.comm, &one.lock, &one.stack).cmp(&(&other.comm, &other.lock, &other.stack)))
        });
        for waits in [&mut self.open_waits, &mut self.cut_waits] {
            waits.sort_by_key(|wait| (wait.deadlock.is_none(), Reverse(wait.age_ns), wait.tid));
        }
    }

    /// How much of the running was spinning for what fits.
    pub fn spun(&self, fits: impl Fn(&SpinRow) -> bool) -> SampledSpin {
        let mut sum = SampledSpin::default();
        self.spins.iter().filter(|row| fits(row)).for_each(|row| sum.merge(&row.spun));
        sum
    }

    /// The time in states that fit.
    pub fn spent_ns(&self, fits: impl Fn(ThreadState) -> bool) -> u64 {
        let fitting = self.states.iter().filter(|time| fits(time.state));
        fitting.fold(0, |sum, time| sum.saturating_add(time.total_ns))
    }
}

/// The time of all threads in one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTime {
    /// The state.
    pub state: ThreadState,
    /// For how long.
    pub total_ns: u64,
    /// How far that may be from the truth, either way, in 95 of 100 cases: stacks tell some reasons, and these are looked at now and then.
    pub error_ns: u64,
}

/// A place where threads of one name were blocked.
#[derive(Debug, Clone, PartialEq)]
pub struct SleepRow {
    /// What for.
    pub state: ThreadState,
    /// The threads' name.
    pub comm: String,
    /// The lock, if it is one that the program has built for itself.
    pub lock: Option<String>,
    /// Whether they are at rest there: they did nearly nothing else.
    pub at_rest: bool,
    /// Where, innermost first, without the lock functions; empty where unknown.
    pub stack: Arc<[Arc<str>]>,
    /// For how long.
    pub total_ns: u64,
    /// As in [`StateTime`].
    pub error_ns: u64,
    /// How many looks found threads there.
    pub looks: u64,
    /// Who wakes threads there most, where they sleep in futexes.
    pub woken_by: Option<RowWaker>,
}

/// A place where threads of one name spun.
#[derive(Debug, Clone, PartialEq)]
pub struct SpinRow {
    /// By what it was seen.
    pub how: SpinLoop,
    /// What for: a lock, or anything else; `None` if nothing says so.
    pub happened: Option<Happened>,
    /// The kind of what it was for; `None` if nothing says so.
    pub kind: Option<Kind>,
    /// The lock, if it was for one.
    pub lock: Option<String>,
    /// The threads' name.
    pub comm: String,
    /// Where, innermost first, without the lock functions; empty where unknown.
    pub stack: Arc<[Arc<str>]>,
    /// For how long.
    pub spun: SampledSpin,
}

/// Who wakes threads that sleep at a place.
#[derive(Debug, Clone, PartialEq)]
pub struct RowWaker {
    /// The thread's name.
    pub comm: String,
    /// Where it does so, innermost first.
    pub stack: Arc<[Arc<str>]>,
    /// The part of the sampled sleeps there that it ended, by their time, in millionths.
    pub ppm: u64,
}

/// A thread that waits for a lock when the window ends, or until it ended itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWaitRow {
    /// Who.
    pub task: RowTask,
    /// Its thread.
    pub tid: u32,
    /// Whether it waits for a lock of the kernel.
    pub is_kernel: bool,
    /// The lock's name.
    pub lock: String,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// Tells locks of one name apart; `None` if it is not known.
    pub instance: Option<u64>,
    /// Where, innermost first, without the lock functions.
    pub stack: Arc<[Arc<str>]>,
    /// For how long already.
    pub age_ns: u64,
    /// Whether it began before the recording: then the age is the least that it can be.
    pub is_older: bool,
    /// Whether it ends by itself after some time.
    pub is_timed: bool,
    /// Who has the lock, if that is known.
    pub holder: Option<RowHolder>,
    /// The thread that has it and has ended.
    pub ended_holder: Option<u32>,
    /// Waits with the same number wait for each other in a circle.
    pub deadlock: Option<u32>,
}

/// Adds waits that were found at another time, or elsewhere: they are in other circles.
pub(crate) fn add_waits(all: &mut Vec<OpenWaitRow>, more: impl IntoIterator<Item = OpenWaitRow>) {
    let circles = all.iter().filter_map(|wait| wait.deadlock).max().map_or(0, |last| last.saturating_add(1));
    let renumbered = |wait: OpenWaitRow| OpenWaitRow {
        deadlock: wait.deadlock.map(|circle| circle.saturating_add(circles)),
        ..wait
    };
    all.extend(more.into_iter().map(renumbered));
}

/// Who has a lock that others wait for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowHolder {
    /// Who.
    pub task: RowTask,
    /// Its thread.
    pub tid: u32,
    /// What it does.
    pub state: Option<ThreadState>,
    /// Where it sleeps, innermost first; empty if it does not, or where unknown.
    pub stack: Arc<[Arc<str>]>,
}

named_enum! {
    /// What a recording is of.
    RecordingKind {
        /// Waits for locks, and holds.
        Locks = 1, "locks";
        /// What keeps CPUs from their tasks.
        Latency = 2, "latency";
        /// Waits for `mmap_lock`, and its holds.
        Mmap = 3, "mmap";
    }
}

/// What was recorded, where and how: written once at the head of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct About {
    /// Version of lockmeter that recorded.
    pub lockmeter_version: String,
    /// Kernel release (`uname -r`).
    pub kernel_release: String,
    /// Machine architecture (`uname -m`).
    pub machine: String,
    /// CPUs online.
    pub cpus: u32,
    /// What was recorded; `None` if a newer lockmeter recorded what this one does not know.
    pub kind: Option<RecordingKind>,
    /// What was metered, in words: `whole machine`, `process 42 and its children`, …
    pub scope: String,
    /// The recorder's command line.
    pub command_line: Vec<String>,
    /// When the recording began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// Share of CPU time allowed for taking stacks, in millionths; `None` if every stack was taken.
    pub stack_budget_ppm: Option<u32>,
    /// The recorder's process id.
    pub recorder_tgid: u32,
    /// The rules by which waits of programs were told apart, those that count first first; none of recordings before there were rules.
    pub rules: Vec<RuleSet>,
    /// Why a flight recorder kept it, in words; empty if somebody asked for a recording.
    pub reason: String,
}

/// The lock that cost most.
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// Its name.
    pub lock: String,
    /// Its kind.
    pub kind: Kind,
    /// The mode that waited most.
    pub mode: Mode,
    /// Its waits in that mode.
    pub value: Value,
    /// The function most often found releasing it, outside the lock functions themselves.
    pub blocker_function: Option<String>,
    /// The share of the waits that it is blamed for, in millionths.
    pub blocker_ppm: u64,
    /// The task most often found releasing it.
    pub blocker_task: Option<String>,
    /// The lock that the blocker waited for most itself, if that was most of the time that it is blamed for, and who had that.
    pub root: Option<(String, Option<String>)>,
    /// What the blocker did with the lock, or, if it waited for another, the root did, for at least half of that time.
    pub holder_state: Option<HolderState>,
    /// The share of the waits during which nobody had the lock and the waiter was not yet running, in millionths.
    pub handover_ppm: u64,
    /// How many stacks of waits for it were taken.
    pub stacks: u64,
    /// The function most often found waiting for it.
    pub caller_function: Option<String>,
}

/// Waits that timed out.
#[derive(Debug, Clone, PartialEq)]
pub struct TimedOut {
    /// All of them.
    pub all: Value,
    /// The lock that most of their time was for.
    pub lock: String,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// Those for it.
    pub value: Value,
    /// The function that had it for most of that time, as far as is known.
    pub blocker_function: Option<String>,
    /// The thread that had.
    pub blocker_task: Option<String>,
}

/// Stands for the file system of locks that were not sampled, or whose object could not be read.
pub const UNKNOWN_FILESYSTEM: &str = "unknown";

/// One group. Fields that belong to a dimension are present when the rows are grouped by it.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// Wait, hold or run.
    pub happened: Happened,
    /// The lock's name.
    pub lock: Option<String>,
    /// How the name is known.
    pub naming: Option<Naming>,
    /// More about the naming (candidates, slab cache).
    pub naming_detail: Option<Box<str>>,
    /// The kind of lock; `None` when the row holds several.
    pub kind: Option<Kind>,
    /// The mode; `None` when the row holds several.
    pub mode: Option<Mode>,
    /// Address of the single lock.
    pub instance: Option<u64>,
    /// Type of the object the lock lies in.
    pub object: Option<String>,
    /// The file system of the object the lock lies in, [`UNKNOWN_FILESYSTEM`] if that is not known; `None` if the lock belongs to no file
    /// system.
    pub filesystem: Option<String>,
    /// The task that waited, `comm` and `tgid`.
    pub task: Option<RowTask>,
    /// Path of its control group, or `id:N` where the path is not known.
    pub cgroup: Option<String>,
    /// What waited; `None` if that is not known.
    pub context: Option<Context>,
    /// The CPU on which the wait or the hold ended; `None` if the recording does not keep CPUs apart.
    pub cpu: Option<u32>,
    /// Function names of the stack that waited, innermost first, without the lock functions.
    pub caller: Option<Arc<[Arc<str>]>>,
    /// Function names of the stack that made it wait, innermost first, or its task, and how it is known.
    pub blocker: Option<Box<RowBlocker>>,
    /// The end of the chain of blockers.
    pub root: Option<Box<RowRoot>>,
    /// The numbers. Estimates (scaled to the lock's exact total) when `estimated`.
    pub value: Value,
    /// Of a row of waits that is not by blocker or root: for how long the lock was free, and the waiter not yet running. An estimate; `None`
    /// where none of the waits was sampled.
    pub run_delay_ns: Option<u64>,
    /// Of a row of holds, by callers of programs' locks only: how many of these acquisitions had to wait.
    pub contended: Option<u64>,
    /// Of a row of contended holds: what the holders did.
    pub holder: Option<Box<HolderTime>>,
    /// Of a row of holds: what its times rest on, where that is known, and, by anything but stacks, how often the lock moved.
    pub basis: Option<Box<HoldBasis>>,
    /// For how long of the window nothing of this could be counted, because metering was switched off.
    pub off_ns: u64,
    /// Median duration.
    pub p50_ns: u64,
    /// 99th percentile of the durations.
    pub p99_ns: u64,
    /// How many stacks the row rests on (0 for exact rows).
    pub stacks: u64,
    /// Whether the numbers are estimates from sampled stacks.
    pub estimated: bool,
    /// Whether lockmeter itself waited.
    pub own: bool,
    /// Of a row of waits: the part of the spinning that is an estimate, if any was met.
    pub sampled_spin: Option<Box<SampledSpin>>,
    /// Of a row of waits: the part that goroutines were parked, if any were.
    pub parked: Option<Box<ParkedTime>>,
    /// The histogram: `(bucket, count, total_ns)`, shortest bucket first.
    pub histogram: Vec<(crate::sample::Bucket, u64, u64)>,
}

/// A single contended hold: the lock that was held, then the one that its holder waited for meanwhile, and so on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlowHoldRow {
    /// When the first lock was released, nanoseconds since the Unix epoch.
    pub end_unix_ns: u64,
    /// At least one.
    pub chain: Vec<ChainLink>,
    /// From when the first of the chain's locks was held while somebody waited to the last release: holds that overlap count once.
    pub span_ns: u64,
}

/// A lock in a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainLink {
    /// Its name.
    pub lock: String,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was held; of a lock whose hold was not kept, in which it was waited for.
    pub mode: Mode,
    /// For how long it was held while somebody waited, or waited for.
    pub total_ns: u64,
    /// Who released it.
    pub task: Option<RowTask>,
    /// Where, innermost first, without the lock functions; empty where unknown.
    pub stack: Arc<[Arc<str>]>,
    /// What the holder did; `None` if its hold was not kept.
    pub holder: Option<HolderTime>,
}

/// The task of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowTask {
    /// Process id; `None` for waits counted without their task.
    pub tgid: Option<u32>,
    /// Name.
    pub comm: String,
}

/// The root of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowRoot {
    /// The lock that it had and the blocker waited for; `None` if the blocker waited for none: then it is the root itself.
    pub lock: Option<String>,
    /// How it is known.
    pub source: BlockerSource,
    /// Function names, innermost first, without the lock functions; empty where unknown.
    pub stack: Arc<[Arc<str>]>,
    /// What it did for at least half of that time, where that is known.
    pub state: Option<HolderState>,
    /// The task. Outer `None`: not asked for. Inner `None`: not known.
    pub by_task: Option<Option<RowTask>>,
}

/// The blocker of a row.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowBlocker {
    /// How it is known, or why it is not.
    pub source: BlockerSource,
    /// Function names, innermost first, without the lock functions; empty where unknown.
    pub stack: Arc<[Arc<str>]>,
    /// The name of the task that released the lock, where all of the row's did so under one name.
    pub task: Option<String>,
    /// The task that rows are told apart by. Outer `None`: not asked for. Inner `None`: not known.
    pub by_task: Option<Option<RowTask>>,
    /// What it did with the lock for at least half of that time, where that is known.
    pub state: Option<HolderState>,
}
