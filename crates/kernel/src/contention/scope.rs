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
    /// Processes with their threads.
    Processes(ProcessScope),
    /// The children that this process starts until [`lockmeter_profile::Source::command_started`] of the source.
    Children,
    /// The tasks of a control group and of those below it.
    Cgroup(CgroupScope),
}

/// Running processes that are metered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessScope {
    /// Their ids.
    pub pids: Vec<u32>,
    /// Their children, too, and the children of these.
    pub with_children: bool,
}

impl Scope {
    /// One process, with its children.
    pub fn process(pid: u32) -> Self {
        Self::Processes(ProcessScope { pids: vec![pid], with_children: true })
    }

    /// The processes that it names.
    pub fn pids(&self) -> &[u32] {
        match self {
            Self::Processes(processes) => &processes.pids,
            _ => &[],
        }
    }

    pub(crate) const fn follows_children(&self) -> bool {
        match self {
            Self::Processes(processes) => processes.with_children,
            Self::Children => true,
            Self::Machine | Self::Cgroup(_) => false,
        }
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
