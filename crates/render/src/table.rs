//! Tables for people: the head line, the rows, and what they rest on.

use std::borrow::Cow;
use std::io;

use lockmeter_profile::{Happened, Report, Row};

use crate::columns::{Cell, Column, INFERRED_MARK, Unit, Whole, columns, is_inferred};
use crate::escape::{Form, escaped};
use crate::grid::{Grid, GridColumn, GridRow, Line, cut_end, wrap};
use crate::headline::Headline;
use crate::stacks::chain;
use crate::terminal::{Colour, Weight};
use crate::units::{MILLION, change, count, counted, duration, moment, percent, ratio, share, thousandths};
use crate::{Exporter, foot, slow_holds, threads};

/// Single holds that a table shows; JSON has more.
const SLOW_HOLDS: usize = 5;

/// Rows of waits that are shown however small they are.
const LEAST_ROWS: usize = 3;

/// Rows below this share of the waited time may be folded, in millionths.
const SMALL_PPM: u64 = 10_000;

/// Frames of a stack that a table shows unless told otherwise: past the fourth, most are the way into the kernel.
pub const DEFAULT_FRAMES: usize = 4;

/// A report as a table. Without a width it depends on nothing but the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Table {
    /// Width of the terminal; `None` lets every line be as long as it is.
    pub width: Option<u16>,
    /// Whether to set headings and warnings apart.
    pub colour: Colour,
    /// Show this many rows, and the rest as one line.
    pub limit: Option<usize>,
    /// Count rows of waits that are less than a hundredth of all with the rest, past the first few.
    pub folds_small: bool,
    /// Show this many frames of a stack; with 0, no stacks.
    pub frames: usize,
}

/// Rows of a table as lines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LaidOut {
    /// The headings of the columns.
    pub heading: String,
    /// Each row, and the lines that belong below it.
    pub rows: Vec<(String, Vec<String>)>,
    /// Headings of the columns for which there was no room.
    pub left_out: Vec<String>,
}

impl Default for Table {
    fn default() -> Self {
        Self { width: None, colour: Colour::Never, limit: None, folds_small: false, frames: DEFAULT_FRAMES }
    }
}

impl Exporter for Table {
    fn form(&self) -> Form {
        self.colour.form()
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        let budget = report.threads.as_ref().and_then(|activity| threads::budget(report, activity));
        for sentence in head_sentences(report).into_iter().chain(budget.map(|budget| sentence(&budget))) {
            self.paragraph(&sentence, Weight::Bold, out)?;
        }
        self.paragraph(&about(report), Weight::Dim, out)?;
        writeln!(out)?;
        self.threads(report, out)?;
        let of = |wanted: fn(Happened) -> bool| {
            report.rows.iter().filter(move |row| wanted(row.happened)).collect::<Vec<_>>()
        };
        let apart = [Happened::Hold, Happened::ContendedHold, Happened::TimedOut, Happened::Failed];
        let waits: Vec<&Row> = report.rows.iter().filter(|row| !apart.contains(&row.happened)).collect();
        self.section(report, &waits, Column::heading, out)?;
        self.timed_out(report, &of(|happened| happened == Happened::TimedOut), out)?;
        self.section(report, &of(|happened| happened == Happened::Hold), Column::heading_of_holds, out)?;
        self.contended_holds(report, &of(|happened| happened == Happened::ContendedHold), out)?;
        self.failed(&of(|happened| happened == Happened::Failed), out)?;
        for (line, weight) in foot::lines(report) {
            self.paragraph(&line, weight, out)?;
        }
        Ok(())
    }
}

impl Table {
    /// Writes one line of text, broken into several where there is a width. Names in it are escaped here, line breaks included.
    pub(crate) fn paragraph(&self, text: &str, weight: Weight, out: &mut dyn io::Write) -> io::Result<()> {
        let text = escaped(text);
        let lines = match self.width {
            Some(width) => wrap(&text, width.into(), 4),
            None => vec![text.into_owned()],
        };
        for line in lines {
            writeln!(out, "{}", self.colour.paint(&line, weight))?;
        }
        Ok(())
    }

