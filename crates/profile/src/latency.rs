//! What ran and kept CPUs from their tasks: interrupts, softirqs, timers, work items, grouped from a recording.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::interval::{Interval, LockId, LongRun, Overhead, StackId, Tables, TaskId};
use crate::limits::{Limits, TooLarge};
use crate::lock::{Lock, Naming};
use crate::lock_functions::{plain_name, strip_lock_functions};
use crate::loss::{Loss, Losses};
use crate::quantile::quantile_ns;
use crate::report::{About, RowTask};
use crate::sample::{Bucket, Happened, Key, Kind, Mode, Value};
use crate::view::{NamePattern, Query};

/// What to show of a recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatencyQuery {
    /// From when to when, nanoseconds since the recording began.
    pub window: Option<(u64, u64)>,
    /// Only these kinds; empty: all.
    pub kinds: Vec<Kind>,
    /// Only what has such a name.
    pub name: Option<NamePattern>,
}

impl LatencyQuery {
    fn wants(&self, kind: Kind, name: &str) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&kind))
            && self.name.as_ref().is_none_or(|pattern| pattern.matches(name))
    }
}

/// A recording of what ran, grouped by what it was.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyReport {
    /// What was recorded, where and how.
    pub about: About,
    /// When the window of this report began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// How long the window is (metered time; gaps are not counted).
    pub duration_ns: u64,
    /// How many intervals it rests on.
    pub intervals: u64,
    /// What ran, longest single run first.
    pub rows: Vec<LatencyRow>,
    /// Single runs that were longer than asked for, in the order of their begins.
    pub long_runs: Vec<LongRunRow>,
    /// What was lost.
    pub losses: Losses,
    /// What metering cost.
    pub overhead: Overhead,
}

/// A handler, a softirq or a function, and how it ran.
#[derive(Debug, Clone, PartialEq)]
pub struct LatencyRow {
    /// What it is.
    pub kind: Kind,
    /// Number and name of an interrupt, name of a softirq, function of a timer or work item.
    pub name: String,
    /// Of an interrupt its handler or what it is for; of a function its module.
    pub detail: String,
    /// How the name is known.
    pub naming: Naming,
    /// Its runs. `spin_ns` is what it ran itself, without what it called that has a row of its own. Where fewer were timed than
    /// counted, the times are scaled to the count, and the longest is the longest that was timed.
    pub runs: Value,
    /// How many of the runs were timed.
    pub timed: u64,
    /// Median run.
    pub p50_ns: u64,
    /// 99th percentile of the runs.
    pub p99_ns: u64,
    /// `(bucket, count, total_ns)`, shortest bucket first.
    pub histogram: Vec<(Bucket, u64, u64)>,
    /// From being due to the run; fewer than the runs where it is not always known.
    pub delays: Value,
    /// 99th percentile of the delays.
    pub delay_p99_ns: u64,
    /// As [`histogram`](Self::histogram).
    pub delay_histogram: Vec<(Bucket, u64, u64)>,
    /// Of work items: what they were off the CPU between begin and end.
    pub asleep: Value,
}

/// A single run.
#[derive(Debug, Clone, PartialEq)]
pub struct LongRunRow {
    /// When it began, nanoseconds since the Unix epoch.
    pub begin_unix_ns: u64,
    /// The CPU it ended on.
    pub cpu: u32,
    /// As in [`LatencyRow`].
    pub kind: Kind,
    /// As in [`LatencyRow`].
    pub name: String,
    /// As in [`LatencyRow`].
    pub detail: String,
    /// How long it ran.
    pub run_ns: u64,
    /// Of a work item: how long it was off the CPU.
    pub asleep_ns: u64,
    /// From being due to the run, where that is known.
    pub delay_ns: Option<u64>,
    /// The worker, or the task that was interrupted.
    pub task: Option<RowTask>,
    /// The locks it waited for, longest first.
    pub waits: Vec<RunWaitRow>,
}

/// The waits for one lock inside a [`LongRunRow`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunWaitRow {
    /// The lock's name.
    pub lock: String,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// How often.
    pub count: u64,
    /// For how long, all together.
    pub total_ns: u64,
    /// Function names of where the longest of them was, innermost first, without the lock's own; empty where not known.
    pub caller: Vec<Arc<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    kind: Kind,
    name: String,
    detail: String,
}

