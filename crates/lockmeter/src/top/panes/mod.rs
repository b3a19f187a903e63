//! Draws the screen: each part from what the reports say.

mod details;
mod head;
mod locks;
mod overlay;

use lockmeter_render::units::{counted, duration, share, time_of_day};
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::canvas::{Canvas, line_of};
use super::layout::{Layout, Needs, Pane};
use super::locks::MOST_SPARKS;
use super::overlays::{Overlay, PromptOf};
use super::state::{Feed, State, View};

/// Draws everything. Where a file is larger than its limits allow, a sentence says so.
pub fn draw(canvas: &mut Canvas<'_>, state: &mut State) {
    let screen = canvas.area();
    if screen.is_empty() {
        return;
    }
    // What the head needs room for is in the report of the rows; which details there is room for follows from that.
    let prepared = state.prepare(&[]).and_then(|()| {
        state.layout = Layout::of(screen, needs(state, screen), state.detail);
        let panes: Vec<Pane> = state.layout.details.iter().map(|(pane, _)| *pane).collect();
        state.prepare(&panes)
    });
    if let Err(error) = prepared {
        state.warn(format!("this is too large to show: {error}; filter by a lock with /"));
        state.layout = Layout::of(screen, needs(state, screen), state.detail);
    }
    let layout = state.layout.clone();
    title(canvas, state, layout.title);
    match &state.view {
        View::Locks(view) => {
            if let Some(report) = view.report() {
                head::sentences(canvas, report, layout.head);
                head::bar(canvas, report, layout.bar);
                head::lost(canvas, report, layout.lost);
            } else {
                canvas.text(layout.head, "waiting for the first interval …", canvas.palette.dim);
            }
            state.drawn_rows = locks::draw(canvas, state, layout.locks);
            for (pane, area) in &layout.details {
                let scroll = details::draw(canvas, state, *pane, *area);
                state.scroll[pane.index()] = scroll;
            }
        }
        View::Latency(view) => {
            let area =
                Rect { height: layout.keys.y.saturating_sub(layout.head.y + layout.message.height), ..layout.head };
            let lines = view.lines(area.width);
            let scroll = &mut state.scroll[Pane::Locks.index()];
            *scroll = (*scroll).min(lines.len().saturating_sub(area.height.into()));
            for (line, text) in lines.iter().skip(*scroll).take(area.height.into()).enumerate() {
                canvas.text(line_of(area, line as u16), text, canvas.palette.plain);
            }
        }
    }
    if let Some(message) = &state.message {
        let style = if message.is_warning { canvas.palette.warning } else { canvas.palette.plain };
        canvas.text(layout.message, &message.text, style);
    } else if let Feed::Ended(why) = &state.feed {
        canvas.text(
            layout.message,
            &format!("{why}; q quits, w writes what was seen, ← steps back"),
            canvas.palette.warning,
        );
    }
    keys(canvas, state, layout.keys);
    if let Some(over) = &mut state.overlay.take() {
        overlay::draw(canvas, state, over);
        state.overlay = Some(over.clone());
    }
}

/// How many lines a sparkline shows on a screen of this width.
pub fn spark_width(screen_width: u16) -> u16 {
    (screen_width / 7).clamp(8, MOST_SPARKS as u16)
}

fn needs(state: &State, screen: Rect) -> Needs {
    let has_message = state.message.is_some() || matches!(state.feed, Feed::Ended(_));
    let message = u16::from(has_message);
    match state.locks().and_then(|view| view.report()) {
        Some(report) => Needs {
            head: head::lines(report, screen.width).len() as u16,
            bar: if report.threads.is_some() { 2 } else { 0 },
            lost: u16::from(!report.losses.is_empty()),
            message,
        },
        None => Needs { head: 1, message, ..Needs::default() },
    }
}

