//! What a row of a report says: the one list that tables, JSON, CSV and `--sort` follow.
//!
//! A column's key is its name everywhere: the JSON key, the CSV header and the argument of `--sort`.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use lockmeter_profile::{
    Bucket, Context, Dimension, Happened, HolderTime, Kind, Mode, Naming, Report, Row, RowTask, Value,
};

use crate::stacks::{NO_STACK, blocked_by, blocker, chain, root, root_task, without_long_arguments};
use crate::units::{MILLION, ratio};

/// What a column holds, and so how it is aligned and printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// How many.
    Count,
    /// A duration in nanoseconds.
    Nanoseconds,
    /// A share in millionths.
    Millionths,
    /// A number with a point: a rate or a ratio.
    Decimal,
    /// A change of a duration: positive is worse.
    SignedNanoseconds,
    /// A word or a name.
    Name,
    /// A number that names something.
    Id,
    /// The address of a single lock.
    Address,
    /// Yes or no.
    Flag,
    /// Function names, innermost first.
    Frames,
    /// `(bucket, count, total_ns)`, shortest bucket first.
    Histogram,
}

impl Unit {
    /// Whether the column measures something: tables put measures first, and the largest is sorted to the top.
    pub const fn is_measure(self) -> bool {
        matches!(self, Self::Count | Self::Nanoseconds | Self::Millionths | Self::Decimal | Self::SignedNanoseconds)
    }

    /// Whether tables align the column to the right.
    pub const fn aligns_right(self) -> bool {
        self.is_measure() || matches!(self, Self::Id)
    }
}

/// What one row says in one column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    /// Nothing: not known, or the row holds several.
    Missing,
    /// Yes or no.
    Flag(bool),
    /// How many.
    Count(u64),
    /// A duration.
    Nanoseconds(u64),
    /// A share in millionths.
    Millionths(u64),
    /// A number with a point, in thousandths (an integer, so that rounding is the same everywhere).
    Thousandths(u64),
    /// A change of a duration.
    SignedNanoseconds(i64),
    /// A name.
    Name(&'a str),
    /// A number that names something.
    Id(u32),
    /// An address.
    Address(u64),
    /// Function names, innermost first.
    Frames(&'a [Arc<str>]),
    /// A histogram.
    Histogram(&'a [(Bucket, u64, u64)]),
}

impl<'a> Cell<'a> {
    /// A number with a point, in thousandths, that may be missing.
    pub(crate) fn thousandths(number: Option<u64>) -> Self {
        number.map_or(Cell::Missing, Cell::Thousandths)
    }

    /// A name, where there is one.
    pub fn name(name: Option<&'a str>) -> Self {
        name.map_or(Self::Missing, Self::Name)
    }
}

/// What shares and rates are taken of.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    /// All waited time of the report.
    pub waits: Value,
    /// The report's duration.
    pub duration_ns: u64,
}

impl Whole {
    /// The part of the report's time in which this row could be counted.
    const fn metered_ns(&self, row: &Row) -> u64 {
        self.duration_ns.saturating_sub(row.off_ns)
    }
}

impl From<&Report> for Whole {
    fn from(report: &Report) -> Self {
        Self { waits: report.waits, duration_ns: report.duration_ns }
    }
}

/// One column: of a report's rows, or of another kind of record `R`, whose shares and rates are taken of a `W`.
pub struct Column<R: 'static = Row, W: 'static = Whole> {
    /// JSON key, CSV header and sort key.
    pub key: &'static str,
    /// Heading in tables; `None` keeps the column out of them.
    pub heading: Option<&'static str>,
    /// Heading in tables of holds, where it is another one.
    pub heading_of_holds: Option<&'static str>,
    /// What it holds.
    pub unit: Unit,
    /// Terminals too narrow for all lose the columns with the lowest rank first; `None` is never left out.
    pub expendable: Option<u8>,
    /// It has something to say of reports grouped by any of these; of all if there are none.
    dimensions: [Option<Dimension>; 2],
    in_table: fn(&R) -> bool,
    cell: for<'a> fn(&'a R, &W) -> Cell<'a>,
    words: Option<fn(&R, usize) -> String>,
}

