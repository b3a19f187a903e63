//! Answers, for people and for programs.

use std::io::{self, Write};

use clap::ValueEnum;

use lockmeter_render::escape::{Escaping, Form, escaped};
use lockmeter_render::grid::{Grid, GridColumn, GridRow, Line};
use serde_json::{Value as Json, json};

use crate::fleet::Coverage;

/// The version of the JSON: it rises when a field changes its meaning or goes.
const JSON_VERSION: u32 = 1;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A sentence and a table, for people
    Text,
    /// JSON, for programs
    Json,
}

/// A column for people.
#[derive(Debug)]
pub struct Heading {
    name: String,
    is_number: bool,
}

impl Heading {
    /// Of numbers.
    pub fn number(name: &str) -> Self {
        Self { name: name.to_uppercase(), is_number: true }
    }

    /// Of names.
    pub fn name(name: &str) -> Self {
        Self { name: name.to_uppercase().replace('_', " "), is_number: false }
    }
}

/// What there is to say.
#[derive(Debug)]
pub struct Answer {
    /// The answer in a sentence.
    pub sentence: String,
    /// What was read for it, of each window.
    pub coverage: Vec<(&'static str, Coverage)>,
    /// The columns for people.
    pub headings: Vec<Heading>,
    /// Their cells.
    pub cells: Vec<Vec<String>>,
    /// The rows for programs.
    pub rows: Vec<Json>,
}

impl Answer {
    /// Writes it, as wide as `width`.
    pub fn write(self, format: Format, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => self.write_text(width, &mut Escaping::text(out)),
            Format::Json => {
                let mut whole = json!({ "version": JSON_VERSION, "answer": self.sentence, "rows": self.rows });
                for (name, coverage) in &self.coverage {
                    whole[*name] = coverage.json();
                }
                let mut out = Escaping::new(out, Form::JSON);
                serde_json::to_writer_pretty(&mut out, &whole)?;
                writeln!(out)
            }
        }
    }

    fn write_text(self, width: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", escaped(&self.sentence))?;
        for (name, coverage) in &self.coverage {
            let of = if self.coverage.len() > 1 { format!("{name}: ") } else { String::new() };
            for sentence in coverage.sentences() {
                writeln!(out, "{of}{}", escaped(&sentence))?;
            }
        }
        let column = |heading: Heading| GridColumn {
            heading: heading.name,
            right: heading.is_number,
            expendable: None,
            may_be_cut: !heading.is_number,
        };
        let row = |cells: Vec<String>| GridRow {
            cells: cells.iter().map(|cell| escaped(cell).into_owned()).collect(),
            below: Vec::new(),
        };
        let mut grid = Grid {
            columns: self.headings.into_iter().map(column).collect(),
            rows: self.cells.into_iter().map(row).collect(),
        };
        if grid.rows.is_empty() {
            return Ok(());
        }
        if let Some(width) = width {
            grid.fit(width);
        }
        writeln!(out)?;
        for line in grid.lines() {
            let (Line::Heading(line) | Line::Cells(line) | Line::Below(line)) = line;
            writeln!(out, "{line}")?;
        }
        Ok(())
    }
}

/// A value as a cell.
pub fn name(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
