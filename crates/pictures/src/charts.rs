//! Charts: lines over a logarithmic axis, intervals, bars.

use lockmeter_statistics::Estimate;

use crate::svg::{Anchor, Stroke, Style, Svg};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 60.0;

/// Of a name or a number.
const LABEL: Style = Style::new(12, Anchor::Middle);

/// Lines told apart without colour.
const DASHES: [&str; 5] = ["", "7 4", "2 3", "10 3 2 3", "1 6"];

/// A value at a place, with the interval that holds it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Along the axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// Where the interval begins.
    pub low: f64,
    /// Where it ends.
    pub high: f64,
}

impl Point {
    /// An estimate at a place.
    pub const fn estimated(x: f64, y: Estimate) -> Self {
        Self { x, y: y.median, low: y.low, high: y.high }
    }

    /// A value without an interval.
    pub const fn exact(x: f64, y: f64) -> Self {
        Self { x, y, low: y, high: y }
    }
}

/// A line of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Left to right.
    pub points: Vec<Point>,
}

/// What stands around a picture.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    /// Above.
    pub title: &'a str,
    /// Under the horizontal axis.
    pub x: &'a str,
    /// Beside the vertical one.
    pub y: &'a str,
}

/// Lines over a logarithmic axis of threads, CPUs or users; values from 0.
pub fn lines(frame: Frame<'_>, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let (first, last) = points().fold((f64::MAX, f64::MIN), |(low, high), point| (low.min(point.x), high.max(point.x)));
    let top = nice(points().fold(0.0, |top: f64, point| top.max(point.high)));
    let span = (last / first).ln().max(f64::MIN_POSITIVE);
    let x = |value: f64| LEFT + 14.0 + (value / first).ln() / span * (WIDTH - LEFT - RIGHT - 28.0);
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let mut svg = begin(frame, HEIGHT);
    axis(&mut svg, top, &y);
    let mut places: Vec<f64> = points().map(|point| point.x).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    for place in places {
        svg.text(x(place), HEIGHT - BOTTOM + 18.0, LABEL, &short(place));
    }
    for (at, line) in lines.iter().enumerate() {
        let path: Vec<(f64, f64)> = line.points.iter().map(|point| (x(point.x), y(point.y))).collect();
        let stroke = Stroke { dash: DASHES[at % DASHES.len()], ..Stroke::black(1.6) };
        svg.line(&path, stroke);
        for point in &line.points {
            let x = x(point.x);
            svg.line(&[(x, y(point.low)), (x, y(point.high))], Stroke::black(1.0));
            svg.disc(x, y(point.y), 3.0);
        }
        let key_y = TOP + 6.0 + 18.0 * number(at);
        svg.line(&[(LEFT + 14.0, key_y), (LEFT + 48.0, key_y)], stroke);
        svg.text(LEFT + 54.0, key_y + 4.0, Style { anchor: Anchor::Start, ..LABEL }, &line.name);
    }
    svg.finish()
}

/// Intervals one below the other, with a line at a limit.
pub fn intervals(title: &str, x: &str, rows: &[(String, Estimate)], limit: Option<f64>) -> String {
    const ROW: f64 = 30.0;
    /// Of a name, on average.
    const CHARACTER: f64 = 7.0;
    /// On both sides of the names.
    const FREE: f64 = 28.0;
    let names = FREE + CHARACTER * number(rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0));
    let height = TOP + BOTTOM + ROW * number(rows.len());
    let bounds = rows.iter().flat_map(|(_, row)| [row.low, row.high]).chain(limit).chain([0.0]);
    let (low, high) = bounds.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let margin = (high - low).max(f64::MIN_POSITIVE) * 0.05;
    let (low, high) = (low - margin, high + margin);
    let place = |value: f64| names + (value - low) / (high - low) * (WIDTH - names - RIGHT);
    let mut svg = begin(Frame { title, x, y: "" }, height);
    for (value, dash) in [(Some(0.0), ""), (limit, "6 4")] {
        let Some(value) = value else { continue };
        let (x, bottom) = (place(value), height - BOTTOM);
        svg.line(&[(x, TOP), (x, bottom)], Stroke { dash, ..Stroke::black(0.7) });
        svg.text(x, bottom + 18.0, LABEL, &short(value));
    }
    for (at, (name, row)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number(at) + 0.5);
        svg.text(names - FREE / 2.0, y + 4.0, Style { anchor: Anchor::End, ..LABEL }, name);
        svg.line(&[(place(row.low), y), (place(row.high), y)], Stroke::black(2.0));
        svg.disc(place(row.median), y, 4.0);
    }
    svg.finish()
}