impl<R, W> fmt::Debug for Column<R, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Column").field("key", &self.key).field("unit", &self.unit).finish_non_exhaustive()
    }
}

impl<R, W> Column<R, W> {
    pub(crate) const fn new(key: &'static str, unit: Unit, cell: for<'a> fn(&'a R, &W) -> Cell<'a>) -> Self {
        Self {
            key,
            heading: None,
            heading_of_holds: None,
            unit,
            expendable: None,
            dimensions: [None; 2],
            in_table: |_| true,
            cell,
            words: None,
        }
    }

    pub(crate) const fn headed(mut self, heading: &'static str) -> Self {
        self.heading = Some(heading);
        self
    }

    pub(crate) const fn of_holds(mut self, heading: &'static str) -> Self {
        self.heading_of_holds = Some(heading);
        self
    }

    pub(crate) const fn expendable(mut self, rank: u8) -> Self {
        self.expendable = Some(rank);
        self
    }

    pub(crate) const fn by(mut self, dimension: Dimension) -> Self {
        self.dimensions[0] = Some(dimension);
        self
    }

    /// After [`by`](Self::by).
    pub(crate) const fn or_by(mut self, dimension: Dimension) -> Self {
        self.dimensions[1] = Some(dimension);
        self
    }

    pub(crate) const fn in_table_if_any(mut self, row: fn(&R) -> bool) -> Self {
        self.in_table = row;
        self
    }

    /// Lets tables say it in other words, given how many frames of a stack to show.
    pub(crate) const fn in_words(mut self, words: fn(&R, usize) -> String) -> Self {
        self.words = Some(words);
        self
    }

    /// What `row` says in this column.
    pub fn cell<'a>(&self, row: &'a R, whole: &W) -> Cell<'a> {
        (self.cell)(row, whole)
    }

    /// What `row` says in this column in the words of a table, where they are not those of the cell.
    pub fn words(&self, row: &R, frames: usize) -> Option<String> {
        self.words.map(|words| words(row, frames))
    }

    /// Whether a report grouped like this has the column: each of its rows then has the key, if only with nothing in it.
    pub fn belongs_to(&self, by: &[Dimension]) -> bool {
        self.dimensions == [None; 2] || self.dimensions.iter().flatten().any(|dimension| by.contains(dimension))
    }

    /// Its heading in a table.
    pub fn heading(&self) -> &'static str {
        self.heading.unwrap_or(self.key)
    }

    /// Its heading in a table of holds.
    pub fn heading_of_holds(&self) -> &'static str {
        self.heading_of_holds.unwrap_or_else(|| self.heading())
    }

    /// Its heading in a table of the contended parts of holds: no acquisitions are counted there.
    pub fn heading_of_contended_holds(&self) -> &'static str {
        match self.key {
            "count" => "RELEASED",
            _ => self.heading_of_holds(),
        }
    }

    /// Whether a table of these rows shows the column: some row has something to say in it.
    pub fn says_something(&self, rows: &[&R], whole: &W) -> bool {
        self.heading.is_some() && rows.iter().any(|row| (self.in_table)(row) && self.cell(row, whole) != Cell::Missing)
    }

    const fn is_sortable(&self) -> bool {
        !matches!(self.unit, Unit::Histogram)
    }
}

type ReportColumn = Column<Row, Whole>;

