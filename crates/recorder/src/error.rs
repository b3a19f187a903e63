//! Why something cannot be metered.

use std::fmt;
use std::io;

use lockmeter_kernel::{ErrorKind, KernelError};
use lockmeter_meter::reader::{SessionError, SessionErrorKind};

/// What kind of error it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecorderErrorKind {
    /// What was asked for makes no sense together.
    Usage,
    /// This kernel or these privileges do not allow it.
    NotAllowed,
    /// No such process or control group, or it has no locks of its own.
    NoTarget,
    /// The command was not found.
    NotFound,
    /// The command cannot be executed.
    NotExecutable,
    /// Anything else.
    Failed,
}

/// Why something cannot be metered: one sentence that says what, where and what to do.
#[derive(Debug)]
pub struct RecorderError {
    kind: RecorderErrorKind,
    sentence: String,
}

impl RecorderError {
    /// An error of this kind.
    pub fn new(kind: RecorderErrorKind, sentence: impl Into<String>) -> Self {
        Self { kind, sentence: sentence.into() }
    }

    /// What kind of error it is.
    pub const fn kind(&self) -> RecorderErrorKind {
        self.kind
    }

    /// The same error, with what was tried before its sentence.
    pub(crate) fn after(self, tried: &str) -> Self {
        Self { sentence: format!("{tried}: {}", self.sentence), ..self }
    }

    pub(crate) fn usage(sentence: impl Into<String>) -> Self {
        Self::new(RecorderErrorKind::Usage, sentence)
    }

    pub(crate) fn not_allowed(sentence: impl Into<String>) -> Self {
        Self::new(RecorderErrorKind::NotAllowed, sentence)
    }

    pub(crate) fn failed(sentence: impl Into<String>) -> Self {
        Self::new(RecorderErrorKind::Failed, sentence)
    }
}

impl fmt::Display for RecorderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl std::error::Error for RecorderError {}

impl From<KernelError> for RecorderError {
    fn from(error: KernelError) -> Self {
        let kind = match error.kind() {
            ErrorKind::NoSuchProcess | ErrorKind::NotAProcess | ErrorKind::NoSuchCgroup | ErrorKind::NoUserLocks => {
                RecorderErrorKind::NoTarget
            }
            ErrorKind::OtherKernel => RecorderErrorKind::Usage,
            _ => RecorderErrorKind::NotAllowed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<SessionError> for RecorderError {
    fn from(error: SessionError) -> Self {
        let kind = match error.kind() {
            SessionErrorKind::NotMetered => RecorderErrorKind::NoTarget,
            _ => RecorderErrorKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}

impl From<io::Error> for RecorderError {
    fn from(error: io::Error) -> Self {
        Self::failed(error.to_string())
    }
}
