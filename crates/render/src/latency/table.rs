//! Tables for people: the head line, what keeps the CPU, work items, long runs, and what they rest on.

use std::io;

use lockmeter_profile::latency::{LatencyReport, LatencyRow, LongRunRow};

use super::columns::{COLUMNS, LatencyWhole};
use super::headline::LatencyHeadline;
use super::{histogram, long_runs};
use crate::columns::Column;
use crate::escape::Form;
use crate::table::sentence;
use crate::terminal::Weight;
use crate::units::{MILLION, count, counted, duration, moment, ratio, share};
use crate::{Exporter, FootLine, Table, foot};

/// What ran, as tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyTable {
    /// Width, colour and limit.
    pub table: Table,
    /// Whether to draw each row's histograms below it.
    pub histograms: bool,
}

impl Exporter<LatencyReport> for LatencyTable {
    fn form(&self) -> Form {
        self.table.colour.form()
    }

    fn export(&self, report: &LatencyReport, out: &mut dyn io::Write) -> io::Result<()> {
        self.table.paragraph(&sentence(&LatencyHeadline::of(report).to_string()), Weight::Bold, out)?;
        self.table.paragraph(&about(report), Weight::Dim, out)?;
        writeln!(out)?;
        let (keeping, items): (Vec<&LatencyRow>, Vec<&LatencyRow>) =
            report.rows.iter().partition(|row| row.keeps_the_cpu());
        self.section(report, &keeping, out)?;
        self.section(report, &items, out)?;
        self.long_runs(report, out)?;
        foot(report).iter().try_for_each(|(line, weight)| self.table.paragraph(line, *weight, out))
    }
}

impl LatencyTable {
    fn section(&self, report: &LatencyReport, rows: &[&LatencyRow], out: &mut dyn io::Write) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let (shown, rest) = rows.split_at(rows.len().min(self.table.limit.unwrap_or(usize::MAX)));
        let columns: Vec<_> = COLUMNS.iter().collect();
        let mut grid = self.table.layout(&columns, shown, &LatencyWhole::from(report), Column::heading);
        if self.histograms {
            for (laid_out, row) in grid.rows.iter_mut().zip(shown) {
                laid_out.below = histogram::lines("runs", &row.histogram);
                laid_out.below.extend(histogram::lines("delay", &row.delay_histogram));
            }
        }
        self.table.grid(grid, out)?;
        self.hidden_rows(report, rest, out)?;
        writeln!(out)
    }

    /// One line for the rows that are not shown.
    fn hidden_rows(&self, report: &LatencyReport, rest: &[&LatencyRow], out: &mut dyn io::Write) -> io::Result<()> {
        if rest.is_empty() {
            return Ok(());
        }
        let own_ns = rest.iter().map(|row| row.runs.spin_ns).fold(0, u64::saturating_add);
        let share = share(ratio(own_ns, MILLION, report.own_ns()));
        let rows = counted(rest.len() as u64, "more row", "more rows");
        self.table.paragraph(&format!("… and {rows}, {share} of the time of all"), Weight::Plain, out)
    }

    fn long_runs(&self, report: &LatencyReport, out: &mut dyn io::Write) -> io::Result<()> {
        if report.long_runs.is_empty() {
            return Ok(());
        }
        // The longest, in the order of time.
        let mut shown: Vec<&LongRunRow> = report.long_runs.iter().collect();
        let limit = self.table.limit.unwrap_or(usize::MAX);
        shown.sort_by_key(|run| std::cmp::Reverse(run.run_ns));
        let left_out = shown.split_off(shown.len().min(limit));
        shown.sort_by_key(|run| run.begin_unix_ns);
        let columns: Vec<_> = long_runs::COLUMNS.iter().collect();
        let mut grid = self.table.layout(&columns, &shown, &(), Column::heading);
        for (row, run) in grid.rows.iter_mut().zip(&shown) {
            row.below = long_runs::waits(run);
        }
        self.table.grid(grid, out)?;
        if !left_out.is_empty() {
            let runs = counted(left_out.len() as u64, "shorter long run", "shorter long runs");
            self.table.paragraph(&format!("… and {runs}"), Weight::Plain, out)?;
        }
        writeln!(out)
    }
}

/// What stands under the tables: what was lost, what they rest on, what it cost.
pub fn foot(report: &LatencyReport) -> Vec<FootLine> {
    let mut lines = foot::lost(&report.losses);
    lines.extend(timed_in_windows(report).map(|line| (line, Weight::Plain)));
    lines.push((foot::cost_without_stacks(&report.overhead, report.duration_ns), Weight::Plain));
    lines
}

/// Which rows' times rest on less than all runs.
fn timed_in_windows(report: &LatencyReport) -> Option<String> {
    let rows: Vec<&LatencyRow> = report.rows.iter().filter(|row| row.timed < row.runs.count).collect();
    let most = rows.iter().max_by_key(|row| row.runs.count.saturating_sub(row.timed))?;
    let others = match rows.len() - 1 {
        0 => String::new(),
        others => format!(", and of {}", counted(others as u64, "more row", "more rows")),
    };
    Some(format!(
        "the times of {} {} are estimated from {} timed runs of {}{others}: very frequent ones are timed only part of the time, \
        and a longer run outside it is not seen (`latency --every` times all)",
        most.kind.name(),
        most.name,
        count(most.timed),
        count(most.runs.count),
    ))
}

/// What was recorded, where and when.
pub fn about(report: &LatencyReport) -> String {
    let about = &report.about;
    format!(
        "{} of the whole machine from {}, {}, Linux {}, lockmeter {}; the time of a run is without interrupts during it",
        duration(report.duration_ns),
        moment(report.start_unix_ns),
        counted(u64::from(about.cpus), "CPU", "CPUs"),
        about.kernel_release,
        about.lockmeter_version,
    )
}