/// Every column there is, in the order of the exports; tables put the measures first.
#[rustfmt::skip]
pub const COLUMNS: &[ReportColumn] = &[
    ReportColumn::new("happened", Unit::Name, |row, _| Cell::Name(row.happened.name()))
        .headed("WHAT").in_table_if_any(|row| matches!(row.happened, Happened::Idle | Happened::Run)),
    ReportColumn::new("kind", Unit::Name, |row, _| Cell::name(row.kind.map(Kind::name))).headed("KIND"),
    ReportColumn::new("mode", Unit::Name, |row, _| Cell::name(row.mode.map(Mode::name))).headed("MODE"),
    ReportColumn::new("lock", Unit::Name, |row, _| Cell::name(row.lock.as_deref())).headed("LOCK")
        .in_words(|row, _| marked_lock(row)),
    ReportColumn::new("naming", Unit::Name, |row, _| Cell::name(row.naming.map(Naming::name))),
    ReportColumn::new("naming_detail", Unit::Name, |row, _| Cell::name(row.naming_detail.as_deref())),
    ReportColumn::new("instance", Unit::Address, |row, _| row.instance.map_or(Cell::Missing, Cell::Address))
        .headed("INSTANCE").by(Dimension::Instance),
    ReportColumn::new("object", Unit::Name, |row, _| Cell::name(row.object.as_deref()))
        .headed("OBJECT").by(Dimension::Object),
    ReportColumn::new("filesystem", Unit::Name, |row, _| Cell::name(row.filesystem.as_deref()))
        .headed("FILE SYSTEM").by(Dimension::Filesystem),
    ReportColumn::new("task", Unit::Name, |row, _| Cell::name(row.task.as_ref().map(|task| task.comm.as_str())))
        .headed("TASK").by(Dimension::Task),
    ReportColumn::new("tgid", Unit::Id, |row, _| {
        row.task.as_ref().and_then(|task| task.tgid).map_or(Cell::Missing, Cell::Id)
    }).headed("PID").by(Dimension::Task),
    ReportColumn::new("cgroup", Unit::Name, |row, _| Cell::name(row.cgroup.as_deref()))
        .headed("CGROUP").by(Dimension::Cgroup),
    ReportColumn::new("context", Unit::Name, |row, _| Cell::Name(context(row.context))).headed("CONTEXT").by(Dimension::Context),
    ReportColumn::new("cpu", Unit::Id, |row, _| row.cpu.map_or(Cell::Missing, Cell::Id)).headed("CPU").by(Dimension::Cpu),
    ReportColumn::new("total_ns", Unit::Nanoseconds, |row, _| Cell::Nanoseconds(row.value.total_ns)).headed("WAITED").of_holds("HELD"),
    ReportColumn::new("error_ns", Unit::Nanoseconds, |row, _| {
        row.basis.as_ref().and_then(|basis| basis.error_ns()).map_or(Cell::Missing, Cell::Nanoseconds)
    }).headed("±").in_table_if_any(|row| row.basis.as_ref().and_then(|basis| basis.error_ns()).is_some_and(|error_ns| error_ns > 0)),
    ReportColumn::new("share_ppm", Unit::Millionths, share).headed("%"),
    ReportColumn::new("utilization_ppm", Unit::Millionths, utilization).headed("UTIL %"),
    ReportColumn::new("count", Unit::Count, |row, _| of_counted(row, Cell::Count(row.value.count))).headed("CONTENDED").of_holds("ACQUIRED"),
    ReportColumn::new("contended", Unit::Count, |row, _| row.contended.map_or(Cell::Missing, Cell::Count)),
    ReportColumn::new("contended_ppm", Unit::Millionths, |row, _| match row.contended {
        Some(contended) if row.value.count > 0 => Cell::Millionths(ratio(contended, MILLION, row.value.count)),
        _ => Cell::Missing,
    }).headed("CONT %"),
    ReportColumn::new("timed", Unit::Count, |row, _| {
        row.basis.as_ref().map_or(Cell::Missing, |basis| Cell::Count(row.value.count.saturating_sub(basis.untimed)))
    }),
    ReportColumn::new("watched", Unit::Count, |row, _| row.basis.as_ref().map_or(Cell::Missing, |basis| Cell::Count(basis.watched))),
    ReportColumn::new("moved", Unit::Count, |row, _| row.basis.as_ref().map_or(Cell::Missing, |basis| Cell::Count(basis.moved))),
    ReportColumn::new("moved_ppm", Unit::Millionths, |row, _| match row.basis.as_deref() {
        Some(basis) if basis.watched > 0 => Cell::Millionths(ratio(basis.moved.min(basis.watched), MILLION, basis.watched)),
        _ => Cell::Missing,
    }).headed("MOVED %"),
    ReportColumn::new("holder_running_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.running_ns)).headed("RAN"),
    ReportColumn::new("holder_runnable_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.runnable_ns))
        .headed("RUNNABLE"),
    ReportColumn::new("holder_io_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.io_ns)).headed("I/O")
        .in_table_if_any(|row| row.holder.as_ref().is_some_and(|holder| holder.io_ns > 0)),
    ReportColumn::new("holder_lock_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.lock_ns)).headed("IN LOCK")
        .in_table_if_any(|row| row.holder.as_ref().is_some_and(|holder| holder.lock_ns > 0)),
    ReportColumn::new("holder_reclaim_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.reclaim_ns))
        .headed("RECLAIM").in_table_if_any(|row| row.holder.as_ref().is_some_and(|holder| holder.reclaim_ns > 0)),
    ReportColumn::new("holder_asleep_ns", Unit::Nanoseconds, |row, _| holder(row, |holder| holder.asleep_ns)).headed("ASLEEP")
        .in_table_if_any(|row| row.holder.as_ref().is_some_and(|holder| holder.asleep_ns > 0)),
    ReportColumn::new("per_second", Unit::Decimal, per_second).headed("PER S").expendable(1),
    ReportColumn::new("spin_ns", Unit::Nanoseconds, |row, _| of_waits(row, row.value.spin_ns)).headed("SPIN"),
    ReportColumn::new("spin_error_ns", Unit::Nanoseconds, |row, _| {
        row.sampled_spin.as_ref().map_or(Cell::Missing, |spun| Cell::Nanoseconds(spun.error_ns()))
    }).headed("± SPIN"),
    ReportColumn::new("spin_samples", Unit::Count, |row, _| {
        row.sampled_spin.as_ref().map_or(Cell::Missing, |spun| Cell::Count(spun.samples))
    }),
    ReportColumn::new("sleep_ns", Unit::Nanoseconds, |row, _| of_waits(row, row.value.sleep_ns()))
        .headed("SLEEP").expendable(6),
    ReportColumn::new("sleep_error_ns", Unit::Nanoseconds, |row, _| {
        row.parked.as_ref().map_or(Cell::Missing, |parked| Cell::Nanoseconds(parked.error_ns()))
    }).headed("± SLEEP").in_table_if_any(|row| row.parked.is_some()),
    ReportColumn::new("sleep_looks", Unit::Count, |row, _| {
        row.parked.as_ref().map_or(Cell::Missing, |parked| Cell::Count(parked.looks))
    }),
    ReportColumn::new("run_delay_ns", Unit::Nanoseconds, |row, _| row.run_delay_ns.map_or(Cell::Missing, Cell::Nanoseconds))
        .headed("RUN DELAY").in_table_if_any(has_run_delay).expendable(7),
    ReportColumn::new("mean_ns", Unit::Nanoseconds, |row, _| {
        if is_of_parts(row) { Cell::Missing } else { of_counted(row, Cell::Nanoseconds(mean_ns(row))) }
    }).headed("MEAN").in_table_if_any(|row| !is_of_parts(row)).expendable(2),
    ReportColumn::new("p50_ns", Unit::Nanoseconds, |row, _| of_counted(row, Cell::Nanoseconds(row.p50_ns))).headed("P50").expendable(3),
    ReportColumn::new("p99_ns", Unit::Nanoseconds, |row, _| of_counted(row, Cell::Nanoseconds(row.p99_ns))).headed("P99").expendable(5),
    ReportColumn::new("max_ns", Unit::Nanoseconds, |row, _| of_counted(row, Cell::Nanoseconds(row.value.max_ns)))
        .headed("MAX").expendable(4),
    ReportColumn::new("stacks", Unit::Count, |row, _| Cell::Count(row.stacks))
        .headed("STACKS").in_table_if_any(|row| row.estimated).expendable(0),
    ReportColumn::new("estimated", Unit::Flag, |row, _| Cell::Flag(row.estimated)),
    ReportColumn::new("own", Unit::Flag, |row, _| Cell::Flag(row.own)).headed("OWN").in_table_if_any(|row| row.own),
    ReportColumn::new("caller", Unit::Frames, |row, _| row.caller.as_deref().map_or(Cell::Missing, Cell::Frames))
        .headed("CALLER").by(Dimension::Caller)
        .in_words(|row, frames| chain(row.caller.as_deref().unwrap_or_default(), frames)),
    ReportColumn::new("blocker", Unit::Frames, |row, _| {
        row.blocker.as_ref().map_or(Cell::Missing, |blocker| Cell::Frames(&blocker.stack))
    }).headed("BLOCKER").by(Dimension::Blocker).in_words(|row, frames| match &row.blocker {
        Some(known) => blocker(known.source, known.task.as_deref(), known.state, (&known.stack, frames)),
        None => NO_STACK.to_owned(),
    }),
    // Tables say how a blocker is known, and its task, in front of its stack; or all of it in one column, where there are no stacks.
    ReportColumn::new("blocker_source", Unit::Name, |row, _| {
        Cell::name(row.blocker.as_ref().map(|blocker| blocker.source.name()))
    }).headed("BLOCKED BY").by(Dimension::Blocker).or_by(Dimension::BlockerTask)
        .in_table_if_any(|row| row.blocker.as_ref().is_some_and(|blocker| blocker.by_task.is_some()))
        .in_words(|row, _| row.blocker.as_deref().map_or_else(String::new, blocked_by)),
    ReportColumn::new("blocker_task", Unit::Name, |row, _| {
        Cell::name(row.blocker.as_ref().and_then(|blocker| blocker.task.as_deref()))
    }).by(Dimension::Blocker).or_by(Dimension::BlockerTask),
    ReportColumn::new("blocker_tgid", Unit::Id, |row, _| {
        row.blocker.as_ref().map_or(Cell::Missing, |blocker| tgid(blocker.by_task.as_ref()))
    }).by(Dimension::BlockerTask),
    ReportColumn::new("blocker_state", Unit::Name, |row, _| {
        Cell::name(row.blocker.as_ref().and_then(|blocker| blocker.state).map(|did| did.state.name()))
    }).by(Dimension::Blocker).or_by(Dimension::BlockerTask),
    ReportColumn::new("blocker_call", Unit::Name, |row, _| {
        Cell::name(row.blocker.as_ref().and_then(|blocker| blocker.state?.call?.name()))
    }).by(Dimension::Blocker).or_by(Dimension::BlockerTask),
    ReportColumn::new("root", Unit::Frames, |row, _| {
        row.root.as_ref().map_or(Cell::Missing, |root| Cell::Frames(&root.stack))
    }).headed("ROOT").by(Dimension::Root).in_words(|row, frames| row.root.as_ref().map_or_else(String::new, |known| root(known, frames))),
    // Tables say which lock the root had behind its stack.
    ReportColumn::new("root_lock", Unit::Name, |row, _| {
        Cell::name(row.root.as_ref().and_then(|root| root.lock.as_deref()))
    }).by(Dimension::Root).or_by(Dimension::RootTask),
    ReportColumn::new("root_source", Unit::Name, |row, _| {
        Cell::name(row.root.as_ref().map(|root| root.source.name()))
    }).headed("ROOT TASK").by(Dimension::Root).or_by(Dimension::RootTask)
        .in_table_if_any(|row| row.root.as_ref().is_some_and(|root| root.by_task.is_some()))
        .in_words(|row, _| row.root.as_ref().map_or_else(String::new, |known| root_task(known))),
    ReportColumn::new("root_task", Unit::Name, |row, _| {
        Cell::name(row.root.as_ref().and_then(|root| Some(root.by_task.as_ref()?.as_ref()?.comm.as_str())))
    }).by(Dimension::RootTask),
    ReportColumn::new("root_tgid", Unit::Id, |row, _| {
        row.root.as_ref().map_or(Cell::Missing, |root| tgid(root.by_task.as_ref()))
    }).by(Dimension::RootTask),
    ReportColumn::new("root_state", Unit::Name, |row, _| {
        Cell::name(row.root.as_ref().and_then(|root| root.state).map(|did| did.state.name()))
    }).by(Dimension::Root).or_by(Dimension::RootTask),
    ReportColumn::new("root_call", Unit::Name, |row, _| {
        Cell::name(row.root.as_ref().and_then(|root| root.state?.call?.name()))
    }).by(Dimension::Root).or_by(Dimension::RootTask),
    ReportColumn::new("histogram", Unit::Histogram, |row, _| Cell::Histogram(&row.histogram)),
];

/// The process id of who is to blame, where that is known.
fn tgid(by_task: Option<&Option<RowTask>>) -> Cell<'static> {
    by_task.and_then(|task| task.as_ref()?.tgid).map_or(Cell::Missing, Cell::Id)
}

/// A lock's name and what stands behind it: nothing, a mark that it is inferred, or why there is none.
fn marked_lock(row: &Row) -> String {
    let name = &*without_long_arguments(row.lock.as_deref().unwrap_or("-"));
    match row.naming {
        Some(naming) if is_inferred(naming) => format!("{name} {INFERRED_MARK}"),
        Some(Naming::Unnamed(why)) => format!("{name} (no name: {})", why.name()),
        _ => name.to_owned(),
    }
}

/// Stands behind a name that was inferred.
pub const INFERRED_MARK: char = '~';

/// Whether a name was concluded rather than read.
pub const fn is_inferred(naming: Naming) -> bool {
    matches!(naming, Naming::InferredType | Naming::InferredSite)
}

/// A part of what the holders did.
fn holder<'a>(row: &Row, part: fn(&HolderTime) -> u64) -> Cell<'a> {
    row.holder.as_ref().map_or(Cell::Missing, |holder| Cell::Nanoseconds(part(holder)))
}

/// What waited.
pub(crate) const fn context(known: Option<Context>) -> &'static str {
    match known {
        Some(context) => context.name(),
        None => "unknown",
    }
}

/// The one that holds a lock neither spins nor sleeps for it.
const fn of_waits<'a>(row: &Row, duration_ns: u64) -> Cell<'a> {
    match row.happened {
        Happened::Hold | Happened::ContendedHold | Happened::Failed => Cell::Missing,
        _ => Cell::Nanoseconds(duration_ns),
    }
}

/// What is counted of waits that ended: nothing is of those that only samples have met.
const fn of_counted<'a>(row: &Row, cell: Cell<'a>) -> Cell<'a> {
    if row.value.count == 0 && (row.sampled_spin.is_some() || row.parked.is_some()) { Cell::Missing } else { cell }
}

/// Of the waits that were counted, without what samples met beside them.
fn mean_ns(row: &Row) -> u64 {
    let spun_ns = row.sampled_spin.as_ref().map_or(0, |spun| spun.added_ns);
    let added_ns = spun_ns.saturating_add(row.parked.as_ref().map_or(0, |parked| parked.total_ns));
    Value { total_ns: row.value.total_ns.saturating_sub(added_ns), ..row.value }.mean_ns()
}

/// How much of the time a lock was held; several readers, or several locks of one name, add up.
fn utilization<'a>(row: &'a Row, whole: &Whole) -> Cell<'a> {
    match row.happened {
        Happened::Hold | Happened::ContendedHold if whole.metered_ns(row) > 0 => {
            Cell::Millionths(ratio(row.value.total_ns, MILLION, whole.metered_ns(row)))
        }
        _ => Cell::Missing,
    }
}

