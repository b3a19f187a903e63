//! Two reports compared, to look at: what got better and what got worse.

use std::fmt;
use std::io;
use std::sync::Arc;

use lockmeter_profile::diff::{Change, Diff, DiffKey, DiffRow, Evidence, Rate, Renamed, Side, Verdict};
use lockmeter_profile::{Dimension, Happened, Kind, Mode};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::columns::{Cell, Column, Unit, context};
use crate::csv::write_records;
use crate::escape::{Form, escaped};
use crate::json::{JSON_SCHEMA, Rows, decimal, object, write_object};
use crate::stacks::{blocker, chain, root, root_task};
use crate::table::sentence;
use crate::terminal::Weight;
use crate::units::{MILLION, SECOND_NS, change, counted, duration, ratio, share, thousandths};
use crate::{Csv, Exporter, Json, Table};

type DiffColumn = Column<DiffRow, ()>;

/// Every column of a diff, in the order of the exports; tables put the measures first.
#[rustfmt::skip]
pub const COLUMNS: &[DiffColumn] = &[
    DiffColumn::new("happened", Unit::Name, |row, ()| Cell::Name(row.key.happened.name()))
        .headed("WHAT").in_table_if_any(|row| row.key.happened != Happened::Wait),
    DiffColumn::new("change", Unit::Name, |row, ()| Cell::Name(row.change.name())).headed("STATE").in_table_if_any(|row| row.change != Change::Changed),
    DiffColumn::new("kind", Unit::Name, |row, ()| Cell::name(row.key.kind.map(Kind::name))).headed("KIND"),
    DiffColumn::new("mode", Unit::Name, |row, ()| Cell::name(row.key.mode.map(Mode::name))).headed("MODE"),
    DiffColumn::new("lock", Unit::Name, |row, ()| Cell::name(row.key.lock.as_deref())).headed("LOCK"),
    DiffColumn::new("object", Unit::Name, |row, ()| Cell::name(row.key.object.as_deref()))
        .headed("OBJECT").by(Dimension::Object),
    DiffColumn::new("filesystem", Unit::Name, |row, ()| Cell::name(row.key.filesystem.as_deref()))
        .headed("FILE SYSTEM").by(Dimension::Filesystem),
    DiffColumn::new("task", Unit::Name, |row, ()| Cell::name(row.key.task.as_deref()))
        .headed("TASK").by(Dimension::Task),
    DiffColumn::new("cgroup", Unit::Name, |row, ()| Cell::name(row.key.cgroup.as_deref()))
        .headed("CGROUP").by(Dimension::Cgroup),
    DiffColumn::new("context", Unit::Name, |row, ()| Cell::Name(context(row.key.context))).headed("CONTEXT").by(Dimension::Context),
    DiffColumn::new("cpu", Unit::Id, |row, ()| row.key.cpu.map_or(Cell::Missing, Cell::Id)).headed("CPU").by(Dimension::Cpu),
    DiffColumn::new("delta_ns_per_s", Unit::SignedNanoseconds, |row, ()| Cell::SignedNanoseconds(row.delta_ns_per_s))
        .headed("CHANGE/S"),
    DiffColumn::new("ratio", Unit::Decimal, |row, ()| times(&row.before, &row.after).map_or(Cell::Missing, Cell::Thousandths))
        .headed("TIMES"),
    DiffColumn::new("ratio_low", Unit::Decimal, |row, ()| Cell::thousandths(row.evidence.ratio.map(|(low, _)| low))),
    DiffColumn::new("ratio_high", Unit::Decimal, |row, ()| Cell::thousandths(row.evidence.ratio.map(|(_, high)| high))),
    DiffColumn::new("delta_low_ns_per_s", Unit::SignedNanoseconds, |row, ()| bound(&row.evidence, |(low, _)| low))
        .headed("95 %").in_words(|row, _| interval(&row.evidence).unwrap_or_default()),
    DiffColumn::new("delta_high_ns_per_s", Unit::SignedNanoseconds, |row, ()| bound(&row.evidence, |(_, high)| high)),
    DiffColumn::new("verdict", Unit::Name, |row, ()| Cell::Name(row.evidence.verdict.name()))
        .headed("VERDICT").in_table_if_any(|row| is_tested(&row.evidence)),
    DiffColumn::new("typical_ratio", Unit::Decimal, |row, ()| {
        typical_times(&row.before, &row.after).map_or(Cell::Missing, Cell::Thousandths)
    }).headed("EACH TIMES").in_table_if_any(|row| row.of_typical.ratio.is_some()).expendable(7),
    DiffColumn::new("typical_ratio_low", Unit::Decimal, |row, ()| Cell::thousandths(row.of_typical.ratio.map(|(low, _)| low)))
        .headed("95 % EACH").in_words(|row, _| interval(&row.of_typical).unwrap_or_default()).expendable(6),
    DiffColumn::new("typical_ratio_high", Unit::Decimal, |row, ()| Cell::thousandths(row.of_typical.ratio.map(|(_, high)| high))),
    DiffColumn::new("typical_verdict", Unit::Name, |row, ()| Cell::Name(row.of_typical.verdict.name()))
        .headed("EACH").in_table_if_any(|row| row.of_typical.ratio.is_some()).expendable(8),
    DiffColumn::new("before_total_ns_per_s", Unit::Nanoseconds, |row, ()| Cell::Nanoseconds(row.before.total_ns_per_s))
        .headed("BEFORE/S"),
    DiffColumn::new("after_total_ns_per_s", Unit::Nanoseconds, |row, ()| Cell::Nanoseconds(row.after.total_ns_per_s))
        .headed("AFTER/S"),
    DiffColumn::new("before_spin_ns_per_s", Unit::Nanoseconds, |row, ()| Cell::Nanoseconds(row.before.spin_ns_per_s))
        .headed("SPIN BEFORE").expendable(2),
    DiffColumn::new("after_spin_ns_per_s", Unit::Nanoseconds, |row, ()| Cell::Nanoseconds(row.after.spin_ns_per_s))
        .headed("SPIN AFTER").expendable(3),
    DiffColumn::new("before_per_second", Unit::Decimal, |row, ()| Cell::Thousandths(row.before.count_per_1000_s))
        .headed("PER S BEFORE").expendable(4),
    DiffColumn::new("after_per_second", Unit::Decimal, |row, ()| Cell::Thousandths(row.after.count_per_1000_s))
        .headed("PER S AFTER").expendable(5),
    DiffColumn::new("before_mean_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.before, row.before.mean_ns)),
    DiffColumn::new("after_mean_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.after, row.after.mean_ns)),
    DiffColumn::new("before_typical_ns", Unit::Nanoseconds, |row, ()| typical(&row.before)),
    DiffColumn::new("after_typical_ns", Unit::Nanoseconds, |row, ()| typical(&row.after)),
    DiffColumn::new("before_p99_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.before, row.before.p99_ns))
        .headed("P99 BEFORE").expendable(0),
    DiffColumn::new("after_p99_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.after, row.after.p99_ns))
        .headed("P99 AFTER").expendable(1),
    DiffColumn::new("before_max_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.before, row.before.max_ns)),
    DiffColumn::new("after_max_ns", Unit::Nanoseconds, |row, ()| of_waits(&row.after, row.after.max_ns)),
    DiffColumn::new("own", Unit::Flag, |row, ()| Cell::Flag(row.key.own))
        .headed("OWN").in_table_if_any(|row| row.key.own),
    DiffColumn::new("caller", Unit::Frames, |row, ()| row.key.caller.as_deref().map_or(Cell::Missing, Cell::Frames))
        .headed("CALLER").by(Dimension::Caller)
        .in_words(|row, frames| chain(row.key.caller.as_deref().unwrap_or_default(), frames)),
    DiffColumn::new("blocker", Unit::Frames, |row, ()| {
        row.key.blocker.as_ref().map_or(Cell::Missing, |(_, stack)| Cell::Frames(stack))
    }).headed("BLOCKER").by(Dimension::Blocker).in_words(|row, frames| match &row.key.blocker {
        Some((source, stack)) => blocker(*source, None, None, (stack, frames)),
        None => String::new(),
    }),
    DiffColumn::new("blocker_source", Unit::Name, |row, ()| {
        Cell::name(row.key.blocker.as_ref().map(|(source, _)| source.name()))
    }).by(Dimension::Blocker).or_by(Dimension::BlockerTask),
    DiffColumn::new("blocker_task", Unit::Name, |row, ()| Cell::name(row.key.blocker_task.as_deref()))
        .headed("BLOCKED BY").by(Dimension::BlockerTask).in_words(|row, _| match &row.key.blocker {
            Some((source, _)) => blocker(*source, row.key.blocker_task.as_deref(), None, (&[], 0)),
            None => String::new(),
        }),
    DiffColumn::new("root", Unit::Frames, |row, ()| {
        row.key.root.as_ref().map_or(Cell::Missing, |root| Cell::Frames(&root.stack))
    }).headed("ROOT").by(Dimension::Root)
        .in_words(|row, frames| row.key.root.as_ref().map_or_else(String::new, |known| root(known, frames))),
    DiffColumn::new("root_lock", Unit::Name, |row, ()| {
        Cell::name(row.key.root.as_ref().and_then(|root| root.lock.as_deref()))
    }).by(Dimension::Root).or_by(Dimension::RootTask),
    DiffColumn::new("root_task", Unit::Name, |row, ()| {
        Cell::name(row.key.root.as_ref().and_then(|root| Some(root.by_task.as_ref()?.as_ref()?.comm.as_str())))
    }).headed("ROOT TASK").by(Dimension::RootTask)
        .in_words(|row, _| row.key.root.as_ref().map_or_else(String::new, root_task)),
];

/// Whether the intervals say anything at all.
const fn is_tested(evidence: &Evidence) -> bool {
    evidence.delta_ns_per_s.is_some()
}

fn bound(evidence: &Evidence, which: fn((i64, i64)) -> i64) -> Cell<'static> {
    evidence.delta_ns_per_s.map_or(Cell::Missing, |bounds| Cell::SignedNanoseconds(which(bounds)))
}

/// What holds the ratio with 95 % confidence; the change, where one of the two is nothing.
fn interval(evidence: &Evidence) -> Option<String> {
    match evidence.ratio {
        Some((low, high)) => Some(format!("[{}, {}]", hundredths(low), hundredths(high))),
        None => evidence.delta_ns_per_s.map(|(low, high)| format!("[{}, {}]", change(low), change(high))),
    }
}

/// A ratio near 1 with two digits behind the point.
fn hundredths(ratio: u64) -> String {
    /// Larger ratios are none of which the last digits matter.
    const LARGE: u64 = 10_000;
    if ratio >= LARGE {
        return thousandths(ratio);
    }
    let rounded = (ratio + 5) / 10;
    format!("{}.{:02}", rounded / 100, rounded % 100)
}

/// After ÷ before in thousandths; `None` where there was nothing before.
fn times(before: &Rate, after: &Rate) -> Option<u64> {
    (before.total_ns_per_s > 0).then(|| ratio(after.total_ns_per_s, 1_000, before.total_ns_per_s))
}

/// The same of the typical duration.
fn typical_times(before: &Rate, after: &Rate) -> Option<u64> {
    (before.typical_ns > 0 && after.typical_ns > 0).then(|| ratio(after.typical_ns, 1_000, before.typical_ns))
}

/// A duration of waits, of which there may be none.
const fn of_waits(rate: &Rate, duration_ns: u64) -> Cell<'static> {
    if rate.count_per_1000_s == 0 { Cell::Missing } else { Cell::Nanoseconds(duration_ns) }
}

/// The typical duration, where it is known.
const fn typical(rate: &Rate) -> Cell<'static> {
    if rate.typical_ns == 0 { Cell::Missing } else { Cell::Nanoseconds(rate.typical_ns) }
}

fn columns(diff: &Diff) -> Vec<&'static DiffColumn> {
    COLUMNS.iter().filter(|column| column.belongs_to(&diff.by)).collect()
}

/// The sentence at the head of a diff.
///
/// Spinning burns CPU time and sleeping does not, so both are told, before and after.
#[derive(Debug, Clone, Copy)]
pub struct DiffHeadline<'a> {
    diff: &'a Diff,
}