/// Bars side by side, each with its name under it: a histogram.
pub fn bars(frame: Frame<'_>, bars: &[(String, f64)]) -> String {
    let top = nice(bars.iter().fold(0.0, |top: f64, (_, value)| top.max(*value)));
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let width = (WIDTH - LEFT - RIGHT) / number(bars.len().max(1));
    let mut svg = begin(frame, HEIGHT);
    axis(&mut svg, top, &y);
    for (at, (name, value)) in bars.iter().enumerate() {
        let (x, top) = (LEFT + width * number(at), y(*value));
        svg.rectangle((x + width * 0.1, top), (width * 0.8, y(0.0) - top), "#999", Stroke::black(1.0));
        svg.text(x + width / 2.0, HEIGHT - BOTTOM + 18.0, LABEL, name);
    }
    svg.finish()
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

/// A page with what stands around a picture.
fn begin(frame: Frame<'_>, height: f64) -> Svg {
    let mut svg = Svg::new(WIDTH, height);
    svg.text(14.0, 24.0, Style::new(15, Anchor::Start), frame.title);
    svg.text(WIDTH / 2.0, height - 14.0, LABEL, frame.x);
    svg.text(18.0, height / 2.0, Style { upward: true, ..LABEL }, frame.y);
    svg
}

fn axis(svg: &mut Svg, top: f64, y: &impl Fn(f64) -> f64) {
    const STEPS: u32 = 4;
    for step in 0..=STEPS {
        let value = top * f64::from(step) / f64::from(STEPS);
        let height = y(value);
        svg.line(&[(LEFT, height), (WIDTH - RIGHT, height)], Stroke { colour: "#bbb", width: 0.7, dash: "" });
        svg.text(LEFT - 8.0, height + 4.0, Style { anchor: Anchor::End, ..LABEL }, &short(value));
    }
}

/// The next number above with one or two digits that people count in.
fn nice(value: f64) -> f64 {
    if value <= 0.0 {
        return 1.0;
    }
    let unit = 10_f64.powf(value.log10().floor());
    [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0]
        .into_iter()
        .map(|step| step * unit)
        .find(|step| *step >= value)
        .unwrap_or(value)
}

fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        1e6.. => format!("{} M", trimmed(value / 1e6)),
        1e4.. => format!("{} k", trimmed(value / 1e3)),
        _ => trimmed(value),
    }
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(median: f64) -> Estimate {
        Estimate { median, low: median * 0.9, high: median * 1.1, samples: 9 }
    }

    #[test]
    fn a_picture_says_what_it_shows_and_stays_inside_its_frame() {
        let line = |name: &str, scale: f64| Line {
            name: name.into(),
            points: [1.0, 2.0, 64.0].map(|x| Point::estimated(x, estimate(x * scale))).to_vec(),
        };
        let svg =
            lines(Frame { title: "a < b", x: "threads", y: "messages" }, &[line("one", 10.0), line("other", 3.0)]);
        assert!(svg.contains("a &lt; b") && svg.contains(">other<") && svg.contains(">64<"));
        for circle in svg.lines().filter_map(|line| line.split_once("cy=\"")) {
            let y: f64 = circle.1.split('"').next().unwrap().parse().unwrap();
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y), "{y}");
        }
    }

    #[test]
    fn a_name_breaks_no_picture() {
        let title = "Waits for a\x1b[31m\u{202e}<b>";
        let svg = bars(Frame { title, x: "at least so long", y: "waits" }, &[("1 µs".into(), 1.0)]);
        assert!(svg.contains("Waits for a\\u{1b}[31m\\u{202e}&lt;b&gt;"), "{svg}");
    }

    #[test]
    fn intervals_show_their_limit() {
        let svg =
            intervals("cost", "percent", &[("wait".into(), estimate(0.3)), ("naive".into(), estimate(6.0))], Some(1.0));
        assert!(svg.contains(">1<") && svg.contains("naive"));
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn no_bar_is_higher_than_the_frame() {
        let svg =
            bars(Frame { title: "waits", x: "ns", y: "how many" }, &[("1 µs".into(), 3.0), ("2 µs".into(), 97.0)]);
        let heights =
            svg.lines().filter(|line| line.contains("#999")).filter_map(|line| line.split("height=\"").nth(1));
        let heights: Vec<f64> = heights.map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        assert_eq!(heights.len(), 2);
        assert!(heights.iter().all(|height| *height > 0.0 && *height <= HEIGHT - TOP - BOTTOM));
    }

    #[test]
    fn axes_end_at_numbers_that_people_count_in() {
        assert!((nice(73.0) - 80.0).abs() < 1e-9 && (nice(0.0121) - 0.015).abs() < 1e-9);
        assert_eq!((short(12_345.0).as_str(), short(2.5).as_str(), short(3e6).as_str()), ("12.35 k", "2.5", "3 M"));
    }
}
