//! Several reports as one: rows of one name come together, totals and metered time add up.
//!
//! Names, not handles or addresses, say what belongs together, so that recordings of other days and machines can be added.

mod threads;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::sync::Arc;

use crate::interval::BlockerSource;
use crate::quantile::quantile_ns;
use crate::report::{About, Dimension, Report, Row, RowRoot, RowTask, TimedOut};
use crate::sample::{Bucket, Context, Happened, Kind, Mode};
use crate::slow_hold::HolderTime;

/// As many single holds are shown of a report.
const MOST_SLOW_HOLDS: usize = 64;

const MEDIAN: u32 = 500_000;
const PERCENTILE_99: u32 = 990_000;

/// Adds up reports that are grouped alike. `None` of none.
///
/// A rate of the whole is the mean of the rates, each for as long as it was metered.
pub fn merge(reports: impl IntoIterator<Item = Report>) -> Option<Report> {
    let mut reports = reports.into_iter().peekable();
    let mut whole = reports.next()?;
    // Most reports are of one recording, and a large one is in memory once.
    if reports.peek().is_none() {
        return Some(whole);
    }
    let mut rows = BTreeMap::<RowKey, Row>::new();
    add_rows(&mut rows, std::mem::take(&mut whole.rows), &whole.by);
    for report in reports {
        add_about(&mut whole.about, &report.about);
        whole.start_unix_ns = whole.start_unix_ns.min(report.start_unix_ns);
        whole.duration_ns = whole.duration_ns.saturating_add(report.duration_ns);
        whole.intervals += report.intervals;
        whole.waits.merge(&report.waits);
        whole.user_waits.merge(&report.user_waits);
        whole.own_waits.merge(&report.own_waits);
        let spinning = &mut whole.spinning;
        spinning.preempted_ns = spinning.preempted_ns.saturating_add(report.spinning.preempted_ns);
        spinning.sampled.merge(&report.spinning.sampled);
        whole.goroutines.looks = whole.goroutines.looks.saturating_add(report.goroutines.looks);
        whole.goroutines.parked.merge(&report.goroutines.parked);
        whole.named_ns = whole.named_ns.saturating_add(report.named_ns);
        whole.timed_out = add_timed_out(whole.timed_out, report.timed_out);
        whole.holds = whole.holds.saturating_add(report.holds);
        whole.untimed_holds = whole.untimed_holds.saturating_add(report.untimed_holds);
        whole.losses.merge(&report.losses);
        whole.swaps.merge(&report.swaps);
        whole.off.merge(&report.off);
        whole.overhead.merge(&report.overhead);
        whole.slow_holds.extend(report.slow_holds);
        whole.threads = threads::add(whole.threads, report.threads);
        whole.worst = match (whole.worst, report.worst) {
            (Some(mut one), Some(other))
                if (&one.lock, one.kind, one.mode) == (&other.lock, other.kind, other.mode) =>
            {
                one.value.merge(&other.value);
                Some(one)
            }
            (one, other) => [one, other].into_iter().flatten().max_by_key(|worst| worst.value.total_ns),
        };
        add_rows(&mut rows, report.rows, &whole.by);
    }
    whole.rows = rows.into_values().collect();
    whole.rows.iter_mut().for_each(set_quantiles);
    // Stable sorts: of equal totals the first by name stays first.
    whole.rows.sort_by_key(|row| Reverse(row.value.total_ns));
    whole.slow_holds.sort_by_key(|hold| Reverse(hold.span_ns));
    whole.slow_holds.truncate(MOST_SLOW_HOLDS);
    Some(whole)
}

/// The lock is that of which one of the reports has most.
fn add_timed_out(one: Option<TimedOut>, other: Option<TimedOut>) -> Option<TimedOut> {
    let (one, other) = match (one, other) {
        (Some(one), Some(other)) => (one, other),
        (one, other) => return one.or(other),
    };
    let mut all = one.all;
    all.merge(&other.all);
    let is_same = (&one.lock, one.kind, one.mode) == (&other.lock, other.kind, other.mode);
    let (mut most, less) = if one.value.total_ns >= other.value.total_ns { (one, other) } else { (other, one) };
    if is_same {
        most.value.merge(&less.value);
    }
    Some(TimedOut { all, ..most })
}

