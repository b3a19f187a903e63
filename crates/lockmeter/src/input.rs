//! Recordings as input: files, pipes and standard input, each read once.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_profile::RecordingKind;
use lockmeter_profile::recording::{RecordingError, RecordingReader};

use crate::rule_files;

/// Whether this names standard input.
pub fn is_standard_input(path: &Path) -> bool {
    path == Path::new("-")
}

/// Standard input can be read only once.
pub fn refuse_standard_input_twice<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> Result<()> {
    match paths.filter(|path| is_standard_input(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(Failure::error(Status::Usage, "only one of the recordings can be standard input; name a file")),
    }
}

/// Opens a recording; `-` is standard input.
pub fn open(path: &Path) -> Result<RecordingReader, RecordingError> {
    let mut recording = open_as_recorded(path)?;
    if let Some(rules) = rule_files::given() {
        recording.read_again_by(rules);
    }
    Ok(recording)
}

/// The same, whatever rules it is to be read again by.
pub fn open_as_recorded(path: &Path) -> Result<RecordingReader, RecordingError> {
    if is_standard_input(path) {
        RecordingReader::from_reader(io::stdin(), "standard input")
    } else {
        RecordingReader::open(path)
    }
}

/// What a recording is of; an error if only a newer lockmeter knows.
pub fn kind(path: &Path, recording: &RecordingReader) -> Result<RecordingKind> {
    recording.about().kind.ok_or_else(|| {
        let sentence = format!(
            "{} is of a kind that this lockmeter does not know: lockmeter {} recorded it; use that version or a newer one",
            path.display(),
            recording.about().lockmeter_version
        );
        Failure::error(Status::BadInput, sentence)
    })
}

/// Opens a recording of locks, for a command that reads no other.
pub fn open_locks(path: &Path) -> Result<RecordingReader> {
    let recording = open(path)?;
    match kind(path, &recording)? {
        RecordingKind::Locks | RecordingKind::Mmap => Ok(recording),
        RecordingKind::Latency => {
            let path = path.display();
            let sentence = format!(
                "{path} was recorded by `lockmeter latency` and has no locks; `lockmeter report {path}` shows it"
            );
            Err(Failure::error(Status::BadInput, sentence))
        }
    }
}