impl<'a> DiffHeadline<'a> {
    /// The head of this diff.
    pub const fn of(diff: &'a Diff) -> Self {
        Self { diff }
    }

    /// The group that changed most for the better or for the worse; lockmeter's own do not count.
    fn most(&self, how: &str, is_wanted: fn(i64) -> bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let differs = |row: &&DiffRow| {
            !is_tested(&self.diff.evidence) || matches!(row.evidence.verdict, Verdict::Better | Verdict::Worse)
        };
        let rows = self.diff.rows.iter().filter(|row| !row.key.own && is_wanted(row.delta_ns_per_s));
        let candidates = rows.filter(differs);
        match candidates.max_by_key(|row| row.delta_ns_per_s.unsigned_abs()) {
            Some(row) => write!(f, "; most {how}: {}, {} a second", name(&row.key), change(row.delta_ns_per_s)),
            None if is_tested(&self.diff.evidence) => write!(f, "; nothing {how} beyond chance"),
            None => write!(f, "; nothing {how}"),
        }
    }
}

impl fmt::Display for DiffHeadline<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, after) = (&self.diff.before, &self.diff.after);
        let (old_ns, new_ns) = (before.waits.total_ns_per_s, after.waits.total_ns_per_s);
        if old_ns == 0 && new_ns == 0 {
            return write!(f, "nothing waited for a lock, neither before nor after");
        }
        write!(f, "waiting for locks went from {} to {} a second", duration(old_ns), duration(new_ns))?;
        if let Some(times) = times(&before.waits, &after.waits) {
            write!(f, " ({} times", thousandths(times))?;
            if let Some(interval) = interval(&self.diff.evidence) {
                write!(f, " {interval}, {}", verdict_words(self.diff.evidence.verdict))?;
            }
            write!(f, ")")?;
        }
        let (old_cpu, new_cpu) = (share(cpu_ppm(before)), share(cpu_ppm(after)));
        let (old_asleep, new_asleep) = (asleep(before), asleep(after));
        write!(f, ": spinning from {old_cpu} to {new_cpu} of the machine's CPU time, ")?;
        write!(f, "from {old_asleep} to {new_asleep} tasks asleep on average")?;
        self.most("improved", |delta| delta < 0, f)?;
        self.most("worsened", |delta| delta > 0, f)
    }
}