    /// Writes a grid, made to fit where there is a width. Names in it are escaped here, line breaks included.
    pub(crate) fn grid(&self, mut grid: Grid, out: &mut dyn io::Write) -> io::Result<()> {
        let left_out = self.fit(&mut grid);
        for line in grid.lines() {
            let (line, weight) = match &line {
                Line::Heading(line) => (line, Weight::Bold),
                Line::Cells(line) => (line, Weight::Plain),
                Line::Below(line) => (line, Weight::Dim),
            };
            let line = self.width.map_or_else(|| line.clone(), |width| cut_end(line, width.into()));
            writeln!(out, "{}", self.colour.paint(&line, weight))?;
        }
        if !left_out.is_empty() {
            let left_out = format!("left out at this width: {}", left_out.join(", "));
            self.paragraph(&left_out, Weight::Dim, out)?;
        }
        Ok(())
    }

    /// Escapes the names in a grid and makes it fit where there is a width. Returns the headings of what was left out.
    fn fit(&self, grid: &mut Grid) -> Vec<String> {
        for row in &mut grid.rows {
            if row.cells.iter().any(|text| matches!(escaped(text), Cow::Owned(_))) {
                row.cells = row.cells.iter().map(|text| escaped(text).into_owned()).collect();
            }
            for text in &mut row.below {
                if let Cow::Owned(escaped) = escaped(text) {
                    *text = escaped;
                }
            }
        }
        self.width.map(|width| grid.fit(width.into())).unwrap_or_default()
    }

    /// These rows of a report, all of which say that the same happened, as lines that fit the width: for a screen that has its own
    /// place for each of them.
    pub fn laid_out(&self, report: &Report, rows: &[&Row]) -> LaidOut {
        let heading = match rows.first().map(|row| row.happened) {
            Some(Happened::Hold) => Column::heading_of_holds,
            Some(Happened::ContendedHold) => Column::heading_of_contended_holds,
            _ => Column::heading,
        };
        let columns: Vec<&Column> = columns(&report.by).collect();
        let mut grid = self.layout(&columns, rows, &Whole::from(report), heading);
        let left_out = self.fit(&mut grid);
        let mut laid_out = LaidOut { heading: String::new(), rows: Vec::with_capacity(rows.len()), left_out };
        for line in grid.lines() {
            match line {
                Line::Heading(line) => laid_out.heading = line,
                Line::Cells(line) => laid_out.rows.push((line, Vec::new())),
                Line::Below(line) => laid_out.rows.last_mut().expect("a row stands above").1.push(line),
            }
        }
        laid_out
    }

    /// Where the threads' time went, and who waits still.
    fn threads(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        let Some(activity) = &report.threads else { return Ok(()) };
        for (heading, waits) in threads::waits_without_end(activity, self.frames) {
            self.paragraph(&format!("{heading}:"), Weight::Bold, out)?;
            for line in waits {
                self.paragraph(&line, Weight::Plain, out)?;
            }
            writeln!(out)?;
        }
        if let Some(places) = threads::sleep_sites(activity, self.frames) {
            self.paragraph("where threads were blocked, without threads at rest:", Weight::Dim, out)?;
            self.grid(places, out)?;
            writeln!(out)?;
        }
        if let Some(places) = threads::spin_sites(activity, self.frames) {
            self.paragraph("where threads spun, by samples of what CPUs ran:", Weight::Dim, out)?;
            self.grid(places, out)?;
            writeln!(out)?;
        }
        Ok(())
    }

    /// Not holds: what of them came before the first waiter is not known.
    fn contended_holds(&self, report: &Report, rows: &[&Row], out: &mut dyn io::Write) -> io::Result<()> {
        if !rows.is_empty() {
            let what = "the contended part of holds: from when a thread slept for the lock, or from the handoff, to the release that woke a thread:";
            self.paragraph(what, Weight::Dim, out)?;
        }
        self.section(report, rows, Column::heading_of_contended_holds, out)?;
        self.slow_holds(report, out)
    }

