//! What a thread is blocked for, by the names that lockmeter's JSON has.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    UserLock,
    KernelLock,
    FileLock,
    Condition,
    DiskIo,
    PageFault,
    NetworkOrPoll,
    PipeOrSocket,
    Sleep,
    Child,
    /// A futex, and lockmeter knows no more.
    Futex,
    Other,
}

impl Reason {
    const ALL: [(Self, &'static str); 12] = [
        (Self::UserLock, "user-lock"),
        (Self::KernelLock, "kernel-lock"),
        (Self::FileLock, "file-lock"),
        (Self::Condition, "condition"),
        (Self::DiskIo, "disk-io"),
        (Self::PageFault, "page-fault"),
        (Self::NetworkOrPoll, "network-or-poll"),
        (Self::PipeOrSocket, "pipe-or-socket"),
        (Self::Sleep, "sleep"),
        (Self::Child, "child"),
        (Self::Futex, "futex"),
        (Self::Other, "other"),
    ];

    /// `None` for what is no reason to be blocked, such as `running`.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(_, known)| *known == name).map(|(reason, _)| reason)
    }

    pub const fn is_lock(self) -> bool {
        matches!(self, Self::UserLock | Self::KernelLock | Self::FileLock)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(reason, _)| reason == self).map_or("", |(_, name)| *name);
        formatter.write_str(name)
    }
}