/// Of all waited time. lockmeter's own waits are not part of it, nor are holds.
fn share<'a>(row: &'a Row, whole: &Whole) -> Cell<'a> {
    if row.own || row.happened != Happened::Wait || whole.waits.total_ns == 0 {
        return Cell::Missing;
    }
    Cell::Millionths(ratio(row.value.total_ns, MILLION, whole.waits.total_ns))
}

/// Less than one part in this many of the waited time is not worth a column.
const SMALLEST_RUN_DELAY: u64 = 20;

fn has_run_delay(row: &Row) -> bool {
    row.run_delay_ns.is_some_and(|delay_ns| delay_ns.saturating_mul(SMALLEST_RUN_DELAY) >= row.value.total_ns.max(1))
}

/// One wait is the time of several blockers and roots, and counts for the one with most of it: of their rows, time by count is no mean.
fn is_of_parts(row: &Row) -> bool {
    row.blocker.is_some() || row.root.is_some()
}

fn per_second<'a>(row: &'a Row, whole: &Whole) -> Cell<'a> {
    match whole.metered_ns(row) {
        0 => Cell::Missing,
        metered_ns => of_counted(row, Cell::Thousandths(ratio(row.value.count, 1000 * 1_000_000_000, metered_ns))),
    }
}

/// The columns of a report that is grouped like this.
pub fn columns(by: &[Dimension]) -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().filter(move |column| column.belongs_to(by))
}

