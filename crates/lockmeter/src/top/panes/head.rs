//! Above the panes: what a reader must know first, where the threads' time went, and what was lost.

use lockmeter_profile::{Report, ThreadState};
use lockmeter_render::units::{MILLION, counted, ratio, share, thousandths};
use lockmeter_render::{has_deadlock, head_sentences, lost_lines, state_words, wrap};
use ratatui_core::layout::Rect;
use ratatui_core::style::Style;

use super::super::canvas::{Canvas, Palette, line_of};

/// The sentences of a report, broken into lines.
pub fn lines(report: &Report, width: u16) -> Vec<String> {
    head_sentences(report).iter().flat_map(|sentence| wrap(sentence, width.into(), 2)).collect()
}

pub fn sentences(canvas: &mut Canvas<'_>, report: &Report, area: Rect) {
    let palette = canvas.palette;
    let sentences = head_sentences(report);
    let alarmed = report.threads.as_ref().is_some_and(has_deadlock);
    let mut lines: Vec<(String, Style)> = Vec::new();
    for (at, sentence) in sentences.iter().enumerate() {
        let style = match at {
            0 if alarmed => palette.alarm,
            0 if sentences.len() > 1 => palette.warning,
            _ => palette.heading,
        };
        lines.extend(wrap(sentence, area.width.into(), 2).into_iter().map(|line| (line, style)));
    }
    let shown = lines.len().min(area.height.into());
    let is_cut = shown < lines.len();
    for (at, (line, style)) in lines.iter().take(shown).enumerate() {
        let is_last = at + 1 == shown;
        let mut line_area = line_of(area, at as u16);
        if is_cut && is_last {
            line_area = canvas.text_right(line_area, " … (i: all of it)", palette.dim);
        }
        canvas.text(line_area, line, *style);
    }
}

/// A part of the threads' time.
struct Part {
    what: &'static str,
    ns: u64,
    letter: char,
    style: Style,
}

fn parts(report: &Report, palette: Palette) -> Vec<Part> {
    let Some(threads) = &report.threads else { return Vec::new() };
    let spent = |fits: &dyn Fn(ThreadState) -> bool| threads.spent_ns(fits);
    let mut parts = vec![
        Part {
            what: "running",
            ns: spent(&|state| state == ThreadState::Running),
            letter: '█',
            style: palette.running,
        },
        Part {
            what: "waiting for a CPU",
            ns: spent(&|state| matches!(state, ThreadState::Runnable | ThreadState::Woken)),
            letter: '▓',
            style: palette.runnable,
        },
    ];
    let blocked = threads.states.iter().filter(|time| time.state.is_blocked());
    parts.extend(blocked.map(|time| Part {
        what: state_words(time.state),
        ns: time.total_ns,
        letter: if time.state.is_lock() { '▒' } else { '░' },
        style: if time.state.is_lock() { palette.lock } else { palette.blocked },
    }));
    parts.push(Part { what: "at rest", ns: threads.rest_ns, letter: '·', style: palette.dim });
    parts.retain(|part| part.ns > 0);
    parts
}

/// The threads' time as a bar, and below it what its parts are.
pub fn bar(canvas: &mut Canvas<'_>, report: &Report, area: Rect) {
    let Some(threads) = &report.threads else { return };
    let palette = canvas.palette;
    let parts = parts(report, palette);
    let count = ratio(threads.total_ns, 1_000, report.duration_ns.max(1));
    let label = match count {
        1_000 => counted(1, "thread", "threads"),
        _ => format!("{} threads", thousandths(count)),
    };
    let mut rest = canvas.text(line_of(area, 0), &format!("{label} "), palette.heading);
    let widths = divided(rest.width, &parts.iter().map(|part| part.ns).collect::<Vec<_>>());
    for (part, width) in parts.iter().zip(widths) {
        rest = canvas.text(rest, &part.letter.to_string().repeat(width.into()), part.style);
    }
    let mut rest = line_of(area, 1);
    for part in &parts {
        let of_all = share(ratio(part.ns, MILLION, threads.total_ns));
        rest = canvas.text(rest, &part.letter.to_string(), part.style);
        rest = canvas.text(rest, &format!(" {} {of_all}  ", part.what), palette.dim);
    }
}

/// A width in parts, in proportion: what is left over by rounding goes to those that lost most.
fn divided(width: u16, parts: &[u64]) -> Vec<u16> {
    let all: u128 = parts.iter().map(|part| u128::from(*part)).sum::<u128>().max(1);
    let exact = |part: &u64| u128::from(*part) * u128::from(width);
    let mut widths: Vec<u16> = parts.iter().map(|part| (exact(part) / all) as u16).collect();
    let mut by_loss: Vec<usize> = (0..parts.len()).collect();
    by_loss.sort_by_key(|at| std::cmp::Reverse(exact(&parts[*at]) % all));
    let left = usize::from(width - widths.iter().sum::<u16>().min(width));
    by_loss.into_iter().take(left).for_each(|at| widths[at] += 1);
    widths
}

/// The first of what was lost, and how many more causes there are.
pub fn lost(canvas: &mut Canvas<'_>, report: &Report, area: Rect) {
    if report.losses.is_empty() {
        return;
    }
    let causes: Vec<String> = lost_lines(&report.losses).into_iter().skip(1).map(|(line, _)| line).collect();
    let more = match causes.len() {
        0 | 1 => String::new(),
        causes => format!("; {} (i)", counted(causes as u64 - 1, "other cause", "other causes")),
    };
    let rest = canvas.text_right(area, &more, canvas.palette.warning);
    let first = causes.first().map(|cause| cause.trim()).unwrap_or_default();
    canvas.text(rest, &format!("lost: {first}"), canvas.palette.warning);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_long_as_its_place_and_no_part_is_longer_than_its_share() {
        assert_eq!(divided(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(divided(10, &[999, 1]), [10, 0]);
        assert_eq!(divided(0, &[1, 2]), [0, 0]);
        assert_eq!(divided(7, &[]), [] as [u16; 0]);
        assert_eq!(divided(100, &[u64::MAX, u64::MAX]), [50, 50]);
    }
}