/// What a sentence says of a verdict.
const fn verdict_words(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Worse => "worse",
        Verdict::Better => "better",
        Verdict::NoDifference => "no difference",
        Verdict::CannotTell => "which may be chance",
        Verdict::TooLittle => "too little to matter",
    }
}

fn cpu_ppm(side: &Side) -> u64 {
    ratio(side.waits.spin_ns_per_s, MILLION, SECOND_NS.saturating_mul(side.cpus.into()))
}

fn asleep(side: &Side) -> String {
    thousandths(ratio(side.waits.total_ns_per_s.saturating_sub(side.waits.spin_ns_per_s), 1_000, SECOND_NS))
}

/// What a sentence calls a group: its lock, or else what it is grouped by.
fn name(key: &DiffKey) -> String {
    let innermost = |stack: &Arc<[Arc<str>]>| stack.first().map(|function| function.to_string());
    let blamed = || key.blocker.as_ref().and_then(|(_, stack)| innermost(stack));
    let kind = || key.kind.map(|kind| kind.name().to_owned());
    let lock = key.lock.as_ref().map(|lock| match key.mode {
        Some(mode) => format!("{lock} ({mode})"),
        None => lock.clone(),
    });
    let others = [key.object.clone(), key.task.clone(), key.cgroup.clone()].into_iter().flatten().next();
    let caller = || key.caller.as_ref().and_then(innermost);
    let name = lock.or(others).or_else(caller).or_else(blamed).or_else(kind);
    escaped(name.as_deref().unwrap_or("a group without a name")).into_owned()
}