#[derive(Debug, Clone)]
struct Measured {
    naming: Naming,
    runs: BTreeMap<Bucket, Value>,
    /// How many of `runs` were timed, and how many more there were in intervals in which none was.
    timed: u64,
    unseen: u64,
    delays: BTreeMap<Bucket, Value>,
    asleep: Value,
}

/// A report in the making: take intervals in, and look at it at any time.
#[derive(Debug)]
pub struct LatencyBuilder {
    about: About,
    query: LatencyQuery,
    groups: HashMap<Group, Measured>,
    long_runs: Vec<LongRunRow>,
    /// When the first interval that was seen began.
    begun_unix_ns: Option<u64>,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    intervals: u64,
    losses: Losses,
    overhead: Overhead,
    /// What groups and long runs take, about.
    memory_bytes: usize,
}

/// What a group takes, its names apart, with its histograms and its row.
const GROUP_BYTES: usize = 2_500;

impl LatencyBuilder {
    /// An empty report.
    pub fn new(about: &About, query: &LatencyQuery) -> Self {
        Self {
            about: about.clone(),
            query: query.clone(),
            groups: HashMap::new(),
            long_runs: Vec::new(),
            begun_unix_ns: None,
            start_unix_ns: None,
            duration_ns: 0,
            intervals: 0,
            losses: Losses::default(),
            overhead: Overhead::default(),
            memory_bytes: 0,
        }
    }

    /// Whether anything ran in the intervals taken in.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes an interval in, if it lies in the query's window.
    pub fn add(&mut self, interval: &Interval) {
        // Nothing is too large for no limits.
        let _ = self.add_within(interval, &Limits::NONE);
    }

    /// Takes in an interval of a file that may be anybody's. After an error the report is of no use.
    pub fn add_within(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        // Not since the file was made: until everything was attached, nothing was metered.
        let begun_unix_ns = *self.begun_unix_ns.get_or_insert(interval.start_unix_ns);
        let offset_ns = interval.start_unix_ns.saturating_sub(begun_unix_ns);
        let window = Query { window: self.query.window, ..Query::default() };
        if !window.covers(offset_ns, interval.duration_ns) {
            return Ok(());
        }
        let first_ns = self.start_unix_ns.map_or(interval.start_unix_ns, |ns| ns.min(interval.start_unix_ns));
        self.start_unix_ns = Some(first_ns);
        self.duration_ns = self.duration_ns.saturating_add(interval.duration_ns);
        self.intervals += 1;
        self.losses.merge(&interval.losses);
        self.overhead.merge(&interval.overhead);
        self.add_totals(interval, limits)?;
        for run in &interval.long_runs {
            self.add_long_run(interval, run);
            limits.check(self.memory_bytes)?;
        }
        Ok(())
    }

    /// Adds losses that no interval knows of: those of the [reader](crate::recording::RecordingReader::losses).
    pub fn add_losses(&mut self, losses: &Losses) {
        self.losses.merge(losses);
    }

    fn add_totals(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        let mut counts = RunCounts::of(interval);
        for total in &interval.totals {
            let asleep = total.key.happened == Happened::Idle && total.key.kind == Kind::Work;
            if !asleep && !matches!(total.key.happened, Happened::Run | Happened::Delay) {
                continue;
            }
            let Some(lock) = interval.tables.lock(total.key.lock) else {
                self.losses.add(Loss::DanglingReference, 1);
                continue;
            };
            if !self.query.wants(total.key.kind, &lock.name) {
                continue;
            }
            let measured = self.measured(total.key.kind, lock);
            match total.key.happened {
                Happened::Run => {
                    measured.timed = measured.timed.saturating_add(total.value.count);
                    let scaled = counts.scaled(&total.key, &total.value);
                    measured.runs.entry(total.key.bucket).or_default().merge(&scaled);
                }
                Happened::Delay => measured.delays.entry(total.key.bucket).or_default().merge(&total.value),
                _ => measured.asleep.merge(&total.value),
            }
            limits.check(self.memory_bytes)?;
        }
        self.add_unseen(interval, &counts);
        limits.check(self.memory_bytes)
    }

    fn measured(&mut self, kind: Kind, lock: &Lock) -> &mut Measured {
        let group = Group { kind, name: lock.name.clone(), detail: lock.detail.clone() };
        let memory_bytes = &mut self.memory_bytes;
        self.groups.entry(group).or_insert_with(|| {
            // Once for the group, once for its row.
            *memory_bytes += GROUP_BYTES + 2 * (lock.name.len() + lock.detail.len());
            Measured::named(lock.naming)
        })
    }

