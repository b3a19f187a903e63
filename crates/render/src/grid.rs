//! Aligned text: cells in columns, with free lines below a row.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Between two columns.
const GAP: usize = 2;

/// Names are cut to these widths, the second only where the first does not suffice.
const SHORTEST_NAMES: [usize; 2] = [16, 8];

/// Columns are left out only for names up to a third of the width, within these bounds; the rest of a longer name is worth less than a
/// number.
const COMFORTABLE_NAMES: std::ops::RangeInclusive<usize> = 22..=48;

/// Stay on the line of the number before them.
const UNITS: [&str; 7] = ["%", "ns", "µs", "ms", "s", "min", "h"];

/// One column of a grid.
#[derive(Debug, Clone)]
pub struct GridColumn {
    /// What stands above it.
    pub heading: String,
    /// Numbers align to the right.
    pub right: bool,
    /// The column with the lowest rank is left out first where the width does not suffice; `None` never.
    pub expendable: Option<u8>,
    /// Names may be cut in the middle, numbers may not.
    pub may_be_cut: bool,
}

/// One row: a cell for each column, and lines that belong below it.
#[derive(Debug, Clone, Default)]
pub struct GridRow {
    /// In the order of the columns.
    pub cells: Cells,
    /// Printed below the row, indented.
    pub below: Vec<String>,
}

/// The cells of a row, in one text: a report may have hundreds of thousands of rows.
#[derive(Debug, Clone, Default)]
pub struct Cells {
    text: String,
    /// Where each ends.
    ends: Vec<u32>,
}

impl Cells {
    fn get(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[at] as usize]
    }

    /// In their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.ends.len()).map(|at| self.get(at))
    }

    fn remove(&mut self, removed: usize) {
        *self = self.iter().enumerate().filter(|(at, _)| *at != removed).map(|(_, cell)| cell.to_owned()).collect();
    }

    fn set(&mut self, changed: usize, text: &str) {
        let cells = self.iter().enumerate().map(|(at, cell)| if at == changed { text } else { cell }.to_owned());
        *self = cells.collect();
    }
}

impl FromIterator<String> for Cells {
    fn from_iter<I: IntoIterator<Item = String>>(cells: I) -> Self {
        let mut all = Self::default();
        for cell in cells {
            all.text.push_str(&cell);
            // A cell is far shorter: names are cut where they are read.
            all.ends.push(u32::try_from(all.text.len()).unwrap_or(u32::MAX));
        }
        all.text.shrink_to_fit();
        all.ends.shrink_to_fit();
        all
    }
}

/// Rows and columns of text.
#[derive(Debug, Clone, Default)]
pub struct Grid {
    /// The columns, from left to right.
    pub columns: Vec<GridColumn>,
    /// The rows, from top to bottom.
    pub rows: Vec<GridRow>,
}

/// A line of a laid-out grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The headings.
    Heading(String),
    /// The cells of a row.
    Cells(String),
    /// A line below a row.
    Below(String),
}

impl Grid {
    /// Makes the grid fit `width`: leaves columns out by rank, then cuts names. Returns the headings of what was left out.
    pub fn fit(&mut self, width: usize) -> Vec<String> {
        let mut left_out = Vec::new();
        let comfortable = (width / 3).clamp(*COMFORTABLE_NAMES.start(), *COMFORTABLE_NAMES.end());
        while self.width_with_names_up_to(comfortable) > width {
            let ranked = self.columns.iter().enumerate();
            let Some((_, at)) = ranked.filter_map(|(at, column)| Some((column.expendable?, at))).min() else { break };
            left_out.push(self.columns.remove(at).heading);
            for row in &mut self.rows {
                row.cells.remove(at);
            }
        }
        for shortest in SHORTEST_NAMES {
            self.cut_names(width, shortest);
        }
        for below in self.rows.iter_mut().flat_map(|row| &mut row.below) {
            *below = cut_end(below, width);
        }
        left_out
    }

    /// Cuts the widest names until the grid is no wider than `width`, or none is longer than `shortest`.
    fn cut_names(&mut self, width: usize, shortest: usize) {
        let widths = self.widths();
        let mut excess = self.width_with_names_up_to(usize::MAX).saturating_sub(width);
        let mut names: Vec<usize> = (0..self.columns.len()).filter(|at| self.columns[*at].may_be_cut).collect();
        names.sort_by_key(|at| std::cmp::Reverse(widths[*at]));
        for at in names {
            let cut = excess.min(widths[at].saturating_sub(shortest));
            if cut == 0 {
                continue;
            }
            excess -= cut;
            for row in &mut self.rows {
                row.cells.set(at, &cut_name(row.cells.get(at), widths[at] - cut));
            }
        }
    }

