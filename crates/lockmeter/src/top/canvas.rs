//! Text on the screen: everything that is drawn goes through here, so that no name steers the terminal.

use lockmeter_render::escape::escaped;
use lockmeter_render::{Colour, cut_end};
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::style::{Color, Modifier, Style};

/// How things are set apart: by the terminal's own sixteen colours, or without colour.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub plain: Style,
    pub heading: Style,
    pub dim: Style,
    pub selected: Style,
    pub alarm: Style,
    pub warning: Style,
    pub good: Style,
    pub spark: Style,
    pub running: Style,
    pub runnable: Style,
    pub lock: Style,
    pub blocked: Style,
}

impl Palette {
    pub fn of(colour: Colour) -> Self {
        let plain = Style::new();
        let coloured = |colour_wanted| match colour {
            Colour::Always => plain.fg(colour_wanted),
            Colour::Never => plain,
        };
        let bold = |style: Style| style.add_modifier(Modifier::BOLD);
        Self {
            plain,
            heading: bold(plain),
            dim: plain.add_modifier(Modifier::DIM),
            selected: plain.add_modifier(Modifier::REVERSED),
            alarm: bold(coloured(Color::Red)),
            warning: coloured(Color::Yellow),
            good: coloured(Color::Green),
            spark: coloured(Color::Cyan),
            running: coloured(Color::Green),
            runnable: coloured(Color::Yellow),
            lock: coloured(Color::Red),
            blocked: coloured(Color::Blue),
        }
    }
}

/// A screen to draw on.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub palette: Palette,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, palette: Palette) -> Self {
        Self { buffer, palette }
    }

    pub fn area(&self) -> Rect {
        self.buffer.area
    }

    /// Writes a line of text at the top of an area, cut to its width. Returns the area right of it.
    pub fn text(&mut self, area: Rect, text: &str, style: Style) -> Rect {
        let area = area.intersection(self.buffer.area);
        if area.is_empty() {
            return area;
        }
        let text = cut_end(&escaped(text), area.width.into());
        let (end, _) = self.buffer.set_stringn(area.x, area.y, text, area.width.into(), style);
        Rect { x: end, width: area.right().saturating_sub(end), ..area }
    }

    /// Writes a line of text that ends at the right end of an area. Returns the area left of it.
    pub fn text_right(&mut self, area: Rect, text: &str, style: Style) -> Rect {
        let width = u16::try_from(unicode_width::UnicodeWidthStr::width(&*escaped(text))).unwrap_or(u16::MAX);
        let width = width.min(area.width);
        let begin = area.right() - width;
        self.text(Rect { x: begin, width, ..area }, text, style);
        Rect { width: area.width - width, ..area }
    }

    /// Sets all of an area apart.
    pub fn style(&mut self, area: Rect, style: Style) {
        self.buffer.set_style(area.intersection(self.buffer.area), style);
    }

    /// Clears an area, to draw over what is there.
    pub fn clear(&mut self, area: Rect) {
        let area = area.intersection(self.buffer.area);
        for position in area.positions() {
            self.buffer[position].reset();
        }
    }
}

/// A line of an area, counted from its top; empty where it has none.
pub fn line_of(area: Rect, line: u16) -> Rect {
    if line < area.height { Rect { y: area.y + line, height: 1, ..area } } else { Rect::ZERO }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that a name cannot steer the terminal, hide or reorder what stands there, nor write beyond its place.
    #[test]
    fn harmful_text_is_spelled_out_and_stays_in_its_area() {
        let mut buffer = Buffer::empty(Rect::new(0, 0, 40, 2));
        let mut canvas = Canvas::new(&mut buffer, Palette::of(Colour::Always));
        canvas.text(Rect::new(0, 0, 40, 1), "a\x1b[2J\u{202e}b\n\u{9b}", Style::new());
        canvas.text(Rect::new(0, 1, 4, 1), "too long", Style::new());
        canvas.text(Rect::new(38, 1, 90, 9), "beyond", Style::new());
        let line = |y| (0..40).map(|x| buffer[(x, y)].symbol().to_owned()).collect::<String>();
        assert_eq!(line(0).trim_end(), "a\\u{1b}[2J\\u{202e}b\\n\\u{9b}");
        assert!(line(1).starts_with("too… ") && line(1).ends_with(" b…"), "{:?}", line(1));
    }

    #[test]
    fn without_colour_nothing_has_a_colour() {
        let Palette { plain, heading, dim, selected, alarm, warning, good, spark, running, runnable, lock, blocked } =
            Palette::of(Colour::Never);
        for style in [plain, heading, dim, selected, alarm, warning, good, spark, running, runnable, lock, blocked] {
            assert_eq!((style.fg, style.bg), (None, None));
        }
        assert!(Palette::of(Colour::Always).alarm.fg.is_some());
    }
}