    /// The longest single holds, each with what its holder did and waited for.
    fn slow_holds(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        if report.slow_holds.is_empty() {
            return Ok(());
        }
        self.paragraph("the longest of these, and what the holder did during them:", Weight::Dim, out)?;
        for hold in report.slow_holds.iter().take(SLOW_HOLDS) {
            for line in slow_holds::lines(hold, self.frames) {
                self.paragraph(&line, Weight::Plain, out)?;
            }
        }
        writeln!(out)
    }

    fn timed_out(&self, report: &Report, rows: &[&Row], out: &mut dyn io::Write) -> io::Result<()> {
        if !rows.is_empty() {
            self.paragraph("waits that timed out without getting the lock:", Weight::Dim, out)?;
        }
        self.section(report, rows, Column::heading, out)
    }

    /// Tries have no duration, so one line says it all.
    fn failed(&self, rows: &[&Row], out: &mut dyn io::Write) -> io::Result<()> {
        let tries: u64 = rows.iter().map(|row| row.value.count).fold(0, u64::saturating_add);
        if tries == 0 {
            return Ok(());
        }
        let tries = counted(tries, "try", "tries");
        self.paragraph(
            &format!("{tries} to get a lock failed at once or were killed (mmap_lock only)"),
            Weight::Plain,
            out,
        )?;
        writeln!(out)
    }

    /// Waits and holds are measured in different columns, so each have a table of their own.
    fn section(
        &self,
        report: &Report,
        rows: &[&Row],
        heading: fn(&Column) -> &'static str,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let wanted = self.limit.unwrap_or(usize::MAX).min(self.large(report, rows));
        let (shown, rest) = rows.split_at(rows.len().min(wanted));
        let columns: Vec<&Column> = columns(&report.by).collect();
        self.grid(self.layout(&columns, shown, &Whole::from(report), heading), out)?;
        self.hidden_rows(report, rest, out)?;
        if shown.iter().any(|row| row.naming.is_some_and(is_inferred)) {
            let legend = "the name is inferred, from the allocation's size or the functions on the stacks";
            self.paragraph(&format!("{INFERRED_MARK} {legend}"), Weight::Dim, out)?;
        }
        writeln!(out)
    }

    /// How many of the rows, in their order, are worth showing.
    fn large(&self, report: &Report, rows: &[&Row]) -> usize {
        let is_large = |row: &&Row| {
            let is_wait = matches!(row.happened, Happened::Wait);
            !is_wait || ratio(row.value.total_ns, MILLION, report.waits.total_ns) >= SMALL_PPM
        };
        match rows.iter().rposition(is_large) {
            _ if !self.folds_small => rows.len(),
            last => last.map_or(0, |last| last + 1).max(LEAST_ROWS),
        }
    }

    /// Puts rows into columns, measures first; stacks go below their rows.
    pub(crate) fn layout<R, W>(
        &self,
        columns: &[&Column<R, W>],
        rows: &[&R],
        whole: &W,
        heading: fn(&Column<R, W>) -> &'static str,
    ) -> Grid {
        let all: Vec<_> = columns.iter().copied().filter(|column| column.says_something(rows, whole)).collect();
        let of = |wanted: fn(Unit) -> bool| all.iter().copied().filter(move |column| wanted(column.unit));
        let mut stacks: Vec<_> = of(|unit| unit == Unit::Frames).filter(|_| self.frames > 0).collect();
        let mut in_row: Vec<_> = of(Unit::is_measure).collect();
        let names: Vec<_> = of(|unit| !unit.is_measure() && unit != Unit::Frames).collect();
        // A row that has no other name is named by its stack.
        if names.is_empty() && !stacks.is_empty() {
            in_row.push(stacks.remove(0));
        }
        in_row.extend(names);
        let below =
            |column: &Column<R, W>, row: &R| format!("      {:<7}  {}", column.key, self.cell(column, row, whole));
        let row = |row: &R| GridRow {
            cells: in_row.iter().map(|column| self.cell(column, row, whole)).collect(),
            below: stacks.iter().map(|column| below(column, row)).collect(),
        };
        Grid {
            columns: in_row.iter().map(|column| grid_column(column, heading(column))).collect(),
            rows: rows.iter().map(|measured| row(measured)).collect(),
        }
    }

