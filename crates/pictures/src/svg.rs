//! An SVG page, element by element.

use std::fmt::{self, Write as _};

use lockmeter_render::escape::escaped;

const FONT: &str = "DejaVu Sans, Helvetica, Arial, sans-serif";

/// A white page to draw on.
pub struct Svg(String);

/// Which part of a text lies at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Start,
    /// Its middle.
    Middle,
    /// Its right end.
    End,
}

impl Anchor {
    const fn name(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// How a text looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    /// In pixels.
    pub size: u32,
    /// Where it lies.
    pub anchor: Anchor,
    /// Its colour.
    pub fill: &'static str,
    /// Written from bottom to top.
    pub upward: bool,
}

impl Style {
    /// Black and horizontal.
    pub const fn new(size: u32, anchor: Anchor) -> Self {
        Self { size, anchor, fill: "black", upward: false }
    }
}

/// How a line, or the edge of a box, looks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stroke {
    /// Its colour.
    pub colour: &'static str,
    /// In pixels.
    pub width: f64,
    /// Lengths of strokes and gaps; empty for a whole line.
    pub dash: &'static str,
}

impl Stroke {
    /// Black and whole.
    pub const fn black(width: f64) -> Self {
        Self { colour: "black", width, dash: "" }
    }
}

impl fmt::Display for Stroke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { colour, width, dash } = self;
        write!(f, "stroke=\"{colour}\" stroke-width=\"{width}\"")?;
        if !dash.is_empty() {
            write!(f, " stroke-dasharray=\"{dash}\"")?;
        }
        Ok(())
    }
}

/// A place or a length, to a tenth of a pixel.
struct Pixels(f64);

impl fmt::Display for Pixels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.1}", self.0);
        f.write_str(text.strip_suffix(".0").unwrap_or(&text))
    }
}

impl Svg {
    /// A page of this size, in pixels.
    pub fn new(width: f64, height: f64) -> Self {
        let (width, height) = (Pixels(width), Pixels(height));
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{FONT}\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    /// A text at a place; its names are escaped.
    pub fn text(&mut self, x: f64, y: f64, style: Style, words: &str) {
        let (x, y) = (Pixels(x), Pixels(y));
        let Style { size, anchor, fill, upward } = style;
        let turned = if upward { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
        self.element(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" text-anchor=\"{}\" fill=\"{fill}\"{turned}>{}</text>",
            anchor.name(),
            escape(words)
        ));
    }

    /// A line through these places.
    pub fn line(&mut self, places: &[(f64, f64)], stroke: Stroke) {
        let places: Vec<String> = places.iter().map(|(x, y)| format!("{},{}", Pixels(*x), Pixels(*y))).collect();
        self.element(format_args!("<polyline points=\"{}\" fill=\"none\" {stroke}/>", places.join(" ")));
    }

    /// A black disc around a place.
    pub fn disc(&mut self, x: f64, y: f64, radius: f64) {
        self.element(format_args!("<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>", Pixels(x), Pixels(y)));
    }

    /// A box from its upper left corner.
    pub fn rectangle(&mut self, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str, edge: Stroke) {
        let (x, y, width, height) = (Pixels(x), Pixels(y), Pixels(width), Pixels(height));
        self.element(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\" {edge}/>"
        ));
    }

    /// The whole picture.
    pub fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    fn element(&mut self, element: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{element}");
    }
}

/// XML allows no control characters, not even as references.
fn escape(words: &str) -> String {
    escaped(words).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_breaks_no_picture() {
        let mut svg = Svg::new(10.0, 10.0);
        svg.text(1.0, 2.25, Style::new(12, Anchor::Start), "a\x1b[31m\u{202e}<b>&");
        let svg = svg.finish();
        assert!(svg.contains("a\\u{1b}[31m\\u{202e}&lt;b&gt;&amp;</text>"), "{svg}");
        assert!(svg.contains("x=\"1\" y=\"2.2\"") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