    /// Runs of what was not timed once in the interval: how long they took, the other intervals may tell.
    fn add_unseen(&mut self, interval: &Interval, counts: &RunCounts) {
        for ((lock, kind), unseen) in counts.unseen() {
            let Some(lock) = interval.tables.lock(lock) else {
                self.losses.add(Loss::DanglingReference, 1);
                continue;
            };
            if self.query.wants(kind, &lock.name) {
                let measured = self.measured(kind, lock);
                measured.unseen = measured.unseen.saturating_add(unseen);
            }
        }
    }

    fn add_long_run(&mut self, interval: &Interval, run: &LongRun) {
        let tables = &interval.tables;
        let Some(lock) = tables.lock(run.lock) else {
            self.losses.add(Loss::DanglingReference, 1);
            return;
        };
        if !self.query.wants(run.kind, &lock.name) {
            return;
        }
        let task = |id: TaskId| tables.task(id).map(|task| RowTask { tgid: Some(task.tgid), comm: task.comm.clone() });
        let waits = run.waits.iter().filter_map(|wait| {
            Some(RunWaitRow {
                lock: tables.lock(wait.lock)?.name.clone(),
                kind: wait.kind,
                mode: wait.mode,
                count: wait.count,
                total_ns: wait.total_ns,
                caller: wait.site.map(|site| caller(tables, site)).unwrap_or_default(),
            })
        });
        let row = LongRunRow {
            begin_unix_ns: run.begin_unix_ns,
            cpu: run.cpu,
            kind: run.kind,
            name: lock.name.clone(),
            detail: lock.detail.clone(),
            run_ns: run.run_ns,
            asleep_ns: run.asleep_ns,
            delay_ns: run.delay_ns,
            task: run.task.and_then(task),
            waits: waits.collect(),
        };
        // A report has them once more.
        self.memory_bytes += 2 * row.memory_bytes();
        self.long_runs.push(row);
    }

    /// The report, with the intervals taken in so far.
    pub fn report(&self) -> LatencyReport {
        let mut rows: Vec<LatencyRow> = self.groups.iter().map(|(group, measured)| measured.row(group)).collect();
        rows.sort_by(|a, b| {
            let longest_first = b.runs.max_ns.cmp(&a.runs.max_ns);
            longest_first.then_with(|| (a.kind, &a.name, &a.detail).cmp(&(b.kind, &b.name, &b.detail)))
        });
        let mut long_runs = self.long_runs.clone();
        long_runs.sort_by_key(|run| run.begin_unix_ns);
        let offset_ns = self.query.window.map_or(0, |(from_ns, _)| from_ns);
        let begun_unix_ns = self.begun_unix_ns.unwrap_or(self.about.start_unix_ns);
        LatencyReport {
            about: self.about.clone(),
            start_unix_ns: self.start_unix_ns.unwrap_or_else(|| begun_unix_ns.saturating_add(offset_ns)),
            duration_ns: self.duration_ns,
            intervals: self.intervals,
            rows,
            long_runs,
            losses: self.losses.clone(),
            overhead: self.overhead,
        }
    }
}

impl LongRunRow {
    fn memory_bytes(&self) -> usize {
        // A function's name stands in a block of its own, behind its counters and its pointer.
        let function = |name: &Arc<str>| name.len() + 48;
        let wait = |wait: &RunWaitRow| {
            size_of::<RunWaitRow>() + wait.lock.len() + wait.caller.iter().map(function).sum::<usize>()
        };
        let task = self.task.as_ref().map_or(0, |task| task.comm.len());
        size_of::<Self>() + self.name.len() + self.detail.len() + task + self.waits.iter().map(wait).sum::<usize>()
    }
}

/// How many runs of what there were in an interval.
#[derive(Debug, Default)]
struct RunCounts(HashMap<(LockId, Kind), Scale>);

impl RunCounts {
    fn of(interval: &Interval) -> Self {
        let mut counts: HashMap<(LockId, Kind), Scale> = HashMap::new();
        for basis in interval.bases.iter().filter(|basis| basis.key.happened == Happened::Run) {
            counts.entry((basis.key.lock, basis.key.kind)).or_default().add_untimed(basis.value.untimed);
        }
        for total in interval.totals.iter().filter(|total| total.key.happened == Happened::Run) {
            if let Some(scale) = counts.get_mut(&(total.key.lock, total.key.kind)) {
                scale.add_timed(total.value.count);
            }
        }
        Self(counts)
    }

