//! Compares two reports: what got better, what got worse.
//!
//! Two recordings are rarely of the same length, so everything is normalised per second of metered time, in whole numbers:
//! nanoseconds waited per second, and waits per 1,000 seconds.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::interval::BlockerSource;
use crate::quantile::quantile_ns;
use crate::report::{Dimension, Report, Row};
use crate::sample::{Bucket, Happened, Kind, Mode, Value};

/// Two reports compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// What the rows are grouped by.
    pub by: Vec<Dimension>,
    /// The earlier report as a whole.
    pub before: Side,
    /// The later report as a whole.
    pub after: Side,
    /// The groups, largest change of waited time per second first.
    pub rows: Vec<DiffRow>,
    /// Why the two may not be comparable.
    pub warnings: Vec<DiffWarning>,
}

/// One of the two reports as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Side {
    /// Kernel release.
    pub kernel_release: String,
    /// Machine architecture.
    pub machine: String,
    /// CPUs online.
    pub cpus: u32,
    /// What was metered, in words.
    pub scope: String,
    /// Metered time.
    pub duration_ns: u64,
    /// All waits but lockmeter's own.
    pub waits: Rate,
}

/// How often and for how long, per second of metered time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    /// Contended acquisitions per 1,000 seconds.
    pub count_per_1000_s: u64,
    /// Waited time per second, nanoseconds.
    pub total_ns_per_s: u64,
    /// The part of it that burned a CPU.
    pub spin_ns_per_s: u64,
    /// Mean duration (not a rate).
    pub mean_ns: u64,
    /// Longest duration (not a rate).
    pub max_ns: u64,
    /// 99th percentile of the durations (not a rate); 0 for a whole report, which has no histogram.
    pub p99_ns: u64,
}

/// One group in both reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffRow {
    /// What the two have in common.
    pub key: DiffKey,
    /// Whether the group is in both.
    pub change: Change,
    /// Before; zero if it appeared.
    pub before: Rate,
    /// After; zero if it vanished.
    pub after: Rate,
    /// Change of waited time per second: positive is worse.
    pub delta_ns_per_s: i64,
}

/// By what groups of two recordings are matched: their labels, without process ids, which differ between any two runs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiffKey {
    /// Wait, hold or run.
    pub happened: Happened,
    /// Whether lockmeter itself waited.
    pub own: bool,
    /// The lock's name.
    pub lock: Option<String>,
    /// Its kind, if grouped by lock or kind.
    pub kind: Option<Kind>,
    /// The mode, if grouped by lock.
    pub mode: Option<Mode>,
    /// Type of the object the lock lies in.
    pub object: Option<String>,
    /// Name of the task.
    pub task: Option<String>,
    /// The cgroup's path.
    pub cgroup: Option<String>,
    /// Functions that waited, innermost first.
    pub caller: Option<Arc<[Arc<str>]>>,
    /// How the blocker is known, and its functions, innermost first.
    pub blocker: Option<(BlockerSource, Arc<[Arc<str>]>)>,
}

/// What became of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Change {
    /// Only in the later report.
    Appeared,
    /// Only in the earlier report.
    Vanished,
    /// In both.
    Changed,
}

impl Change {
    /// The stable name used in JSON and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Appeared => "appeared",
            Self::Vanished => "vanished",
            Self::Changed => "changed",
        }
    }
}

/// Why two reports may not be comparable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiffWarning {
    /// Rates are of the whole machine, so more CPUs wait more.
    CpusDiffer {
        /// Before.
        before: u32,
        /// After.
        after: u32,
    },
    /// Functions may have other names.
    KernelDiffers {
        /// Before.
        before: String,
        /// After.
        after: String,
    },
    /// Another architecture.
    MachineDiffers {
        /// Before.
        before: String,
        /// After.
        after: String,
    },
    /// Not the same was metered.
    ScopeDiffers {
        /// Before.
        before: String,
        /// After.
        after: String,
    },
}