/// What rows are sorted by: a column that the report has.
#[derive(Debug, Clone, Copy)]
pub struct SortKey(&'static Column);

impl SortKey {
    /// The column with this key, or with this heading in any case (`p99`), in a report grouped by `by`.
    pub fn parse(key: &str, by: &[Dimension]) -> Result<Self, UnknownSortKey> {
        sort_column(columns(by), key).map(Self)
    }

    /// Sorts the rows: measures from the largest, names from A to Z, rows that say nothing last. Equal rows stay in order.
    pub fn apply(self, report: &mut Report) {
        let whole = Whole::from(&*report);
        report.rows.sort_by(|a, b| order(self.0.cell(a, &whole), self.0.cell(b, &whole)));
    }
}

/// Of these columns the one with this key, or with this heading in any case.
pub(crate) fn sort_column<R, W>(
    columns: impl Iterator<Item = &'static Column<R, W>>,
    key: &str,
) -> Result<&'static Column<R, W>, UnknownSortKey> {
    let sortable: Vec<&Column<R, W>> = columns.filter(|column| column.is_sortable()).collect();
    let headed = |column: &&&Column<R, W>| {
        let mut headings = [column.heading, column.heading_of_holds].into_iter().flatten();
        headings.any(|heading| heading.eq_ignore_ascii_case(key))
    };
    let found = sortable.iter().find(|column| column.key == key).or_else(|| sortable.iter().find(headed));
    found.copied().ok_or_else(|| UnknownSortKey::new(key, sortable.iter().map(|column| column.key).collect()))
}