const TESTED: &str = "95 %: the confidence interval of TIMES, or of CHANGE/S where a lock is on one side only, from how the \
intervals vary; EACH: of the typical duration; cannot tell: the intervals vary too much or are too few";

const NOT_TESTED: &str =
    "too few intervals to tell a difference from chance: record each side for 5 s or longer, or more often";

impl Exporter<Diff> for Table {
    fn form(&self) -> Form {
        self.colour.form()
    }

    fn export(&self, diff: &Diff, out: &mut dyn io::Write) -> io::Result<()> {
        self.paragraph(&sentence(&DiffHeadline::of(diff).to_string()), Weight::Bold, out)?;
        let by: Vec<&str> = diff.by.iter().map(|by| by.name()).collect();
        let over = [&diff.before, &diff.after].map(|side| duration(side.duration_ns));
        let about = format!("{} before, {} after, all numbers a second; by {}", over[0], over[1], by.join(", "));
        self.paragraph(&about, Weight::Dim, out)?;
        for warning in &diff.warnings {
            self.paragraph(&format!("the recordings differ: {warning}"), Weight::Warning, out)?;
        }
        for file in &diff.renamed {
            let locks = counted(file.locks, "lock has the same name", "locks have the same names");
            let taken = format!("{} before is taken for {} after: {locks}", file.before, file.after);
            self.paragraph(&escaped(&taken), Weight::Dim, out)?;
        }
        let shown: Vec<&DiffRow> = diff.rows.iter().take(self.limit.unwrap_or(usize::MAX)).collect();
        if shown.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        self.grid(self.layout(&columns(diff), &shown, &(), Column::heading), out)?;
        match diff.rows.len() - shown.len() {
            0 => Ok(()),
            rest => {
                let rest = format!("… and {} that changed less", counted(rest as u64, "more row", "more rows"));
                self.paragraph(&rest, Weight::Plain, out)
            }
        }?;
        let what = if is_tested(&diff.evidence) { TESTED } else { NOT_TESTED };
        self.paragraph(what, Weight::Dim, out)
    }
}