impl fmt::Display for DiffWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CpusDiffer { before, after } => {
                write!(f, "{before} CPUs before, {after} after: rates are of the whole machine, not per CPU")
            }
            Self::KernelDiffers { before, after } => {
                write!(f, "kernel {before} before, {after} after: functions and locks may have other names")
            }
            Self::MachineDiffers { before, after } => write!(f, "a {before} machine before, {after} after"),
            Self::ScopeDiffers { before, after } => write!(f, "metered before: {before}; after: {after}"),
        }
    }
}

/// Why two reports cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiffError {
    /// They are grouped by different things.
    GroupingDiffers {
        /// Before.
        before: Vec<Dimension>,
        /// After.
        after: Vec<Dimension>,
    },
    /// Addresses mean nothing in another recording.
    ByInstance,
    /// A report of no time has no rates.
    NothingMetered {
        /// Whether it is the earlier one.
        is_before: bool,
    },
}

impl fmt::Display for DiffError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |by: &[Dimension]| by.iter().map(|dimension| dimension.name()).collect::<Vec<_>>().join(",");
        match self {
            Self::GroupingDiffers { before, after } => {
                let (before, after) = (list(before), list(after));
                write!(f, "the reports are grouped by {before} and by {after}; group both by the same")
            }
            Self::ByInstance => {
                f.write_str("single locks (addresses) are not the same in two recordings; group by lock instead")
            }
            Self::NothingMetered { is_before } => {
                let which = if *is_before { "earlier" } else { "later" };
                write!(f, "the {which} recording holds no metered time; record again or widen the window")
            }
        }
    }
}

impl std::error::Error for DiffError {}

/// Compares two reports, which must be grouped by the same dimensions in the same order.
pub fn diff(before: &Report, after: &Report) -> Result<Diff, DiffError> {
    if before.by != after.by {
        return Err(DiffError::GroupingDiffers { before: before.by.clone(), after: after.by.clone() });
    }
    if before.by.contains(&Dimension::Instance) {
        return Err(DiffError::ByInstance);
    }
    for (report, is_before) in [(before, true), (after, false)] {
        if report.duration_ns == 0 {
            return Err(DiffError::NothingMetered { is_before });
        }
    }
    let mut pairs = BTreeMap::<DiffKey, (Option<Sum>, Option<Sum>)>::new();
    for row in &before.rows {
        pairs.entry(key(row, &before.by)).or_default().0.get_or_insert_default().add(row);
    }
    for row in &after.rows {
        pairs.entry(key(row, &after.by)).or_default().1.get_or_insert_default().add(row);
    }
    let mut rows: Vec<DiffRow> = pairs
        .into_iter()
        .map(|(key, (old, new))| diff_row(key, old, before.duration_ns, new, after.duration_ns))
        .collect();
    // A stable sort: of equal changes the first by name stays first.
    rows.sort_by_key(|row| std::cmp::Reverse(row.delta_ns_per_s.unsigned_abs()));
    Ok(Diff {
        by: before.by.clone(),
        before: side(before),
        after: side(after),
        rows,
        warnings: warnings(before, after),
    })
}

/// Rows that differ only in what a [`DiffKey`] leaves out.
#[derive(Debug, Clone, Default)]
struct Sum {
    value: Value,
    histogram: BTreeMap<Bucket, (u64, u64)>,
    off_ns: Option<u64>,
}

impl Sum {
    fn add(&mut self, row: &Row) {
        self.value.merge(&row.value);
        self.off_ns = Some(self.off_ns.map_or(row.off_ns, |other| other.min(row.off_ns)));
        for (bucket, more, more_ns) in &row.histogram {
            let (count, total_ns) = self.histogram.entry(*bucket).or_default();
            *count = count.saturating_add(*more);
            *total_ns = total_ns.saturating_add(*more_ns);
        }
    }

    fn rate(&self, duration_ns: u64) -> Rate {
        let histogram: Vec<_> = self.histogram.iter().map(|(b, (count, total_ns))| (*b, *count, *total_ns)).collect();
        let metered_ns = duration_ns.saturating_sub(self.off_ns.unwrap_or(0));
        Rate { p99_ns: quantile_ns(&histogram, self.value.max_ns, 990_000), ..rate(&self.value, metered_ns) }
    }
}

