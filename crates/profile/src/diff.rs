//! Compares two reports: what got better, what got worse.
//!
//! Two recordings are rarely of the same length, so everything is normalised per second of metered time, in whole numbers:
//! nanoseconds waited per second, and waits per 1,000 seconds.
//!
//! Whether a difference is more than chance is tested by how much the rates vary from interval to interval ([`Spread`]).

mod renamed;
mod significance;
mod spread;
mod student;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::interval::BlockerSource;
use crate::quantile::quantile_ns;
use crate::report::{Dimension, Report, Row, RowRoot, RowTask};
use crate::sample::{Bucket, Context, Happened, Kind, Mode, Value, named_enum};
use significance::Tested;
pub use spread::Spread;
use spread::logarithms;
pub use student::two_sided_p;

/// Two reports compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Diff {
    /// What the rows are grouped by.
    pub by: Vec<Dimension>,
    /// The earlier report as a whole.
    pub before: Side,
    /// The later report as a whole.
    pub after: Side,
    /// Of all waits, what the intervals say of the difference.
    pub evidence: Evidence,
    /// The groups, largest change of waited time per second first.
    pub rows: Vec<DiffRow>,
    /// Files that were taken for one another.
    pub renamed: Vec<Renamed>,
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
    /// Typical duration, which is the geometric mean (not a rate): a few that other work stretched hardly change it. 0 for a whole
    /// report, which has no histogram.
    pub typical_ns: u64,
    /// 99th percentile of the durations (not a rate); 0 for a whole report.
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
    /// What the intervals say of it.
    pub evidence: Evidence,
    /// What they say of the typical duration of a wait or hold: a lock that is always held may be held longer each time. Of the ratio
    /// only.
    pub of_typical: Evidence,
}

named_enum! {
    /// Whether there is a difference.
    Verdict {
        /// More, and not by chance.
        Worse = 1, "worse";
        /// Less, and not by chance.
        Better = 2, "better";
        /// The 95 % interval of the ratio is narrow, and about 1.
        NoDifference = 3, "no difference";
        /// The intervals vary too much, or are too few.
        CannotTell = 4, "cannot tell";
        /// Both before and after it is less than a thousandth of the time: too little to matter.
        TooLittle = 5, "too little";
    }
}

/// What the intervals of two recordings say of a difference. The bounds hold the true one with 95 % confidence, each for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evidence {
    /// Whether there is one. Where there are several groups, each of them has a chance to look different: of all verdicts of a diff
    /// together, one in a hundred diffs has a wrong one by chance (S. Holm, "A simple sequentially rejective multiple test procedure", 1979).
    pub verdict: Verdict,
    /// After ÷ before, in thousandths; `None` if one of them is nothing or they were not tested.
    pub ratio: Option<(u64, u64)>,
    /// Waited nanoseconds a second, after less before; `None` if they were not tested.
    pub delta_ns_per_s: Option<(i64, i64)>,
}

/// A file that has another name after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renamed {
    /// Before.
    pub before: String,
    /// After.
    pub after: String,
    /// How many locks of one name both have.
    pub locks: u64,
}

/// Less than this in a second is too little to matter, and how fast the machine happens to be decides over it: nanoseconds of an uncontended
/// lock, for one.
const LEAST_NS_PER_S: u64 = 1_000_000;

/// A ratio is no difference if its interval lies between 1 ÷ this and this: the limits within which medicines count as alike
/// (D. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", 1987).
const ALIKE_WITHIN: f64 = 1.25;

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
    /// Its file system.
    pub filesystem: Option<String>,
    /// Name of the task.
    pub task: Option<String>,
    /// The cgroup's path.
    pub cgroup: Option<String>,
    /// What waited.
    pub context: Option<Context>,
    /// Where the wait or the hold ended.
    pub cpu: Option<u32>,
    /// Functions that waited, innermost first.
    pub caller: Option<Arc<[Arc<str>]>>,
    /// How the blocker is known, and its functions, innermost first.
    pub blocker: Option<(BlockerSource, Arc<[Arc<str>]>)>,
    /// Name of the task that made it wait, if grouped by that and if it is known.
    pub blocker_task: Option<String>,
    /// The end of the chain of blockers; its task without the process id.
    pub root: Option<RowRoot>,
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
                write!(f, "the reports are grouped by {before} and by {after}; group both the same way")
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