impl Exporter<Diff> for Csv {
    fn form(&self) -> Form {
        Form::CSV
    }

    fn export(&self, diff: &Diff, out: &mut dyn io::Write) -> io::Result<()> {
        write_records(&columns(diff), &diff.rows, &(), out)
    }
}

impl Exporter<Diff> for Json {
    fn form(&self) -> Form {
        Form::JSON
    }

    fn export(&self, diff: &Diff, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(&Top(diff), out)
    }
}

struct Top<'a>(&'a Diff);

impl Serialize for Top<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(diff) = self;
        let by: Vec<&str> = diff.by.iter().map(|by| by.name()).collect();
        let warnings: Vec<String> = diff.warnings.iter().map(ToString::to_string).collect();
        object!(serializer, {
            "schema": JSON_SCHEMA,
            "by": by,
            "before": OneSide(&diff.before),
            "after": OneSide(&diff.after),
            "warnings": warnings,
            "sentence": DiffHeadline::of(diff).to_string(),
            "ratio": times(&diff.before.waits, &diff.after.waits).map(decimal),
            "ratio_low": diff.evidence.ratio.map(|(low, _)| decimal(low)),
            "ratio_high": diff.evidence.ratio.map(|(_, high)| decimal(high)),
            "delta_low_ns_per_s": diff.evidence.delta_ns_per_s.map(|(low, _)| low),
            "delta_high_ns_per_s": diff.evidence.delta_ns_per_s.map(|(_, high)| high),
            "verdict": diff.evidence.verdict.name(),
            "renamed": diff.renamed.iter().map(RenamedFile).collect::<Vec<_>>(),
            "rows": Rows { columns: columns(diff), rows: &diff.rows, whole: () },
        })
    }
}

struct RenamedFile<'a>(&'a Renamed);

impl Serialize for RenamedFile<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(file) = self;
        object!(serializer, { "before": file.before, "after": file.after, "locks": file.locks, })
    }
}

struct OneSide<'a>(&'a Side);

impl Serialize for OneSide<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(side) = self;
        object!(serializer, {
            "kernel": side.kernel_release,
            "machine": side.machine,
            "scope": side.scope,
            "cpus": side.cpus,
            "duration_ns": side.duration_ns,
            "per_second": decimal(side.waits.count_per_1000_s),
            "total_ns_per_s": side.waits.total_ns_per_s,
            "spin_ns_per_s": side.waits.spin_ns_per_s,
            "mean_ns": side.waits.mean_ns,
            "max_ns": side.waits.max_ns,
            "cpu_ppm": cpu_ppm(side),
        })
    }
}
