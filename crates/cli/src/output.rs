//! Where output goes: a terminal, a pipe or a file.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use lockmeter_profile::Report;
use lockmeter_profile::recording::{OutputFile, PipeWait, RecordingError, WaitForever};
use lockmeter_render::{Colour, Exporter, Table};
use rustix::termios::tcgetwinsize;

use crate::exit::{Failure, Status};

/// Whether this names standard output.
pub fn is_standard_output(path: &Path) -> bool {
    path == Path::new("-")
}

/// Opens the file, or standard output where none is named, or `-`.
pub fn open(path: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    open_until(path, Box::new(WaitForever))
}

/// As [`open`]; waits for the reader of a pipe as long as `wait` allows.
pub fn open_until(path: Option<&Path>, wait: Box<dyn PipeWait>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = path.filter(|path| !is_standard_output(path)) else {
        return Ok(Box::new(BufWriter::new(io::stdout())));
    };
    let file = OutputFile::create(path, wait).map_err(|error| Failure::error(Status::NoOutput, error.to_string()))?;
    Ok(Box::new(BufWriter::new(file)))
}

/// What went wrong while writing a recording.
pub fn cannot_write(error: RecordingError) -> anyhow::Error {
    Failure::error(Status::NoOutput, error.to_string())
}

/// What went wrong while writing, with the place; a reader that went away stays recognisable.
pub fn failed(path: Option<&Path>, error: io::Error) -> anyhow::Error {
    match path {
        _ if error.kind() == io::ErrorKind::BrokenPipe => error.into(),
        Some(path) if !is_standard_output(path) => {
            let mend = match error.kind() {
                io::ErrorKind::FileTooLarge => "raise the limit on the size of files (ulimit -f)",
                _ => "make room",
            };
            let sentence = format!("cannot write {}: {error}; {mend} or choose another place with -o", path.display());
            Failure::error(Status::NoOutput, sentence)
        }
        _ => Failure::error(Status::NoOutput, format!("cannot write to standard output: {error}")),
    }
}

/// Columns of what is no terminal, unless `COLUMNS` says how many.
const COLUMNS_OF_PIPES: u16 = 160;

/// A table that depends on nothing but what it shows.
pub fn plain_table(limit: usize, frames: usize) -> Table {
    Table { limit: (limit > 0).then_some(limit), frames, ..Table::default() }
}

/// A table as fits where it goes: as wide as a terminal, or as `COLUMNS` says.
pub fn table_for(terminal: &(impl IsTerminal + AsFd), limit: usize, frames: usize) -> Table {
    let is_terminal = terminal.is_terminal();
    let width = if is_terminal { size(terminal).0 } else { Some(columns_of_pipes()) };
    Table { width, colour: Colour::detect(is_terminal), ..plain_table(limit, frames) }
}

/// A table as fits a file, or standard output where none is named.
pub fn table_into(path: Option<&Path>, limit: usize, frames: usize) -> Table {
    match path {
        Some(path) if !is_standard_output(path) => plain_table(limit, frames),
        _ => table_for(&io::stdout(), limit, frames),
    }
}

/// Prints a table to standard error, where `record` says what it saw.
pub fn print_summary(report: &Report, limit: usize, frames: usize) {
    let stderr = io::stderr();
    // Nobody may be reading: the recording is written, and that is what counts.
    let table = Table { folds_small: true, ..table_for(&stderr, limit, frames) };
    let _ = table.write(report, &mut stderr.lock());
}

fn columns_of_pipes() -> u16 {
    let wanted = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    wanted.filter(|columns| *columns > 0).unwrap_or(COLUMNS_OF_PIPES)
}

/// Columns and rows of a terminal, where it says.
pub fn size(terminal: impl AsFd) -> (Option<u16>, Option<u16>) {
    let known = |value: u16| (value > 0).then_some(value);
    tcgetwinsize(terminal).map_or((None, None), |size| (known(size.ws_col), known(size.ws_row)))
}