/// A report and what its intervals say.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// Of the whole.
    pub report: &'a Report,
    /// Of each interval.
    pub spread: &'a Spread,
}

/// Compares two reports without their intervals, so that nothing says what is chance.
pub fn diff(before: &Report, after: &Report) -> Result<Diff, DiffError> {
    let spread = Spread::default();
    diff_tested(Recorded { report: before, spread: &spread }, Recorded { report: after, spread: &spread })
}

/// One group in both.
#[derive(Default)]
struct Pair {
    before: Option<Sum>,
    after: Option<Sum>,
    /// Its keys before: more than one if files were renamed.
    keys_before: Vec<DiffKey>,
}

/// Compares two reports, which must be grouped by the same dimensions in the same order, and tests the differences.
pub fn diff_tested(old: Recorded<'_>, new: Recorded<'_>) -> Result<Diff, DiffError> {
    let (before, after) = (old.report, new.report);
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
    let files = renamed::renamed_files(before, after);
    let mut pairs = BTreeMap::<DiffKey, Pair>::new();
    for row in &before.rows {
        let key = key(row, &before.by);
        let pair = pairs.entry(renamed::renamed(key.clone(), &files)).or_default();
        pair.before.get_or_insert_default().add(row);
        pair.keys_before.push(key);
    }
    for row in &after.rows {
        pairs.entry(key(row, &after.by)).or_default().after.get_or_insert_default().add(row);
    }
    let test = |key: &DiffKey, mut keys_before: Vec<DiffKey>| {
        keys_before.dedup();
        let keys: Vec<&DiffKey> = if keys_before.is_empty() { vec![key] } else { keys_before.iter().collect() };
        let (old, new) = (old.spread.of_group(&keys), new.spread.of_group(&[key]));
        [significance::test(&old.rate, &new.rate), significance::test_logarithms(&old.typical, &new.typical)]
    };
    let (mut rows, mut tested) = (Vec::with_capacity(pairs.len()), Vec::with_capacity(2 * pairs.len()));
    for (key, pair) in pairs {
        let row = diff_row(key, pair.before, before.duration_ns, pair.after, after.duration_ns);
        // lockmeter's own waits are shown, not judged.
        let is_judged = !row.key.own && !row.is_too_little();
        tested.extend(if is_judged { test(&row.key, pair.keys_before) } else { [None, None] });
        rows.push(row);
    }
    for (row, evidence) in rows.iter_mut().zip(evidence(&tested).chunks(2)) {
        row.evidence = evidence[0];
        row.of_typical = Evidence { delta_ns_per_s: None, ..evidence[1] };
        if !row.key.own && row.is_too_little() {
            row.evidence.verdict = Verdict::TooLittle;
            row.of_typical.verdict = Verdict::TooLittle;
        }
    }
    // A stable sort: of equal changes the first by name stays first.
    rows.sort_by_key(|row| std::cmp::Reverse(row.delta_ns_per_s.unsigned_abs()));
    let of_waits = significance::test(&old.spread.of_waits(), &new.spread.of_waits());
    Ok(Diff {
        by: before.by.clone(),
        before: side(before),
        after: side(after),
        evidence: evidence(&[of_waits])[0],
        rows,
        renamed: files,
        warnings: warnings(before, after),
    })
}

impl DiffRow {
    fn is_too_little(&self) -> bool {
        self.before.total_ns_per_s.max(self.after.total_ns_per_s) < LEAST_NS_PER_S
    }
}

