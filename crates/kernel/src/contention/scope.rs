//! Whose waits are metered.

use std::os::fd::AsRawFd;

use libbpf_rs::{MapCore, MapFlags};

use super::skeleton;
use crate::cgroups::CgroupScope;
use crate::error::KernelError;
use crate::followed_processes::open_process;

/// Whose waits are metered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everybody's.
    Machine,
    /// A process, its threads, and the children it has from now on.
    Process(u32),
    /// The children that this process starts until [`lockmeter_profile::Source::command_started`] of the source.
    Children,
    /// The tasks of a control group and of those below it.
    Cgroup(CgroupScope),
}

impl Scope {
    pub(super) const fn follows_children(&self) -> bool {
        matches!(self, Self::Process(_) | Self::Children)
    }
}

/// Marks a process as followed, if it is not.
pub(super) fn follow(sleepers: &impl MapCore, pid: u32) -> Result<(), KernelError> {
    let process = open_process(pid)?;
    let sleeper = skeleton::types::sleeper { followed: 1, ..Default::default() };
    // SAFETY: the type is plain integers without padding, all of it initialised.
    let value =
        unsafe { std::slice::from_raw_parts((&raw const sleeper).cast::<u8>(), size_of::<skeleton::types::sleeper>()) };
    sleepers
        .update(&process.as_raw_fd().to_ne_bytes(), value, MapFlags::NO_EXIST)
        .map_err(|error| KernelError::from_libbpf(&format!("cannot follow process {pid}"), &error))
}