/// What tells rows of reports apart that are grouped alike, in the order of names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowKey {
    happened: Happened,
    own: bool,
    lock: Option<String>,
    kind: Option<Kind>,
    mode: Option<Mode>,
    instance: Option<u64>,
    object: Option<String>,
    filesystem: Option<String>,
    task: Option<RowTask>,
    cgroup: Option<String>,
    context: Option<Context>,
    cpu: Option<u32>,
    caller: Option<Arc<[Arc<str>]>>,
    blocker: Option<(BlockerSource, Arc<[Arc<str>]>)>,
    blocker_task: Option<Option<RowTask>>,
    root: Option<RowRoot>,
}

impl RowKey {
    /// That of a row of a report which is grouped by these dimensions.
    pub fn of(row: &Row, by: &[Dimension]) -> Self {
        // A row by caller may happen to hold one kind only: that is not what makes it the same row.
        let of_lock = by.contains(&Dimension::Lock);
        let of_kind = of_lock || by.contains(&Dimension::Kind);
        let of_mode = of_lock || by.contains(&Dimension::Mode);
        Self {
            happened: row.happened,
            own: row.own,
            lock: row.lock.clone(),
            kind: row.kind.filter(|_| of_kind),
            mode: row.mode.filter(|_| of_mode),
            instance: row.instance,
            object: row.object.clone(),
            filesystem: row.filesystem.clone(),
            task: row.task.clone(),
            cgroup: row.cgroup.clone(),
            context: row.context,
            cpu: row.cpu,
            caller: row.caller.clone(),
            blocker: row.blocker.as_ref().map(|blocker| (blocker.source, Arc::clone(&blocker.stack))),
            blocker_task: row.blocker.as_ref().and_then(|blocker| blocker.by_task.clone()),
            root: row.root.as_deref().map(|root| RowRoot { state: None, ..root.clone() }),
        }
    }
}

fn add_rows(rows: &mut BTreeMap<RowKey, Row>, more: Vec<Row>, by: &[Dimension]) {
    for row in more {
        match rows.entry(RowKey::of(&row, by)) {
            Entry::Vacant(vacant) => drop(vacant.insert(row)),
            Entry::Occupied(same) => add_row(same.into_mut(), row),
        }
    }
}

fn add_row(sum: &mut Row, row: Row) {
    sum.value.merge(&row.value);
    sum.off_ns = sum.off_ns.saturating_add(row.off_ns);
    sum.stacks = sum.stacks.saturating_add(row.stacks);
    sum.estimated |= row.estimated;
    sum.kind = sum.kind.filter(|kind| row.kind == Some(*kind));
    sum.mode = sum.mode.filter(|mode| row.mode == Some(*mode));
    if sum.naming != row.naming {
        // The weaker of two namings: the row rests on both.
        sum.naming = sum.naming.max(row.naming);
        sum.naming_detail = None;
    }
    sum.contended = sum.contended.zip(row.contended).map(|(one, other)| one.saturating_add(other));
    sum.run_delay_ns = match (sum.run_delay_ns, row.run_delay_ns) {
        (Some(sum_ns), Some(more_ns)) => Some(sum_ns.saturating_add(more_ns)),
        (one, other) => one.or(other),
    };
    if let Some(spun) = row.sampled_spin {
        sum.sampled_spin.get_or_insert_default().merge(&spun);
    }
    if let Some(parked) = row.parked {
        sum.parked.get_or_insert_default().merge(&parked);
    }
    sum.holder = match (sum.holder.take(), row.holder) {
        (Some(one), Some(other)) => {
            let (mut parts, others) = (one.parts(), other.parts());
            for (part, more) in parts.iter_mut().zip(others) {
                *part = part.saturating_add(more);
            }
            Some(Box::new(HolderTime::from_parts(parts)))
        }
        _ => None,
    };
    sum.basis = match (sum.basis.take(), row.basis) {
        (Some(mut basis), Some(other)) => {
            basis.merge(&other);
            Some(basis)
        }
        _ => None,
    };
    if let (Some(blocker), Some(other)) = (&mut sum.blocker, &row.blocker)
        && blocker.task != other.task
    {
        blocker.task = None;
    }
    let mut histogram: BTreeMap<Bucket, (u64, u64)> = BTreeMap::new();
    for (bucket, count, total_ns) in sum.histogram.iter().chain(&row.histogram) {
        let of_bucket = histogram.entry(*bucket).or_default();
        *of_bucket = (of_bucket.0.saturating_add(*count), of_bucket.1.saturating_add(*total_ns));
    }
    sum.histogram = histogram.into_iter().map(|(bucket, (count, total_ns))| (bucket, count, total_ns)).collect();
}