fn key(row: &Row, by: &[Dimension]) -> DiffKey {
    let has = |dimension| by.contains(&dimension);
    DiffKey {
        happened: row.happened,
        own: row.own,
        lock: row.lock.clone(),
        // A row by caller may happen to hold one kind only: that is not what makes it the same row.
        kind: row.kind.filter(|_| has(Dimension::Lock) || has(Dimension::Kind)),
        mode: row.mode.filter(|_| has(Dimension::Lock)),
        object: row.object.clone(),
        task: row.task.as_ref().map(|task| task.comm.clone()),
        cgroup: row.cgroup.clone(),
        caller: row.caller.clone(),
        blocker: row.blocker.as_ref().map(|blocker| (blocker.source, blocker.stack.clone())),
    }
}

fn diff_row(key: DiffKey, old: Option<Sum>, old_ns: u64, new: Option<Sum>, new_ns: u64) -> DiffRow {
    let change = match (&old, &new) {
        (Some(_), Some(_)) => Change::Changed,
        (Some(_), None) => Change::Vanished,
        (None, _) => Change::Appeared,
    };
    let before = old.map(|sum| sum.rate(old_ns)).unwrap_or_default();
    let after = new.map(|sum| sum.rate(new_ns)).unwrap_or_default();
    let delta = i128::from(after.total_ns_per_s) - i128::from(before.total_ns_per_s);
    let delta_ns_per_s = delta.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
    DiffRow { key, change, before, after, delta_ns_per_s }
}

fn side(report: &Report) -> Side {
    Side {
        kernel_release: report.about.kernel_release.clone(),
        machine: report.about.machine.clone(),
        cpus: report.about.cpus,
        scope: report.about.scope.clone(),
        duration_ns: report.duration_ns,
        waits: waits_rate(report),
    }
}

/// Of all waits, those for the kernel's locks and those for programs' over the time that each were metered.
fn waits_rate(report: &Report) -> Rate {
    let of = |part, times| report.waited_rate(part, times).unwrap_or(0);
    Rate {
        count_per_1000_s: of(|waits| waits.count, NS_PER_S * 1_000),
        total_ns_per_s: of(|waits| waits.total_ns, NS_PER_S),
        spin_ns_per_s: of(|waits| waits.spin_ns, NS_PER_S),
        mean_ns: report.waits.mean_ns(),
        max_ns: report.waits.max_ns,
        p99_ns: 0,
    }
}

const NS_PER_S: u64 = 1_000_000_000;

fn rate(value: &Value, duration_ns: u64) -> Rate {
    Rate {
        count_per_1000_s: per(value.count, NS_PER_S * 1_000, duration_ns),
        total_ns_per_s: per(value.total_ns, NS_PER_S, duration_ns),
        spin_ns_per_s: per(value.spin_ns, NS_PER_S, duration_ns),
        mean_ns: value.mean_ns(),
        max_ns: value.max_ns,
        p99_ns: 0,
    }
}

/// `amount` in `duration_ns`, as so much in `unit_ns`; rounded to nearest, saturating.
fn per(amount: u64, unit_ns: u64, duration_ns: u64) -> u64 {
    let duration = u128::from(duration_ns.max(1));
    let rounded = (u128::from(amount) * u128::from(unit_ns) + duration / 2) / duration;
    u64::try_from(rounded).unwrap_or(u64::MAX)
}

fn warnings(before: &Report, after: &Report) -> Vec<DiffWarning> {
    let (old, new) = (&before.about, &after.about);
    let mut warnings = Vec::new();
    if old.cpus != new.cpus {
        warnings.push(DiffWarning::CpusDiffer { before: old.cpus, after: new.cpus });
    }
    let texts = |before: &String, after: &String| (before != after).then(|| (before.clone(), after.clone()));
    if let Some((before, after)) = texts(&old.kernel_release, &new.kernel_release) {
        warnings.push(DiffWarning::KernelDiffers { before, after });
    }
    if let Some((before, after)) = texts(&old.machine, &new.machine) {
        warnings.push(DiffWarning::MachineDiffers { before, after });
    }
    if let Some((before, after)) = texts(&old.scope, &new.scope) {
        warnings.push(DiffWarning::ScopeDiffers { before, after });
    }
    warnings
}