pub(crate) fn order(a: Cell<'_>, b: Cell<'_>) -> Ordering {
    use Cell::{
        Address, Count, Flag, Frames, Id, Millionths, Missing, Name, Nanoseconds, SignedNanoseconds, Thousandths,
    };
    match (a, b) {
        (Missing, Missing) => Ordering::Equal,
        (Missing, _) => Ordering::Greater,
        (_, Missing) => Ordering::Less,
        (Count(a), Count(b))
        | (Nanoseconds(a), Nanoseconds(b))
        | (Millionths(a), Millionths(b))
        | (Thousandths(a), Thousandths(b)) => b.cmp(&a),
        (SignedNanoseconds(a), SignedNanoseconds(b)) => b.cmp(&a),
        (Flag(a), Flag(b)) => b.cmp(&a),
        (Name(a), Name(b)) => a.cmp(b),
        (Id(a), Id(b)) => a.cmp(&b),
        (Address(a), Address(b)) => a.cmp(&b),
        (Frames(a), Frames(b)) => a.cmp(b),
        _ => Ordering::Equal,
    }
}

/// Sorts a report's rows by the column with this key.
pub fn sort(report: &mut Report, key: &str) -> Result<(), UnknownSortKey> {
    SortKey::parse(key, &report.by)?.apply(report);
    Ok(())
}