/// What is looked at, when, and what that costs.
fn title(canvas: &mut Canvas<'_>, state: &State, area: Rect) {
    let palette = canvas.palette;
    let used =
        state.used_ppm().map_or("lockmeter: …".to_owned(), |ppm| format!("lockmeter: {} of a CPU", share(ppm)));
    let rest = canvas.text_right(area, &format!(" {used}"), palette.dim);
    let (badge, style) = badge(state, palette.good, palette.warning);
    let rest = canvas.text(rest, &format!("{badge}  "), style);
    let steps = state.shown_steps();
    let time = steps.first().zip(steps.last()).map(|(first, last)| {
        let clock = |unix_ns| time_of_day(unix_ns).chars().take(8).collect::<String>();
        let length_ns = steps.iter().map(|step| step.duration_ns()).fold(0, u64::saturating_add);
        let end_unix_ns = last.start_unix_ns().saturating_add(last.duration_ns());
        let several = match steps.len() {
            1 => String::new(),
            steps => format!(" ({})", counted(steps as u64, "step", "steps")),
        };
        format!("{} to {} UTC, {}{several}", clock(first.start_unix_ns()), clock(end_unix_ns), duration(length_ns))
    });
    let rest = canvas.text(rest, &time.unwrap_or_default(), palette.plain);
    canvas.text(rest, &format!("  {}", state.about.scope), palette.dim);
}

fn badge(state: &State, good: Style, warning: Style) -> (String, Style) {
    let behind = match (state.at, state.history.bounds()) {
        (Some(at), Some((_, newest))) if newest > at => format!(" −{}", newest - at),
        _ => String::new(),
    };
    let is_held = state.at.is_some();
    match &state.feed {
        Feed::Live if is_held => (format!("FROZEN{behind}"), warning),
        Feed::Live => ("LIVE".to_owned(), good),
        Feed::Ended(_) => (format!("ENDED{behind}"), warning),
        Feed::Replay { .. } if is_held => (format!("PAUSED{behind}"), warning),
        Feed::Replay { speed } => (format!("REPLAY ×{speed}"), good),
        Feed::ReplayedAll { .. } => (format!("END OF RECORDING{behind}"), warning),
    }
}

/// What the keys do now; the most needed first, for a narrow screen cuts the rest.
fn keys(canvas: &mut Canvas<'_>, state: &State, area: Rect) {
    let palette = canvas.palette;
    let keys: &[(&str, &str)] = match &state.overlay {
        Some(Overlay::Prompt(prompt)) => {
            let label = match prompt.of {
                PromptOf::Filter => "only locks whose name contains: ",
                PromptOf::File => "write what was seen into: ",
            };
            let rest = canvas.text(area, label, palette.heading);
            let rest = canvas.text(rest, &prompt.text, palette.plain);
            let rest = canvas.text(rest, " ", palette.selected);
            canvas.text(rest, "  Enter takes it, Esc leaves it", palette.dim);
            return;
        }
        Some(Overlay::Menu(_)) => &[("↑↓", "choose"), ("Space", "take"), ("Enter", "done"), ("Esc", "back")],
        Some(_) => &[("↑↓", "scroll"), ("Esc", "back")],
        None if state.locks().is_none() => {
            &[("q", "quit"), ("?", "help"), ("Space", "freeze"), ("←→", "step"), ("+-", "span"), ("w", "write")]
        }
        None => &[
            ("q", "quit"),
            ("?", "help"),
            ("Space", "freeze"),
            ("←→", "step"),
            ("/", "filter"),
            ("s", "sort"),
            ("g", "group"),
            ("Tab", "pane"),
            ("Enter", "stacks"),
            ("w", "write"),
            ("i", "fine print"),
            ("+-", "span"),
            ("h", "holds"),
        ],
    };
    let mut rest = area;
    for (key, what) in keys {
        rest = canvas.text(rest, key, palette.heading);
        rest = canvas.text(rest, &format!(" {what}  "), palette.dim);
    }
}