/// What the tests say together.
fn evidence(tested: &[Option<Tested>]) -> Vec<Evidence> {
    let differ = differing(tested);
    tested.iter().zip(differ).map(|(tested, differs)| Evidence::of(tested.as_ref(), differs)).collect()
}

/// Which of them differ, by Holm's procedure: the least likely one must be less likely than a part of one in a hundred, and so on.
fn differing(tested: &[Option<Tested>]) -> Vec<bool> {
    let mut order: Vec<(f64, usize)> =
        tested.iter().enumerate().filter_map(|(at, tested)| Some((tested.as_ref()?.p, at))).collect();
    order.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut differ = vec![false; tested.len()];
    for (rank, (p, at)) in order.iter().enumerate() {
        if p * (order.len() - rank) as f64 > significance::VERDICT_ERROR {
            break;
        }
        differ[*at] = true;
    }
    differ
}

impl Evidence {
    /// Nothing was tested.
    const NONE: Self = Self { verdict: Verdict::CannotTell, ratio: None, delta_ns_per_s: None };

    fn of(tested: Option<&Tested>, differs: bool) -> Self {
        let Some(tested) = tested else { return Self::NONE };
        let is_more = tested.ratio.map_or(tested.difference.0 > 0.0, |(low, _)| low > 1.0);
        let is_alike = |(low, high): (f64, f64)| {
            let by_chance = significance::RUNS_DIFFER_BY;
            low <= by_chance && high >= 1.0 / by_chance && low >= 1.0 / ALIKE_WITHIN && high <= ALIKE_WITHIN
        };
        let verdict = match (differs, tested.ratio) {
            (true, _) if is_more => Verdict::Worse,
            (true, _) => Verdict::Better,
            (false, Some(ratio)) if is_alike(ratio) => Verdict::NoDifference,
            (false, None) if tested.difference == (0.0, 0.0) => Verdict::NoDifference,
            (false, _) => Verdict::CannotTell,
        };
        let thousandths = |ratio: f64| (ratio * 1_000.0).round() as u64;
        Self {
            verdict,
            ratio: tested.ratio.map(|(low, high)| (thousandths(low), thousandths(high))),
            delta_ns_per_s: Some(tested.difference)
                .map(|(low, high)| ((low * NS_PER_S as f64) as i64, (high * NS_PER_S as f64) as i64)),
        }
    }
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
        let (count, sum) = logarithms(histogram.iter().map(|(_, count, total_ns)| (*count, *total_ns)));
        let typical_ns = if count > 0 { (sum / count as f64).exp().round() as u64 } else { 0 };
        let p99_ns = quantile_ns(&histogram, self.value.max_ns, 990_000);
        Rate { typical_ns, p99_ns, ..rate(&self.value, metered_ns) }
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
        mode: row.mode.filter(|_| has(Dimension::Lock) || has(Dimension::Mode)),
        object: row.object.clone(),
        filesystem: row.filesystem.clone(),
        task: row.task.as_ref().map(|task| task.comm.clone()),
        cgroup: row.cgroup.clone(),
        context: row.context,
        cpu: row.cpu,
        caller: row.caller.clone(),
        blocker: row.blocker.as_ref().map(|blocker| (blocker.source, blocker.stack.clone())),
        blocker_task: row.blocker.as_ref().and_then(|blocker| Some(blocker.by_task.as_ref()?.as_ref()?.comm.clone())),
        root: row.root.as_deref().map(|root| RowRoot {
            state: None,
            by_task: root.by_task.clone().map(|task| task.map(|task| RowTask { tgid: None, ..task })),
            ..root.clone()
        }),
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
    DiffRow { key, change, before, after, delta_ns_per_s, evidence: Evidence::NONE, of_typical: Evidence::NONE }
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
        typical_ns: 0,
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
        typical_ns: 0,
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