    fn cell<R, W>(&self, column: &Column<R, W>, row: &R, whole: &W) -> String {
        let cell = column.cell(row, whole);
        let text = column.words(row, self.frames).filter(|_| cell != Cell::Missing);
        text.unwrap_or_else(|| cell_text(cell))
    }

    /// One line for the rows that are not shown.
    fn hidden_rows(&self, report: &Report, rest: &[&Row], out: &mut dyn io::Write) -> io::Result<()> {
        let Some(first) = rest.first() else { return Ok(()) };
        if matches!(first.happened, Happened::Hold | Happened::ContendedHold) {
            let rows = counted(rest.len() as u64, "more row", "more rows");
            return self.paragraph(&format!("… and {rows} of holds"), Weight::Plain, out);
        }
        let waited_ns = rest.iter().filter(|row| !row.own).map(|row| row.value.total_ns).fold(0, u64::saturating_add);
        let share = share(ratio(waited_ns, MILLION, report.waits.total_ns));
        let rows = counted(rest.len() as u64, "more row", "more rows");
        self.paragraph(&format!("… and {rows}, {share} of the waited time"), Weight::Plain, out)
    }
}

fn grid_column<R, W>(column: &Column<R, W>, heading: &str) -> GridColumn {
    GridColumn {
        heading: heading.to_owned(),
        right: column.unit.aligns_right(),
        expendable: column.expendable,
        may_be_cut: matches!(column.unit, Unit::Name | Unit::Frames),
    }
}

fn cell_text(cell: Cell<'_>) -> String {
    match cell {
        Cell::Missing => "-".to_owned(),
        Cell::Flag(true) => "yes".to_owned(),
        Cell::Flag(false) | Cell::Histogram(_) => String::new(),
        Cell::Count(number) => count(number),
        Cell::Nanoseconds(duration_ns) => duration(duration_ns),
        Cell::SignedNanoseconds(change_ns) => change(change_ns),
        Cell::Millionths(ppm) => percent(ppm),
        Cell::Thousandths(number) => thousandths(number),
        Cell::Name(name) => name.to_owned(),
        Cell::Id(id) => id.to_string(),
        Cell::Address(address) => format!("{address:#018x}"),
        Cell::Frames(frames) => chain(frames, frames.len()),
    }
}

/// What a reader must know first, a sentence each: deadlocks and long waits, what the table does not have, and what waiting cost.
pub fn head_sentences(report: &Report) -> Vec<String> {
    let all = threads::alarms(report).chain([Headline::of(report).to_string()]);
    all.map(|text| sentence(&text)).collect()
}

/// `text` with a capital and a full stop, as it stands alone.
pub(crate) fn sentence(text: &str) -> String {
    format!("{}.", capitalized(text))
}

pub(crate) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(char::to_uppercase);
    first.into_iter().flatten().chain(letters).collect()
}

/// What was recorded, where, when, and how the rows are grouped.
pub(crate) fn about(report: &Report) -> String {
    let about = &report.about;
    let by: Vec<&str> = report.by.iter().map(|by| by.name()).collect();
    let reason = match about.reason.as_str() {
        "" => String::new(),
        reason => format!("; recorded because of {reason}"),
    };
    let scope = match about.scope.as_str() {
        "" => "an unknown scope",
        "whole machine" => "the whole machine",
        scope => scope,
    };
    format!(
        "{} of {} from {}, {}, Linux {}, lockmeter {}{reason}; by {}",
        duration(report.duration_ns),
        scope,
        moment(report.start_unix_ns),
        counted(u64::from(about.cpus), "CPU", "CPUs"),
        about.kernel_release,
        about.lockmeter_version,
        by.join(", ")
    )
}
