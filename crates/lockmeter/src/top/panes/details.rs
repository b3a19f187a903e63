//! Beside or below the list: who waits for the selected lock, who makes them wait, for how long, and who waits now.

use lockmeter_profile::Row;
use lockmeter_render::columns::columns;
use lockmeter_render::units::{MILLION, counted, duration, ratio, share};
use lockmeter_render::{DEFAULT_FRAMES, drawn_histogram, waiting_now, wrap};
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::super::canvas::{Canvas, Palette, line_of};
use super::super::layout::Pane;
use super::super::locks::LocksView;
use super::super::state::State;

/// What stands before the distribution in a drawn histogram.
const HISTOGRAM_COLUMNS: u16 = 36;

/// Draws a pane. Returns how far it is scrolled, which is no farther than there are lines.
pub fn draw(canvas: &mut Canvas<'_>, state: &State, pane: Pane, area: Rect) -> usize {
    let Some(view) = state.locks() else { return 0 };
    title(canvas, state, view, pane, line_of(area, 0));
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let lines = lines(view, pane, body.width, state.expanded, canvas.palette);
    let scroll = state.scroll[pane.index()].min(lines.len().saturating_sub(body.height.into()));
    for (at, (line, style)) in lines.iter().skip(scroll).take(body.height.into()).enumerate() {
        canvas.text(line_of(body, at as u16), line, *style);
    }
    scroll
}

/// What the pane is, and whose; where others are behind it, their names.
fn title(canvas: &mut Canvas<'_>, state: &State, view: &LocksView, pane: Pane, area: Rect) {
    let palette = canvas.palette;
    let mut rest = canvas.text(area, "── ", palette.dim);
    let shown: Vec<Pane> =
        if state.layout.has_tabs && state.layout.details.len() == 1 { Pane::DETAILS.to_vec() } else { vec![pane] };
    for tab in shown {
        let style = match (tab == pane, state.focus == pane) {
            (true, true) => palette.selected,
            (true, false) => palette.heading,
            _ => palette.dim,
        };
        rest = canvas.text(rest, tab.title(), style);
        rest = canvas.text(rest, "  ", palette.dim);
    }
    rest = canvas.text(rest, &format!("of {} ", view.details_of()), palette.dim);
    canvas.text(rest, &"─".repeat(rest.width.into()), palette.dim);
}

fn lines(view: &LocksView, pane: Pane, width: u16, expanded: bool, palette: Palette) -> Vec<(String, Style)> {
    let lines = match pane {
        Pane::Locks => Vec::new(),
        Pane::Callers => stack_lines(view, pane, "caller", width, expanded, palette),
        Pane::Blockers => stack_lines(view, pane, "blocker", width, expanded, palette),
        Pane::Roots => stack_lines(view, pane, "root", width, expanded, palette),
        Pane::Histogram => histogram_lines(view, width, palette),
        Pane::Waiting => waiting_lines(view, width, expanded, palette),
    };
    if !lines.is_empty() {
        return lines;
    }
    let nothing = match pane {
        // Shorter ones are not looked for: they would have ended before one could read of them.
        Pane::Waiting => "no wait of 100 ms or longer goes on at the end of this step",
        _ => "nothing waited for it here",
    };
    vec![(nothing.to_owned(), palette.dim)]
}

/// A line for each stack: its time, its share of the selected row's, how often, and its functions.
fn stack_lines(
    view: &LocksView,
    pane: Pane,
    key: &str,
    width: u16,
    expanded: bool,
    palette: Palette,
) -> Vec<(String, Style)> {
    let Some(report) = view.detail(pane) else { return Vec::new() };
    let Some(column) = columns(&report.by).find(|column| column.key == key) else { return Vec::new() };
    let rows = view.detail_rows(pane);
    let all_ns = rows.iter().map(|row| row.value.total_ns).fold(0, u64::saturating_add);
    let frames = if expanded { usize::MAX } else { DEFAULT_FRAMES };
    let begin = |row: &Row| {
        let of_all = share(ratio(row.value.total_ns, MILLION, all_ns));
        format!("{:>8}  {of_all:>6}  ", duration(row.value.total_ns))
    };
    let estimated = rows.iter().any(|row| row.estimated);
    let mut lines = Vec::new();
    if estimated {
        let stacks = rows.iter().map(|row| row.stacks).fold(0, u64::saturating_add);
        let stacks = counted(stacks, "stack", "stacks");
        lines.push((format!("estimated from {stacks}, which add up to the exact total"), palette.dim));
    }
    for row in rows {
        let words = column.words(row, frames).unwrap_or_default();
        let line = format!("{}{words}", begin(row));
        if expanded {
            lines.extend(wrap(&line, width.into(), 18).into_iter().map(|line| (line, palette.plain)));
        } else {
            lines.push((line, palette.plain));
        }
    }
    lines
}

fn histogram_lines(view: &LocksView, width: u16, palette: Palette) -> Vec<(String, Style)> {
    let Some(row) = view.selected_row() else { return Vec::new() };
    let bar = width.saturating_sub(HISTOGRAM_COLUMNS).max(4);
    let value = &row.value;
    let summary = format!(
        "{}: mean {}, p50 {}, p99 {}, max {}",
        counted(value.count, "time", "times"),
        duration(value.mean_ns()),
        duration(row.p50_ns),
        duration(row.p99_ns),
        duration(value.max_ns)
    );
    let drawn = drawn_histogram(row, bar.into()).into_iter().map(|line| (line, palette.plain));
    std::iter::once((summary, palette.heading)).chain(drawn).collect()
}

fn waiting_lines(view: &LocksView, width: u16, expanded: bool, palette: Palette) -> Vec<(String, Style)> {
    let Some(waits) = view.waiting_now() else {
        return vec![("the threads were not watched".to_owned(), palette.dim)];
    };
    let frames = if expanded { usize::MAX } else { DEFAULT_FRAMES };
    let mut lines = Vec::new();
    for row in waits {
        let wait = waiting_now(row, frames);
        let style = if row.deadlock.is_some() { palette.alarm } else { palette.plain };
        let line = format!("{:>9}  {}", wait.age, wait.sentence);
        let site = wait.site.iter().map(|site| format!("{:>9}  {site}", ""));
        if expanded {
            lines.extend(wrap(&line, width.into(), 11).into_iter().map(|line| (line, style)));
            lines.extend(site.flat_map(|site| wrap(&site, width.into(), 14)).map(|line| (line, palette.dim)));
        } else {
            lines.push((line, style));
            lines.extend(site.map(|site| (site, palette.dim)));
        }
    }
    lines
}