    fn scaled(&mut self, key: &Key, value: &Value) -> Value {
        self.0.get_mut(&(key.lock, key.kind)).map_or(*value, |scale| scale.scaled(value))
    }

    fn unseen(&self) -> impl Iterator<Item = ((LockId, Kind), u64)> {
        self.0.iter().filter(|(_, scale)| scale.timed == 0 && scale.all > 0).map(|(what, scale)| (*what, scale.all))
    }
}

/// From what was timed to all that there was.
#[derive(Debug, Default)]
struct Scale {
    timed: u64,
    all: u64,
    /// What was scaled so far, so that no run is lost in rounding.
    timed_so_far: u64,
    all_so_far: u64,
}

impl Scale {
    const fn add_timed(&mut self, timed: u64) {
        self.timed = self.timed.saturating_add(timed);
        self.all = self.all.saturating_add(timed);
    }

    const fn add_untimed(&mut self, untimed: u64) {
        self.all = self.all.saturating_add(untimed);
    }

    fn scaled(&mut self, value: &Value) -> Value {
        self.timed_so_far = self.timed_so_far.saturating_add(value.count);
        let all_so_far = self.of_all(self.timed_so_far);
        let count = all_so_far.saturating_sub(self.all_so_far);
        self.all_so_far = all_so_far;
        Value {
            count,
            total_ns: self.of_all(value.total_ns),
            spin_ns: self.of_all(value.spin_ns),
            max_ns: value.max_ns,
        }
    }

    fn of_all(&self, timed: u64) -> u64 {
        let scaled = (u128::from(timed) * u128::from(self.all)).checked_div(self.timed.into()).unwrap_or_default();
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }
}

impl Measured {
    const fn named(naming: Naming) -> Self {
        Self {
            naming,
            runs: BTreeMap::new(),
            timed: 0,
            unseen: 0,
            delays: BTreeMap::new(),
            asleep: Value { count: 0, total_ns: 0, max_ns: 0, spin_ns: 0 },
        }
    }

    /// The runs, with those of intervals in which none was timed taken to be as the others; counted only, where all are.
    fn all_runs(&self) -> (Value, Vec<(Bucket, u64, u64)>) {
        let (sum, histogram) = summed(&self.runs);
        if self.unseen == 0 {
            return (sum, histogram);
        }
        if self.runs.is_empty() {
            return (Value { count: self.unseen, ..Value::default() }, Vec::new());
        }
        let mut scale = Scale::default();
        scale.add_timed(sum.count);
        scale.add_untimed(self.unseen);
        summed(&self.runs.iter().map(|(bucket, value)| (*bucket, scale.scaled(value))).collect())
    }

    fn row(&self, group: &Group) -> LatencyRow {
        let (runs, histogram) = self.all_runs();
        let (delays, delay_histogram) = summed(&self.delays);
        LatencyRow {
            kind: group.kind,
            name: group.name.clone(),
            detail: group.detail.clone(),
            naming: self.naming,
            runs,
            timed: self.timed,
            p50_ns: quantile_ns(&histogram, runs.max_ns, 500_000),
            p99_ns: quantile_ns(&histogram, runs.max_ns, 990_000),
            histogram,
            delays,
            delay_p99_ns: quantile_ns(&delay_histogram, delays.max_ns, 990_000),
            delay_histogram,
            asleep: self.asleep,
        }
    }
}

/// The functions of a stack beyond those of the lock.
fn caller(tables: &Tables, site: StackId) -> Vec<Arc<str>> {
    let frames = tables.stack(site).into_iter().flatten().filter_map(|frame| tables.frame(*frame));
    let names: Vec<&str> = frames.map(|frame| frame.function.as_deref().map_or("[unknown]", plain_name)).collect();
    strip_lock_functions(&names).iter().map(|name| Arc::from(*name)).collect()
}

fn summed(buckets: &BTreeMap<Bucket, Value>) -> (Value, Vec<(Bucket, u64, u64)>) {
    let mut sum = Value::default();
    for value in buckets.values() {
        sum.merge(value);
    }
    (sum, buckets.iter().map(|(bucket, value)| (*bucket, value.count, value.total_ns)).collect())
}

impl LatencyRow {
    /// Whether nobody else can have the CPU while it runs. A work item is a task like others, except in a softirq.
    pub fn keeps_the_cpu(&self) -> bool {
        self.kind != Kind::Work
    }
}

impl LatencyReport {
    /// Time on CPUs of everything that has a row, each moment counted once.
    pub fn own_ns(&self) -> u64 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.runs.spin_ns))
    }
}