    fn widths(&self) -> Vec<usize> {
        let widest = |(at, column): (usize, &GridColumn)| {
            let cells = self.rows.iter().map(|row| row.cells.get(at).width());
            cells.max().unwrap_or(0).max(column.heading.width())
        };
        self.columns.iter().enumerate().map(widest).collect()
    }

    fn width_with_names_up_to(&self, longest: usize) -> usize {
        let widths = self.widths().into_iter().zip(&self.columns);
        let widths = widths.map(|(width, column)| if column.may_be_cut { width.min(longest) } else { width });
        widths.sum::<usize>() + GAP * self.columns.len().saturating_sub(1)
    }

    /// The lines, without blanks at their ends.
    pub fn lines(&self) -> impl Iterator<Item = Line> {
        let widths = self.widths();
        let heading = self.line(self.columns.iter().map(|column| column.heading.as_str()), &widths);
        let of_row = move |row: &GridRow| {
            let cells = Line::Cells(self.line(row.cells.iter(), &widths));
            std::iter::once(cells).chain(row.below.iter().cloned().map(Line::Below).collect::<Vec<_>>())
        };
        std::iter::once(Line::Heading(heading)).chain(self.rows.iter().flat_map(of_row))
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>, widths: &[usize]) -> String {
        let mut line = String::new();
        for ((cell, column), width) in cells.zip(&self.columns).zip(widths) {
            let blanks = " ".repeat(width - cell.width());
            let (before, after) = if column.right { (blanks.as_str(), "") } else { ("", blanks.as_str()) };
            for part in [before, cell, after, &" ".repeat(GAP)] {
                line.push_str(part);
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// The first `width` columns of `text`.
fn start_of(text: impl Iterator<Item = char>, width: usize) -> Vec<char> {
    let mut left = width;
    text.take_while(|c| {
        let fits = c.width().unwrap_or(0) <= left;
        left = left.saturating_sub(c.width().unwrap_or(0));
        fits
    })
    .collect()
}

/// `text` in at most `width` columns: its beginning and `…`.
pub fn cut_end(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let start = start_of(text.chars(), width.saturating_sub(1));
    start.into_iter().collect::<String>().trim_end().to_owned() + "…"
}

/// A name in at most `width` columns. Of one with words in brackets behind it, those go first.
fn cut_name(name: &str, width: usize) -> String {
    if name.contains(" (") { cut_end(name, width) } else { cut_middle(name, width) }
}

/// `text` in at most `width` columns: its beginning, `…` and its end, which for a lock is the field.
fn cut_middle(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let kept = width.saturating_sub(1);
    let start = start_of(text.chars(), kept / 2);
    let end = start_of(text.chars().rev(), kept - kept / 2);
    start.into_iter().chain(['…']).chain(end.into_iter().rev()).collect()
}

/// `text` broken at blanks into lines of at most `width` columns; the lines after the first are indented.
pub fn wrap(text: &str, width: usize, indent: usize) -> Vec<String> {
    let begins = &text[..text.len() - text.trim_start().len()];
    let mut lines = vec![begins.to_owned()];
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_unit = |word: &str| UNITS.contains(&word.trim_end_matches(|c: char| c != '%' && c.is_ascii_punctuation()));
    for together in words.chunk_by(|_, next| is_unit(next)).map(|words| words.join(" ")) {
        let line = lines.last_mut().expect("there is always a line");
        let begun = !line.trim().is_empty();
        if begun && line.width() + 1 + together.width() > width {
            lines.push(" ".repeat(indent) + &together);
        } else {
            if begun {
                line.push(' ');
            }
            line.push_str(&together);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_cut_in_its_middle_and_a_wide_one_stays_aligned() {
        assert_eq!(cut_middle("ext4_inode_info.vfs_inode.i_rwsem", 17), "ext4_ino….i_rwsem");
        assert_eq!(cut_middle("short", 17), "short");
        assert_eq!(cut_end("a < b < c", 5), "a <…");
        let column =
            |heading: &str| GridColumn { heading: heading.into(), right: false, expendable: None, may_be_cut: true };
        let row =
            |task: &str| GridRow { cells: [task.to_owned(), "x".to_owned()].into_iter().collect(), below: Vec::new() };
        let grid = Grid { columns: vec![column("TASK"), column("LOCK")], rows: vec![row("検査"), row("ab")] };
        let lines: Vec<_> = grid.lines().collect();
        assert_eq!(lines[1], Line::Cells("検査  x".into()));
        assert_eq!(lines[2], Line::Cells("ab    x".into()));
    }

    #[test]
    fn a_long_sentence_is_broken_between_words() {
        assert_eq!(wrap("one two three", 8, 2), ["one two", "  three"]);
        assert_eq!(wrap("  one two", 6, 4), ["  one", "    two"]);
        assert_eq!(wrap("incompressible", 3, 0), ["incompressible"]);
        assert_eq!(wrap("some 12.0 µs, 1 %", 9, 0), ["some", "12.0 µs,", "1 %"]);
    }
}
