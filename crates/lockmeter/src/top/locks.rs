//! The view of locks: what is asked of the steps on the screen, and what they say. All numbers are those of [`ReportBuilder`], as
//! `lockmeter report` has them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use lockmeter_profile::merge::RowKey;
use lockmeter_profile::view::{NamePattern, Query, ReportBuilder, TaskPattern};
use lockmeter_profile::{About, Dimension, Happened, Limits, Losses, OpenWaitRow, Report, Row, TooLarge};
use lockmeter_render::SortKey;
use lockmeter_render::columns::{Column, Unit, columns};

use super::layout::Pane;
use crate::history::Step;

/// The column that rows are sorted by unless told otherwise, or where the chosen one is not there.
pub const DEFAULT_SORT: &str = "total_ns";

/// Steps that a sparkline shows at most, and so those of which the rows are kept.
pub const MOST_SPARKS: usize = 40;

/// Reports of a file that are held together: the rows, one for each pane of stacks, and one of a step for the sparklines.
const REPORTS: usize = 5;

/// Which rows are listed: those of one kind have the same columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Waits,
    TimedOut,
    Holds,
    ContendedHolds,
}

impl Section {
    const ALL: [Self; 4] = [Self::Waits, Self::TimedOut, Self::Holds, Self::ContendedHolds];

    pub const fn title(self) -> &'static str {
        match self {
            Self::Waits => "waits",
            Self::TimedOut => "waits that timed out",
            Self::Holds => "holds",
            Self::ContendedHolds => "contended part of holds",
        }
    }

    /// Tries that failed have no duration: the fine print counts them.
    fn of(happened: Happened) -> Option<Self> {
        match happened {
            Happened::Hold => Some(Self::Holds),
            Happened::ContendedHold => Some(Self::ContendedHolds),
            Happened::TimedOut => Some(Self::TimedOut),
            Happened::Failed => None,
            _ => Some(Self::Waits),
        }
    }
}

/// What a report is made of.
pub struct Window<'a> {
    pub about: &'a About,
    pub steps: Vec<Arc<Step>>,
    /// Losses that no interval knows of: those of the file.
    pub losses: &'a Losses,
    /// Those of a file, which may be anybody's.
    pub limits: Limits,
}

impl Window<'_> {
    fn report(&self, query: &Query) -> Result<Report, TooLarge> {
        self.build(ReportBuilder::new(self.about, query))
    }

    /// Its rows alone.
    fn rows(&self, query: &Query) -> Result<Report, TooLarge> {
        self.build(ReportBuilder::of_rows(self.about, query))
    }

    fn build(&self, mut builder: ReportBuilder) -> Result<Report, TooLarge> {
        let limits = self.limits.shared_by(REPORTS);
        for interval in self.steps.iter().flat_map(|step| step.read()) {
            builder.add_within(&interval, &limits)?;
        }
        builder.add_losses(self.losses);
        builder.finish_within(&limits)
    }
}

/// Waited, or held, time of each row of a step, for a second of it.
type Rates = BTreeMap<RowKey, u64>;

pub struct LocksView {
    pub query: Query,
    /// The key of the column.
    sort: String,
    section: Section,
    /// `None` follows the first row.
    selected: Option<RowKey>,
    report: Option<Report>,
    details: HashMap<Pane, Report>,
    rates: BTreeMap<u64, Rates>,
}

impl LocksView {
    pub fn new(query: Query, sort: &str) -> Self {
        let section = Section::Waits;
        let (details, rates) = (HashMap::new(), BTreeMap::new());
        Self { query, sort: sort.to_owned(), section, selected: None, report: None, details, rates }
    }

    /// Other steps are to be shown.
    pub fn forget_reports(&mut self) {
        self.report = None;
        self.details.clear();
    }

    fn forget_everything(&mut self) {
        self.forget_reports();
        self.rates.clear();
    }

    pub fn group_by(&mut self, by: Vec<Dimension>) {
        self.query.by = by;
        self.selected = None;
        self.forget_everything();
    }

    pub fn filter(&mut self, pattern: &str) {
        self.query.lock = (!pattern.is_empty()).then(|| pattern.into());
        self.selected = None;
        self.forget_everything();
    }

    pub fn sort_by(&mut self, key: &str) {
        key.clone_into(&mut self.sort);
        self.forget_reports();
    }

