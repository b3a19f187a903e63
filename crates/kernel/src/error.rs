//! The one error of this crate.

use std::fmt;

use lockmeter_symbols::{SymbolsError, SymbolsErrorKind};

use crate::lockdown;

/// What went wrong, for callers that react to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A capability or a policy of the kernel is in the way.
    NotPermitted,
    /// The kernel has no type information about itself (`CONFIG_DEBUG_INFO_BTF`).
    NoTypeInformation,
    /// The kernel lacks the tracepoints or program types that are needed.
    KernelTooOld,
    /// No process of this id, or it has exited.
    NoSuchProcess,
    /// The id names a thread, not a process.
    NotAProcess,
    /// The process has no locks of its own: it is a thread of the kernel.
    NoUserLocks,
    /// No such control group, or not one of the unified hierarchy.
    NoSuchCgroup,
    /// A file that was given is of another kernel.
    OtherKernel,
    /// Anything else that the kernel refused.
    Refused,
}

/// Why the kernel could not be metered: one sentence that says what, where and what to do.
#[derive(Debug, Clone)]
pub struct KernelError {
    kind: ErrorKind,
    message: String,
}

impl KernelError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// What went wrong.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Asked first, so that a user without privileges hears of all that are missing, not of the one that fails first.
    pub(crate) fn unless_privileged(doing: &str) -> Result<(), Self> {
        if may_load_programs() { Ok(()) } else { Err(Self::not_permitted(doing)) }
    }

    fn not_permitted(doing: &str) -> Self {
        Self::new(
            ErrorKind::NotPermitted,
            format!(
                "{doing}: not permitted; run as root, or with the capabilities CAP_BPF, CAP_PERFMON and CAP_SYSLOG \
                 (`lockmeter doctor` shows what is missing)"
            ),
        )
    }

    /// What the kernel's symbols and types could not tell.
    pub(crate) fn from_symbols(error: &SymbolsError) -> Self {
        let kind = match error.kind() {
            SymbolsErrorKind::AddressesHidden => ErrorKind::NotPermitted,
            SymbolsErrorKind::MissingField => ErrorKind::KernelTooOld,
            SymbolsErrorKind::OtherKernel => ErrorKind::OtherKernel,
            _ => ErrorKind::NoTypeInformation,
        };
        Self::new(kind, error.to_string())
    }

    /// Sorts what libbpf answered while `doing` something into a kind, with how to fix it.
    pub(crate) fn from_libbpf(doing: &str, error: &libbpf_rs::Error) -> Self {
        use libbpf_rs::ErrorKind as Libbpf;
        match error.kind() {
            // The verifier says the same when it rejects a program, no matter who asks.
            Libbpf::PermissionDenied if !may_load_programs() => Self::not_permitted(doing),
            // The kernel answers that it does not know the function that reads its memory.
            Libbpf::InvalidInput | Libbpf::PermissionDenied
                if lockdown::level() == Some(lockdown::Level::Confidentiality) =>
            {
                Self::new(
                    ErrorKind::NotPermitted,
                    format!(
                        "{doing}: the kernel is locked down (confidentiality), so BPF programs may not read its memory; {}",
                        lockdown::HOW_TO_ALLOW
                    ),
                )
            }
            _ => Self::new(
                ErrorKind::Refused,
                format!(
                    "{doing}: {error:#}; `lockmeter doctor` shows what this kernel allows, LOCKMETER_DEBUG=1 the kernel's own \
                    message"
                ),
            ),
        }
    }
}

/// Capabilities by their bit in `/proc/self/status`.
pub(crate) const CAP_SYS_ADMIN: u32 = 21;
pub(crate) const CAP_PERFMON: u32 = 38;
pub(crate) const CAP_BPF: u32 = 39;

/// Whether this process has a capability.
pub(crate) fn has_capability(capability: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> capability & 1 == 1)
}

/// Whether the privileges for loading and attaching programs are there.
pub fn may_load_programs() -> bool {
    has_capability(CAP_SYS_ADMIN) || has_capability(CAP_BPF) && has_capability(CAP_PERFMON)
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for KernelError {}
