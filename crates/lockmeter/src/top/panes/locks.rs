//! The list of locks, or of whatever the rows are grouped by, with what each measured in the steps before.

use lockmeter_profile::Row;
use lockmeter_render::columns::{Unit, columns};
use lockmeter_render::{DEFAULT_FRAMES, Table, wrap};
use ratatui_core::layout::Rect;

use super::super::canvas::{Canvas, line_of};
use super::super::layout::Pane;
use super::super::locks::{LocksView, sparkline};
use super::super::state::State;
use super::spark_width;

/// Below a row, whole stacks begin here.
const INDENT: usize = 15;

/// Draws the list. Returns which row each line of the area shows.
pub fn draw(canvas: &mut Canvas<'_>, state: &State, area: Rect) -> Vec<Option<usize>> {
    let (Some(view), palette) = (state.locks(), canvas.palette) else { return Vec::new() };
    let mut drawn = vec![None; area.height.into()];
    let Some(report) = view.report() else { return drawn };
    let rows = view.rows();
    list_title(canvas, state, view, rows.len(), line_of(area, 0));
    if rows.is_empty() {
        canvas.text(line_of(area, 1), "no lock was waited for here", palette.dim);
        return drawn;
    }
    let spark = spark_width(canvas.area().width).min(area.width / 3);
    let text_width = area.width.saturating_sub(spark + 1);
    let steps = state.steps_before(spark.into());
    let lines_left = usize::from(area.height.saturating_sub(2));
    let first = first_row(view, state, &rows, text_width, lines_left);
    let last = rows.len().min(first + lines_left);
    let table = Table { width: Some(text_width), frames: DEFAULT_FRAMES, ..Table::default() };
    let laid_out = table.laid_out(report, &rows[first..last]);
    let heading = line_of(area, 1);
    canvas.text(Rect { width: text_width, ..heading }, &laid_out.heading, palette.heading);
    canvas.text_right(heading, "OVER TIME", palette.heading);
    let selected = view.selected_at();
    let mut line = 2;
    for (at, (cells, below)) in laid_out.rows.iter().enumerate().map(|(offset, row)| (first + offset, row)) {
        if line >= area.height {
            break;
        }
        let row_area = line_of(area, line);
        canvas.text(Rect { width: text_width, ..row_area }, cells, palette.plain);
        canvas.text_right(row_area, &sparkline(&view.rates_of(rows[at], &steps)), palette.spark);
        if selected == Some(at) {
            canvas.style(row_area, palette.selected);
        }
        drawn[usize::from(line)] = Some(at);
        line += 1;
        let below = if state.expanded { whole_stacks(view, rows[at], area.width) } else { below.clone() };
        for text in below.iter().take(usize::from(area.height.saturating_sub(line))) {
            canvas.text(line_of(area, line), text, palette.dim);
            drawn[usize::from(line)] = Some(at);
            line += 1;
        }
    }
    drawn
}

fn list_title(canvas: &mut Canvas<'_>, state: &State, view: &LocksView, rows: usize, area: Rect) {
    let palette = canvas.palette;
    let by: Vec<&str> = view.query.by.iter().map(|by| by.name()).collect();
    let filter = view.query.lock.as_ref().map(|pattern| format!(", only {pattern}")).unwrap_or_default();
    let gone = if view.selected_is_gone() { ", the chosen row is not among them now" } else { "" };
    let title =
        format!("── {} by {}, sorted by {}{filter}: {rows}{gone} ", view.section().title(), by.join(", "), view.sort());
    let style = if state.focus == Pane::Locks { palette.heading } else { palette.dim };
    let rest = canvas.text(area, &title, style);
    canvas.text(rest, &"─".repeat(rest.width.into()), palette.dim);
}

/// The first row on the screen, so that the selected one is on it.
fn first_row(view: &LocksView, state: &State, rows: &[&Row], width: u16, lines: usize) -> usize {
    let stacks = columns(&view.query.by).filter(|column| column.unit == Unit::Frames).count();
    let height = |row: &Row| match state.expanded {
        true => 1 + whole_stacks(view, row, width).len(),
        false => 1 + stacks,
    };
    let selected = view.selected_at().unwrap_or(0);
    let (mut first, mut used) = (selected, 0);
    while first < rows.len() {
        used += height(rows[first]);
        if used > lines || first == 0 {
            break;
        }
        first -= 1;
    }
    if used > lines { (first + 1).min(selected) } else { first }
}

/// The stacks of a row, with all their functions.
fn whole_stacks(view: &LocksView, row: &Row, width: u16) -> Vec<String> {
    let stacks = columns(&view.query.by).filter(|column| column.unit == Unit::Frames);
    let lines = stacks.filter_map(|column| {
        let words = column.words(row, usize::MAX)?;
        Some(wrap(&format!("      {:<7}  {words}", column.key), width.into(), INDENT))
    });
    lines.flatten().collect()
}