/// There is no such column in this report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownSortKey {
    /// What was asked for.
    pub key: String,
    /// The key most like it, where one is like it at all.
    pub nearest: Option<&'static str>,
    /// All keys that this report can be sorted by.
    pub keys: Vec<&'static str>,
}

impl UnknownSortKey {
    pub(crate) fn new(key: &str, keys: Vec<&'static str>) -> Self {
        // Half of the key may be wrong; beyond that a suggestion is a guess.
        let worst_distance = key.chars().count().div_ceil(2);
        let starts = |candidate: &str| key.len() >= 3 && candidate.starts_with(key);
        let distance = |candidate: &str| if starts(candidate) { 0 } else { edit_distance(key, candidate) };
        let nearest = keys.iter().copied().min_by_key(|candidate| distance(candidate));
        Self { key: key.to_owned(), nearest: nearest.filter(|nearest| distance(nearest) <= worst_distance), keys }
    }
}

impl fmt::Display for UnknownSortKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this report cannot be sorted by `{}`", self.key)?;
        write!(f, ", only by {}", self.keys.join(", "))?;
        match self.nearest {
            Some(nearest) => write!(f, "; did you mean `{nearest}`?"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UnknownSortKey {}

/// Levenshtein's distance.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut distances: Vec<usize> = (0..=b.len()).collect();
    for (row, from) in a.chars().enumerate() {
        let mut diagonal = distances[0];
        distances[0] = row + 1;
        for (column, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = distances[column + 1];
            distances[column + 1] = substituted.min(diagonal + 1).min(distances[column] + 1);
        }
    }
    distances[b.len()]
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::{BlockerSource, Loss, Swap};

    use super::*;

    #[test]
    fn no_two_columns_share_a_key_or_a_heading() {
        let mut keys: Vec<_> = COLUMNS.iter().map(|column| column.key).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), COLUMNS.len());
        let mut headings: Vec<_> = COLUMNS.iter().filter_map(|column| column.heading).collect();
        let all = headings.len();
        headings.sort_unstable();
        headings.dedup();
        assert_eq!(headings.len(), all);
    }

    #[test]
    fn every_column_and_name_is_documented_in_the_json_contract() {
        let contract = include_str!("../../../docs/reference/json.md");
        let columns = COLUMNS.iter().map(|column| column.key);
        let of_diffs = crate::diff::COLUMNS.iter().map(|column| column.key);
        let losses = Loss::ALL.iter().map(|loss| loss.name());
        let sources = BlockerSource::ALL.iter().map(|source| source.name());
        let swaps = Swap::ALL.iter().map(|swap| swap.name());
        for name in columns.chain(losses).chain(sources).chain(swaps) {
            assert!(contract.contains(&format!("| `{name}` |")), "docs/reference/json.md does not explain {name}");
        }
        for name in of_diffs.chain(Kind::ALL.iter().map(|kind| kind.name())) {
            assert!(contract.contains(&format!("`{name}`")), "docs/reference/json.md does not explain {name}");
        }
    }

    #[test]
    fn an_unknown_sort_key_names_the_nearest_and_all_others() {
        let error = SortKey::parse("totl_ns", &[Dimension::Lock]).unwrap_err();
        assert_eq!(error.nearest, Some("total_ns"));
        let sentence = error.to_string();
        assert!(
            sentence.starts_with("this report cannot be sorted by `totl_ns`, only by ")
                && sentence.ends_with("; did you mean `total_ns`?"),
            "{sentence}"
        );
        assert!(sentence.contains("kind, mode, lock"), "{sentence}");
        assert!(!sentence.contains("caller"), "a report by lock has no callers: {sentence}");
        assert_eq!(SortKey::parse("zzzzzzzz", &[]).unwrap_err().nearest, None);
    }

    #[test]
    fn a_heading_is_as_good_a_sort_key_as_a_name() {
        assert_eq!(SortKey::parse("p99", &[]).unwrap().0.key, "p99_ns");
        assert_eq!(SortKey::parse("Waited", &[]).unwrap().0.key, "total_ns");
    }
}
