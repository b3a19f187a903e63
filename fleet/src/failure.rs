//! What ends with other than success, with its exit status: docs/reference/exit-codes.md lists them.
//!
//! `lockmeter-cli` has the same for the recorder, of whose errors it knows: with it, libbpf would have to be built here.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use lockmeter_profile::recording::RecordingError;
use lockmeter_render::escape::escaped;

/// Why something could not be done, in one sentence.
#[derive(Debug)]
pub struct Failure {
    status: u8,
    sentence: String,
}

const USAGE: u8 = 2;
const BAD_INPUT: u8 = 4;
const NO_OUTPUT: u8 = 6;

impl Failure {
    /// The command line makes no sense.
    pub fn usage(sentence: String) -> Self {
        Self { status: USAGE, sentence }
    }

    /// The input is no recording that can be exported.
    pub fn input(sentence: String) -> Self {
        Self { status: BAD_INPUT, sentence }
    }

    /// Nothing can be written there.
    pub fn output(path: &Path, error: impl fmt::Display) -> Self {
        Self { status: NO_OUTPUT, sentence: format!("cannot write {}: {error}", path.display()) }
    }

    /// Prints the sentence and gives the exit status.
    pub fn report(&self) -> ExitCode {
        say(self);
        self.status.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for Failure {}

impl From<RecordingError> for Failure {
    fn from(error: RecordingError) -> Self {
        Self::input(error.to_string())
    }
}

/// Prints one sentence for people; what names in it hold is escaped. The reader may be gone.
pub fn say(sentence: impl fmt::Display) {
    let _ = writeln!(std::io::stderr(), "lockmeter-fleet: {}", escaped(&sentence.to_string()));
}
