//! The one error of this crate.

use std::fmt;

/// What went wrong, to match on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SymbolsErrorKind {
    /// A file that the kernel provides could not be read.
    Unreadable,
    /// `/proc/kallsyms` shows every address as zero (`kernel.kptr_restrict`, or `CAP_SYSLOG` is missing).
    AddressesHidden,
    /// The kernel carries no type information (`/sys/kernel/btf/vmlinux` is absent).
    NoTypeInformation,
    /// Type information is damaged or of a form that this version does not know.
    BadTypeInformation,
    /// A type or field that is needed is not in this kernel's type information.
    MissingField,
    /// A file is of another kernel than the one that runs.
    OtherKernel,
    /// Kernel memory did not hold what was expected there.
    UnexpectedMemory,
}

/// Why symbols, types or lock names are not to be had.
#[derive(Debug)]
pub struct SymbolsError {
    kind: SymbolsErrorKind,
    message: String,
    source: Option<std::io::Error>,
}

impl SymbolsError {
    pub(crate) fn new(kind: SymbolsErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    pub(crate) fn io(kind: SymbolsErrorKind, message: impl Into<String>, source: std::io::Error) -> Self {
        Self { kind, message: message.into(), source: Some(source) }
    }

    /// What went wrong, to match on.
    pub const fn kind(&self) -> SymbolsErrorKind {
        self.kind
    }
}

impl fmt::Display for SymbolsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SymbolsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
