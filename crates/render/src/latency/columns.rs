//! What a row says of what ran: the one list that tables, JSON, CSV and `--sort` follow.

use lockmeter_profile::latency::{LatencyReport, LatencyRow};
use lockmeter_profile::{Kind, Naming, Value};

use crate::columns::{Cell, Column, Unit, UnknownSortKey, order, sort_column};
use crate::units::{MILLION, ratio};

/// What shares and rates are taken of.
#[derive(Debug, Clone, Copy)]
pub struct LatencyWhole {
    /// The report's duration.
    pub duration_ns: u64,
    /// CPUs of the machine.
    pub cpus: u32,
}

impl From<&LatencyReport> for LatencyWhole {
    fn from(report: &LatencyReport) -> Self {
        Self { duration_ns: report.duration_ns, cpus: report.about.cpus }
    }
}

type RunColumn = Column<LatencyRow, LatencyWhole>;

/// Every column there is, in the order of the exports; tables put the measures first.
#[rustfmt::skip]
pub const COLUMNS: &[RunColumn] = &[
    RunColumn::new("kind", Unit::Name, |row, _| Cell::Name(row.kind.name())).headed("KIND"),
    RunColumn::new("name", Unit::Name, |row, _| Cell::Name(&row.name)).headed("NAME"),
    RunColumn::new("detail", Unit::Name, |row, _| some(&row.detail)).headed("HANDLER, MODULE").expendable(1),
    RunColumn::new("naming", Unit::Name, |row, _| Cell::Name(naming(row.naming))),
    RunColumn::new("max_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.runs.max_ns)).headed("MAX"),
    RunColumn::new("p99_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.p99_ns)).headed("P99").expendable(5),
    RunColumn::new("p50_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.p50_ns)).headed("P50").expendable(2),
    RunColumn::new("mean_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.runs.mean_ns())).headed("MEAN").expendable(4),
    RunColumn::new("count", Unit::Count, |row, _| Cell::Count(row.runs.count)).headed("RUNS"),
    RunColumn::new("per_second", Unit::Decimal, |row, whole| match whole.duration_ns {
        0 => Cell::Missing,
        duration_ns => Cell::Thousandths(ratio(row.runs.count, 1000 * 1_000_000_000, duration_ns)),
    }).headed("PER S").expendable(3),
    RunColumn::new("timed", Unit::Count, |row, _| Cell::Count(row.timed)),
    RunColumn::new("total_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.runs.total_ns)).headed("TOTAL"),
    RunColumn::new("own_ns", Unit::Nanoseconds, |row, _| of_timed(row, row.runs.spin_ns)),
    RunColumn::new("cpu_ppm", Unit::Millionths, |row, whole| match row.timed {
        0 => Cell::Missing,
        _ => share_of_machine(row.runs.spin_ns, whole),
    }).headed("CPU %"),
    RunColumn::new("asleep_ns", Unit::Nanoseconds, |row, _| match row.kind {
        Kind::Work => Cell::Nanoseconds(row.asleep.total_ns),
        _ => Cell::Missing,
    }).headed("ASLEEP"),
    RunColumn::new("asleep_count", Unit::Count, |row, _| match row.kind {
        Kind::Work => Cell::Count(row.asleep.count),
        _ => Cell::Missing,
    }),
    RunColumn::new("delay_count", Unit::Count, |row, _| Cell::Count(row.delays.count)),
    RunColumn::new("delay_total_ns", Unit::Nanoseconds, |row, _| of(&row.delays, row.delays.total_ns)),
    RunColumn::new("delay_mean_ns", Unit::Nanoseconds, |row, _| of(&row.delays, row.delays.mean_ns()))
        .headed("DELAY").expendable(6),
    RunColumn::new("delay_p99_ns", Unit::Nanoseconds, |row, _| of(&row.delays, row.delay_p99_ns))
        .headed("DELAY P99").expendable(0),
    RunColumn::new("delay_max_ns", Unit::Nanoseconds, |row, _| of(&row.delays, row.delays.max_ns)).headed("DELAY MAX").expendable(7),
    RunColumn::new("histogram", Unit::Histogram, |row, _| Cell::Histogram(&row.histogram)),
    RunColumn::new("delay_histogram", Unit::Histogram, |row, _| Cell::Histogram(&row.delay_histogram)),
];

const fn naming(naming: Naming) -> &'static str {
    naming.name()
}

fn some(text: &str) -> Cell<'_> {
    if text.is_empty() { Cell::Missing } else { Cell::Name(text) }
}

/// Nothing is known of what never happened.
const fn of<'a>(value: &Value, duration_ns: u64) -> Cell<'a> {
    if value.count == 0 { Cell::Missing } else { Cell::Nanoseconds(duration_ns) }
}

/// Nor of what was counted and never timed.
const fn of_timed<'a>(row: &LatencyRow, duration_ns: u64) -> Cell<'a> {
    if row.timed == 0 { Cell::Missing } else { Cell::Nanoseconds(duration_ns) }
}

/// Of all CPUs' time.
pub(super) fn share_of_machine<'a>(own_ns: u64, whole: &LatencyWhole) -> Cell<'a> {
    match whole.duration_ns.saturating_mul(whole.cpus.into()) {
        0 => Cell::Missing,
        machine_ns => Cell::Millionths(ratio(own_ns, MILLION, machine_ns)),
    }
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy)]
pub struct LatencySortKey(&'static RunColumn);

impl LatencySortKey {
    /// The column with this key, or with this heading in any case (`p99`).
    pub fn parse(key: &str) -> Result<Self, UnknownSortKey> {
        sort_column(COLUMNS.iter(), key).map(Self)
    }

    /// Sorts the rows: measures from the largest, names from A to Z, rows that say nothing last.
    pub fn apply(self, report: &mut LatencyReport) {
        let whole = LatencyWhole::from(&*report);
        report.rows.sort_by(|a, b| order(self.0.cell(a, &whole), self.0.cell(b, &whole)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_is_documented_in_the_json_contract() {
        let contract = include_str!("../../../../docs/reference/json.md");
        let long_runs = super::super::long_runs::COLUMNS.iter().map(|column| column.key);
        for key in COLUMNS.iter().map(|column| column.key).chain(long_runs) {
            assert!(contract.contains(&format!("`{key}`")), "docs/reference/json.md does not explain {key}");
        }
    }

    #[test]
    fn no_two_columns_share_a_key_or_a_heading() {
        let mut names: Vec<_> =
            COLUMNS.iter().flat_map(|column| [Some(column.key), column.heading]).flatten().collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
