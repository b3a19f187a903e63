//! CSV (RFC 4180) for spreadsheets and scripts.

use std::fmt::Write as _;
use std::io;

use lockmeter_profile::Report;

use crate::Exporter;
use crate::columns::{Cell, Column, Whole, columns};
use crate::escape::{Form, escaped};

/// A report as CSV: the columns' keys, then one record a row. Empty fields are not known; stacks are joined with `;`,
/// innermost first; a histogram is `shortest_ns:count:total_ns` joined with `;`. Text that a spreadsheet would take for a formula has
/// an apostrophe before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Csv;

impl Exporter for Csv {
    fn form(&self) -> Form {
        Form::CSV
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        let columns: Vec<&Column> = columns(&report.by).collect();
        write_records(&columns, &report.rows, &Whole::from(report), out)
    }
}

/// Writes the columns' keys, then each row.
pub(crate) fn write_records<R, W>(
    columns: &[&Column<R, W>],
    rows: &[R],
    whole: &W,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    write_record(columns.iter().map(|column| column.key.to_owned()), out)?;
    for row in rows {
        write_record(columns.iter().map(|column| field(column.cell(row, whole))), out)?;
    }
    Ok(())
}

fn field(cell: Cell<'_>) -> String {
    match cell {
        Cell::Missing => String::new(),
        Cell::Flag(yes) => yes.to_string(),
        Cell::Count(number) | Cell::Nanoseconds(number) | Cell::Millionths(number) => number.to_string(),
        Cell::Thousandths(number) => format!("{}.{:03}", number / 1_000, number % 1_000),
        Cell::SignedNanoseconds(change_ns) => change_ns.to_string(),
        Cell::Name(name) => text(name),
        Cell::Id(id) => id.to_string(),
        Cell::Address(address) => format!("{address:#018x}"),
        Cell::Frames(frames) => frames.iter().map(|frame| text(frame)).collect::<Vec<_>>().join(";"),
        Cell::Histogram(buckets) => {
            let mut joined = String::new();
            for (bucket, count, total_ns) in buckets {
                let separator = if joined.is_empty() { "" } else { ";" };
                let _ = write!(joined, "{separator}{}:{count}:{total_ns}", bucket.lower_ns());
            }
            joined
        }
    }
}

/// A name as a spreadsheet shows it. What begins like a formula gets an apostrophe (OWASP, "CSV Injection"), also behind a `;`, at
/// which spreadsheets of many languages divide a line.
fn text(name: &str) -> String {
    const BEGINS_FORMULA: [char; 10] = ['=', '+', '-', '@', '\t', '\r', '＝', '＋', '－', '＠'];
    let part = |part: &str| {
        let guard = if part.trim_start_matches(' ').starts_with(BEGINS_FORMULA) { "'" } else { "" };
        format!("{guard}{}", escaped(part))
    };
    name.split(';').map(part).collect::<Vec<_>>().join(";")
}

/// Writes one record; fields with a comma, a quote or a line break are quoted, as RFC 4180 wants it.
fn write_record(fields: impl Iterator<Item = String>, out: &mut dyn io::Write) -> io::Result<()> {
    for (at, field) in fields.enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        if field.contains([',', '"', '\r', '\n']) {
            write!(out, "\"{}\"", field.replace('"', "\"\""))?;
        } else {
            out.write_all(field.as_bytes())?;
        }
    }
    out.write_all(b"\r\n")
}
