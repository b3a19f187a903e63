//! Exit statuses, and how an error reaches the user.

use std::io::{self, Write};
use std::process::ExitCode;

use lockmeter_kernel::{ErrorKind, KernelError};
use lockmeter_meter::reader::{SessionError, SessionErrorKind};
use lockmeter_profile::recording::{RecordingError, RecordingErrorKind};
use lockmeter_recorder::{RecorderError, RecorderErrorKind};
use lockmeter_render::escape::{Escaping, is_harmful};

use crate::messages::{program, say};

/// Why a program of lockmeter's ends with other than success. `lockmeter --help` and the user guide list them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// Anything without a status of its own.
    Failed = 1,
    /// The command line makes no sense (the status of clap, too).
    Usage = 2,
    /// This kernel or these privileges do not allow it; `lockmeter doctor` says what is missing.
    NotAllowed = 3,
    /// The input is not a readable recording.
    BadInput = 4,
    /// No such process, control group or command.
    NoTarget = 5,
    /// The output could not be written; what was recorded before is kept.
    NoOutput = 6,
    /// The metered command is not executable, as a shell says it.
    NotExecutable = 126,
    /// The metered command was not found, as a shell says it.
    NotFound = 127,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// An error that knows its exit status.
#[derive(Debug)]
pub struct Failure {
    status: Status,
    sentence: String,
}

impl Failure {
    /// An error with its status; the sentence says what, where and what to do.
    pub fn error(status: Status, sentence: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self { status, sentence: sentence.into() })
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

/// Prints the error in one sentence and gives its exit status. A reader that went away (`| head`) is no error.
pub fn report(error: &anyhow::Error) -> ExitCode {
    if error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe))
    {
        return ExitCode::SUCCESS;
    }
    say(format_args!("{}: {}", program(), sentence(error)));
    status(error).into()
}

/// Prints what is wrong with the command line, or the help that it asked for, and gives the exit status. An argument may be a file's
/// name that the shell put there.
pub fn command_line(error: &clap::Error) -> ExitCode {
    // A reader that went away is no error.
    let _ = if std::env::args_os().any(|argument| argument.to_string_lossy().contains(is_harmful)) {
        Escaping::text(io::stderr()).write_all(error.render().to_string().as_bytes())
    } else {
        error.print()
    };
    u8::try_from(error.exit_code()).map_or(Status::Usage.into(), ExitCode::from)
}

/// The error and its causes, without those that it has already put into its own words.
fn sentence(error: &anyhow::Error) -> String {
    let mut sentence = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if sentence.is_empty() {
            sentence = cause;
        } else if !sentence.contains(&cause) {
            sentence = format!("{sentence}: {cause}");
        }
    }
    sentence
}

/// Only writing runs out of room.
fn is_full(kind: io::ErrorKind) -> bool {
    matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge)
}

fn status(error: &anyhow::Error) -> Status {
    if let Some(failure) = error.downcast_ref::<Failure>() {
        return failure.status;
    }
    if let Some(kernel) = error.downcast_ref::<KernelError>() {
        return match kernel.kind() {
            ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup | ErrorKind::NoUserLocks => {
                Status::NoTarget
            }
            _ => Status::NotAllowed,
        };
    }
    if let Some(recorder) = error.downcast_ref::<RecorderError>() {
        return match recorder.kind() {
            RecorderErrorKind::Usage => Status::Usage,
            RecorderErrorKind::NotAllowed => Status::NotAllowed,
            RecorderErrorKind::NoTarget => Status::NoTarget,
            RecorderErrorKind::NotFound => Status::NotFound,
            RecorderErrorKind::NotExecutable => Status::NotExecutable,
            RecorderErrorKind::Failed => Status::Failed,
        };
    }
    if let Some(session) = error.downcast_ref::<SessionError>() {
        return match session.kind() {
            SessionErrorKind::NotMetered => Status::NoTarget,
            _ => Status::Failed,
        };
    }
    if let Some(recording) = error.downcast_ref::<RecordingError>() {
        return match recording.kind() {
            RecordingErrorKind::WouldOverwrite => Status::NoOutput,
            _ => Status::BadInput,
        };
    }
    if error.downcast_ref::<io::Error>().is_some_and(|error| is_full(error.kind())) {
        return Status::NoOutput;
    }
    Status::Failed
}