    /// The key of the column that rows are sorted by.
    pub fn sort(&self) -> &str {
        match SortKey::parse(&self.sort, &self.query.by) {
            Ok(_) => &self.sort,
            Err(_) => DEFAULT_SORT,
        }
    }

    /// Keys and headings of the columns that rows can be sorted by.
    pub fn sort_columns(&self) -> Vec<(&'static str, &'static str)> {
        let is_shown = |column: &&Column| column.heading.is_some() && column.unit != Unit::Frames;
        columns(&self.query.by).filter(is_shown).map(|column| (column.key, column.heading())).collect()
    }

    /// Makes the reports that are not there yet: of all rows, and of what the panes show about the selected one.
    pub fn prepare(&mut self, window: &Window<'_>, panes: &[Pane]) -> Result<(), TooLarge> {
        if self.report.is_none() {
            let mut report = window.report(&self.query)?;
            if let Ok(sort) = SortKey::parse(self.sort(), &self.query.by) {
                sort.apply(&mut report);
            }
            // A step by itself needs no second reckoning.
            if let [step] = window.steps.as_slice() {
                self.rates.insert(step.number, rates(&report));
            }
            self.report = Some(report);
        }
        for pane in panes {
            if let Some(by) = pane.groups_by()
                && !self.details.contains_key(pane)
            {
                let report = window.rows(&self.detail_query(by))?;
                self.details.insert(*pane, report);
            }
        }
        Ok(())
    }

    /// What a pane asks about the selected row.
    fn detail_query(&self, by: Dimension) -> Query {
        let mut query = Query { by: vec![Dimension::Lock, by], ..self.query.clone() };
        let Some(row) = self.selected_row() else { return query };
        if let Some(lock) = &row.lock {
            query.lock = Some(NamePattern::exactly(lock));
        }
        if let Some(tgid) = row.task.as_ref().and_then(|task| task.tgid) {
            query.task = Some(TaskPattern::Tgid(tgid));
        }
        query.kind = row.kind.or(query.kind);
        query.mode = row.mode.or(query.mode);
        query
    }

    /// Waits for the selected row's lock that go on, in any mode; `None` where threads were not watched.
    pub fn waiting_now(&self) -> Option<Vec<&OpenWaitRow>> {
        let waits = &self.report()?.threads.as_ref()?.open_waits;
        let row = self.selected_row();
        let lock = row.and_then(|row| row.lock.as_ref());
        let tgid = row.and_then(|row| row.task.as_ref()?.tgid);
        let is_shown = |wait: &&OpenWaitRow| {
            lock.is_none_or(|lock| wait.lock == *lock) && tgid.is_none_or(|tgid| wait.task.tgid == Some(tgid))
        };
        Some(waits.iter().filter(is_shown).collect())
    }

    /// Of which rows the details speak, in words.
    pub fn details_of(&self) -> String {
        let Some(row) = self.selected_row() else { return "all locks".to_owned() };
        let lock = row.lock.as_deref().map(|lock| match row.mode {
            Some(mode) => format!("{lock} ({mode})"),
            None => lock.to_owned(),
        });
        let kind = || row.kind.map(|kind| format!("all {kind} locks"));
        let task = row.task.as_ref().and_then(|task| task.tgid).map(|tgid| format!(" in process {tgid}"));
        format!("{}{}", lock.or_else(kind).unwrap_or_else(|| "all locks".to_owned()), task.unwrap_or_default())
    }

    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    pub fn detail(&self, pane: Pane) -> Option<&Report> {
        self.details.get(&pane)
    }

    /// The rows of a detail pane that belong to the selected row.
    pub fn detail_rows(&self, pane: Pane) -> Vec<&Row> {
        let is_listed = |row: &&Row| Section::of(row.happened) == Some(self.section());
        self.detail(pane).map(|report| report.rows.iter().filter(is_listed).collect()).unwrap_or_default()
    }

    /// The sections that have rows now.
    fn sections(&self) -> Vec<Section> {
        let rows = self.report.iter().flat_map(|report| &report.rows);
        let present: Vec<Section> = rows.filter_map(|row| Section::of(row.happened)).collect();
        Section::ALL.into_iter().filter(|section| present.contains(section)).collect()
    }

    /// The section on the screen: another one where the chosen one has no rows and only others have.
    pub fn section(&self) -> Section {
        let present = self.sections();
        match present.first() {
            Some(first) if !present.contains(&self.section) => *first,
            _ => self.section,
        }
    }