fn set_quantiles(row: &mut Row) {
    row.p50_ns = quantile_ns(&row.histogram, row.value.max_ns, MEDIAN);
    row.p99_ns = quantile_ns(&row.histogram, row.value.max_ns, PERCENTILE_99);
}

/// What one head says of all; [`differences`] says what it does not.
fn add_about(about: &mut About, other: &About) {
    about.start_unix_ns = about.start_unix_ns.min(other.start_unix_ns);
    about.cpus = about.cpus.max(other.cpus);
    for (one, other) in [
        (&mut about.kernel_release, &other.kernel_release),
        (&mut about.machine, &other.machine),
        (&mut about.scope, &other.scope),
    ] {
        if !one.split(AND).any(|known| known == other) {
            *one = format!("{one}{AND}{other}");
        }
    }
}

/// Between what several recordings were of.
const AND: &str = "; ";

/// Why reports that are added up may not belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Difference {
    /// Shares of CPU time are of the largest.
    Cpus(u32, u32),
    /// Functions may have other names.
    Kernel(String, String),
    /// Another architecture.
    Machine(String, String),
    /// Not the same was metered.
    Scope(String, String),
    /// They overlap by the clocks of their machines: on one machine the same waits count twice.
    AtTheSameTime,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpus(one, other) => write!(
                f,
                "the recordings are of machines with {one} and {other} CPUs; shares of CPU time are computed with the larger number"
            ),
            Self::Kernel(one, other) => {
                write!(f, "the recordings are of kernels {one} and {other}: functions and locks may have other names")
            }
            Self::Machine(one, other) => write!(f, "the recordings are of a {one} and a {other} machine"),
            Self::Scope(one, other) => write!(f, "the recordings are of {one} and of {other}"),
            Self::AtTheSameTime => f.write_str(
                "the recordings overlap in time by their clocks: if they are of one machine, the same waits count twice",
            ),
        }
    }
}

/// What the reports, which are to be added up, do not have in common: each kind once.
pub fn differences(reports: &[Report]) -> Vec<Difference> {
    let mut found = Vec::new();
    let Some(first) = reports.first() else { return found };
    let other_than_first =
        |is_other: &dyn Fn(&About) -> bool| reports.iter().map(|report| &report.about).find(|about| is_other(about));
    let about = &first.about;
    if let Some(other) = other_than_first(&|other| other.cpus != about.cpus) {
        found.push(Difference::Cpus(about.cpus, other.cpus));
    }
    if let Some(other) = other_than_first(&|other| other.kernel_release != about.kernel_release) {
        found.push(Difference::Kernel(about.kernel_release.clone(), other.kernel_release.clone()));
    }
    if let Some(other) = other_than_first(&|other| other.machine != about.machine) {
        found.push(Difference::Machine(about.machine.clone(), other.machine.clone()));
    }
    if let Some(other) = other_than_first(&|other| other.scope != about.scope) {
        found.push(Difference::Scope(about.scope.clone(), other.scope.clone()));
    }
    let mut spans: Vec<(u64, u64)> = reports
        .iter()
        .filter(|report| report.duration_ns > 0)
        .map(|report| (report.start_unix_ns, report.start_unix_ns.saturating_add(report.duration_ns)))
        .collect();
    spans.sort_unstable();
    if spans.windows(2).any(|two| two[1].0 < two[0].1) {
        found.push(Difference::AtTheSameTime);
    }
    found
}

/// Addresses of single locks mean nothing in another recording.
pub fn can_merge(by: &[Dimension]) -> bool {
    !by.contains(&Dimension::Instance)
}
