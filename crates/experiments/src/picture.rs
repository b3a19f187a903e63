//! Pictures of results, as SVG, readable in black and white; as PNG, too, where `rsvg-convert` is installed.

use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use lockmeter_profile::recording::write_file;
use lockmeter_render::escape::escaped;
use lockmeter_statistics::Estimate;

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 60.0;
const FONT: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";

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
        text(&mut svg, x(place), HEIGHT - BOTTOM + 18.0, "middle", &short(place));
    }
    for (at, line) in lines.iter().enumerate() {
        let path: Vec<String> =
            line.points.iter().map(|point| format!("{:.1},{:.1}", x(point.x), y(point.y))).collect();
        let dash = DASHES[at % DASHES.len()];
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"black\" stroke-width=\"1.6\" stroke-dasharray=\"{dash}\"/>",
            path.join(" ")
        );
        for point in &line.points {
            let (px, low, high) = (x(point.x), y(point.low), y(point.high));
            let _ = writeln!(
                svg,
                "<path d=\"M{px:.1} {low:.1}V{high:.1}\" stroke=\"black\"/><circle cx=\"{px:.1}\" cy=\"{:.1}\" r=\"3\"/>",
                y(point.y)
            );
        }
        let key_y = TOP + 6.0 + 18.0 * number(at);
        let _ = writeln!(
            svg,
            "<path d=\"M{} {key_y}h34\" stroke=\"black\" stroke-width=\"1.6\" stroke-dasharray=\"{dash}\"/>",
            LEFT + 14.0
        );
        text(&mut svg, LEFT + 54.0, key_y + 4.0, "start", &line.name);
    }
    svg + "</svg>\n"
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
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {TOP}V{}\" stroke=\"black\" stroke-width=\"0.7\" stroke-dasharray=\"{dash}\"/>",
            place(value),
            height - BOTTOM
        );
        text(&mut svg, place(value), height - BOTTOM + 18.0, "middle", &short(value));
    }
    for (at, (name, row)) in rows.iter().enumerate() {
        let y = TOP + ROW * (number(at) + 0.5);
        text(&mut svg, names - FREE / 2.0, y + 4.0, "end", name);
        let _ = writeln!(
            svg,
            "<path d=\"M{:.1} {y}H{:.1}\" stroke=\"black\" stroke-width=\"2\"/>",
            place(row.low),
            place(row.high)
        );
        let _ = writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{y}\" r=\"4\"/>", place(row.median));
    }
    svg + "</svg>\n"
}

/// Bars side by side, each with its name under it: a histogram.
pub fn bars(frame: Frame<'_>, bars: &[(String, f64)]) -> String {
    let top = nice(bars.iter().fold(0.0, |top: f64, (_, value)| top.max(*value)));
    let y = |value: f64| HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM);
    let width = (WIDTH - LEFT - RIGHT) / number(bars.len().max(1));
    let mut svg = begin(frame, HEIGHT);
    axis(&mut svg, top, &y);
    for (at, (name, value)) in bars.iter().enumerate() {
        let x = LEFT + width * number(at);
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"#999\" stroke=\"black\"/>",
            x + width * 0.1,
            y(*value),
            width * 0.8,
            y(0.0) - y(*value)
        );
        text(&mut svg, x + width / 2.0, HEIGHT - BOTTOM + 18.0, "middle", name);
    }
    svg + "</svg>\n"
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::from(u32::MAX), f64::from)
}

fn begin(frame: Frame<'_>, height: f64) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"{FONT}\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let _ = writeln!(svg, "<text x=\"14\" y=\"24\" font-size=\"15\">{}</text>", escape(frame.title));
    text(&mut svg, WIDTH / 2.0, height - 14.0, "middle", frame.x);
    let middle = height / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"18\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle})\">{}</text>",
        escape(frame.y)
    );
    svg
}

fn axis(svg: &mut String, top: f64, y: &impl Fn(f64) -> f64) {
    const STEPS: u32 = 4;
    for step in 0..=STEPS {
        let value = top * f64::from(step) / f64::from(STEPS);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {0:.1}H{1}\" stroke=\"#bbb\" stroke-width=\"0.7\"/>",
            y(value),
            WIDTH - RIGHT
        );
        text(svg, LEFT - 8.0, y(value) + 4.0, "end", &short(value));
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(words));
}

/// XML allows no control characters, not even as references.
fn escape(words: &str) -> String {
    escaped(words).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
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

/// Writes a picture, and the PNG beside it where `rsvg-convert` is installed; says whether it was.
pub fn write(path: &Path, svg: &str) -> io::Result<bool> {
    write_file(path, svg.as_bytes())?;
    let mut convert = Command::new("rsvg-convert");
    convert.args(["--zoom", "2"]).arg(path).stderr(Stdio::null());
    // It would follow a link that another user has put where the picture goes.
    let Ok(converted) = convert.output() else { return Ok(false) };
    if converted.status.success() {
        write_file(path.with_extension("png"), &converted.stdout)?;
    }
    Ok(converted.status.success())
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
