//! What can go wrong with a recording file.

use std::fmt;
use std::io;
use std::path::Path;

/// Why a recording could not be read or written.
///
/// Its text is one sentence: what happened, where, and what to do.
#[derive(Debug)]
pub struct RecordingError {
    kind: RecordingErrorKind,
    sentence: String,
    source: Option<io::Error>,
}

/// What a program can tell apart about a [`RecordingError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingErrorKind {
    /// The file is something else.
    NotARecording,
    /// A newer lockmeter wrote it.
    NewerVersion {
        /// The version in the file.
        found: u32,
        /// The newest version that this lockmeter reads.
        known: u32,
    },
    /// The file is empty, or ends before the description of the recording is complete.
    Empty,
    /// The head of the file, without which the rest means nothing, is damaged.
    DamagedHead,
    /// The output exists and is not a recording: it is left alone.
    WouldOverwrite,
    /// The output, or a link that leads to it, belongs to another user.
    NotOurs,
    /// An interval is larger than a reader would accept.
    TooLarge,
    /// Reading on would cost more time or memory than a recording of this size can need.
    TooCostly,
    /// The operating system refused; the disk is full when this holds [`io::ErrorKind::StorageFull`].
    Io(io::ErrorKind),
}

impl RecordingError {
    /// Which error it is.
    pub fn kind(&self) -> RecordingErrorKind {
        self.kind
    }

    pub(super) fn new(kind: RecordingErrorKind, sentence: String) -> Self {
        Self { kind, sentence, source: None }
    }

    /// `did` says what was tried: `cannot read`, `cannot write`.
    pub(super) fn io(did: &str, name: &str, error: io::Error) -> Self {
        let kind = error.kind();
        let mend = match kind {
            io::ErrorKind::NotFound => "; check the path",
            io::ErrorKind::PermissionDenied => "; choose a place you may use, or run as its owner",
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "; make room or choose another disk with -o (what was recorded before is still readable)"
            }
            io::ErrorKind::FileTooLarge => {
                "; raise the limit on the size of files (ulimit -f) or record less (what was recorded before is still readable)"
            }
            io::ErrorKind::BrokenPipe => "; the program that read from it has ended",
            io::ErrorKind::IsADirectory => "; name a file",
            _ => "",
        };
        Self {
            kind: RecordingErrorKind::Io(kind),
            sentence: format!("{did} {name}: {error}{mend}"),
            source: Some(error),
        }
    }
}

impl fmt::Display for RecordingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for RecordingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|error| error as _)
    }
}

/// The name of a file as the error messages show it.
pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}