    pub fn next_section(&mut self) -> Option<Section> {
        let present = self.sections();
        let at = present.iter().position(|section| *section == self.section()).map_or(0, |at| at + 1);
        self.section = *present.get(at % present.len().max(1))?;
        self.deselect();
        (present.len() > 1).then_some(self.section)
    }

    /// The rows that are listed, in their order.
    pub fn rows(&self) -> Vec<&Row> {
        let section = self.section();
        let rows = self.report.iter().flat_map(|report| &report.rows);
        rows.filter(|row| Section::of(row.happened) == Some(section)).collect()
    }

    fn key(&self, row: &Row) -> RowKey {
        RowKey::of(row, &self.query.by)
    }

    /// Where the selected row is among the rows; `None` if it is not there now.
    pub fn selected_at(&self) -> Option<usize> {
        let rows = self.rows();
        match &self.selected {
            None => (!rows.is_empty()).then_some(0),
            Some(selected) => rows.iter().position(|row| self.key(row) == *selected),
        }
    }

    pub fn selected_row(&self) -> Option<&Row> {
        self.selected_at().and_then(|at| self.rows().get(at).copied())
    }

    /// Whether a row was chosen that does not wait now.
    pub fn selected_is_gone(&self) -> bool {
        self.selected.is_some() && self.selected_at().is_none()
    }

    pub fn select(&mut self, at: usize) {
        if let Some(key) = self.rows().get(at).map(|row| self.key(row)) {
            self.selected = Some(key);
            self.details.clear();
        }
    }

    pub fn move_by(&mut self, rows: i64) {
        let last = self.rows().len().saturating_sub(1);
        let at = self.selected_at().unwrap_or(0) as i64;
        self.select(usize::try_from(at.saturating_add(rows)).unwrap_or(0).min(last));
    }

    pub fn deselect(&mut self) {
        self.selected = None;
        self.details.clear();
    }

    /// Of these steps, the newest of which the sparklines know nothing.
    pub fn missing_rates(&self, steps: &[Arc<Step>]) -> Option<Arc<Step>> {
        steps.iter().rev().find(|step| !self.rates.contains_key(&step.number)).cloned()
    }

    /// Reckons what the sparklines show of a step.
    pub fn add_rates(&mut self, window: &Window<'_>) -> Result<(), TooLarge> {
        let Some(number) = window.steps.first().map(|step| step.number) else { return Ok(()) };
        self.rates.insert(number, rates(&window.rows(&self.query)?));
        while self.rates.len() > 2 * MOST_SPARKS {
            // The farthest from what is looked at.
            let (oldest, newest) = (self.rates.keys().next().copied(), self.rates.keys().next_back().copied());
            let (Some(oldest), Some(newest)) = (oldest, newest) else { break };
            self.rates.remove(if number - oldest >= newest - number { &oldest } else { &newest });
        }
        Ok(())
    }

    /// What a row measured in these steps, for a second each; `None` where that is not known.
    pub fn rates_of(&self, row: &Row, steps: &[Arc<Step>]) -> Vec<Option<u64>> {
        let key = self.key(row);
        let of_step = |step: &Arc<Step>| Some(self.rates.get(&step.number)?.get(&key).copied().unwrap_or(0));
        steps.iter().map(of_step).collect()
    }
}

fn rates(report: &Report) -> Rates {
    const SECOND_NS: u128 = 1_000_000_000;
    let second = |row: &Row| {
        let rate = u128::from(row.value.total_ns) * SECOND_NS / u128::from(report.duration_ns.max(1));
        u64::try_from(rate).unwrap_or(u64::MAX)
    };
    report.rows.iter().map(|row| (RowKey::of(row, &report.by), second(row))).collect()
}

/// A bar for each step, the highest as high as a line is; a blank where nothing is known.
pub fn sparkline(rates: &[Option<u64>]) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let most = u128::from(rates.iter().flatten().copied().max().unwrap_or(0).max(1));
    let bar = |rate: &Option<u64>| match *rate {
        None => ' ',
        Some(rate) => BARS[(u128::from(rate) * (BARS.len() as u128 - 1)).div_ceil(most) as usize],
    };
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_tells_nothing_from_little_and_little_from_most() {
        assert_eq!(sparkline(&[None, Some(0), Some(1), Some(500), Some(1_000)]), " ▁▂▅█");
        assert_eq!(sparkline(&[Some(0), Some(0)]), "▁▁");
        assert_eq!(sparkline(&[Some(u64::MAX), Some(u64::MAX / 2)]), "█▅");
    }
}
