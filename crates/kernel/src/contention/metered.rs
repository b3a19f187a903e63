//! What is metered beside the waits, and what this kernel has for it.

use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::ProgramMut;

use lockmeter_profile::Kind;

use super::holds::Hooks;
use super::mmap::{MmapTracepoints, needed_tracepoints};
use super::skeleton::OpenContentionSkel;
use crate::clock::tick_ns;
use crate::error::KernelError;
use crate::stack_budget::StackBudget;

/// What to meter.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Metered {
    /// Waits for every kernel lock.
    #[default]
    Waits,
    /// Waits for `mmap_lock` alone, by the memory control group of its address space.
    MmapLock {
        /// How long it is held, too.
        holds: bool,
    },
    /// Waits for every kernel lock, the contended part of the holds of locks that sleep, and more of holds.
    Holds {
        /// By function hooks; without, only those of `mmap_lock`, by its own tracepoints.
        hooks: Option<Hooks>,
    },
}

impl Metered {
    /// Whether `mmap_lock`'s own tracepoints are needed: hooks on all rwsems see it, too.
    fn mmap_holds(&self) -> bool {
        match self {
            Self::MmapLock { holds } => *holds,
            Self::Holds { hooks } => !hooks.as_ref().is_some_and(|hooks| hooks.kinds.contains(&Kind::Rwsem)),
            Self::Waits => false,
        }
    }

    /// Whether there are holds at all.
    pub(super) const fn holds(&self) -> bool {
        matches!(self, Self::MmapLock { holds: true } | Self::Holds { .. })
    }

    pub(super) const fn hooks(&self) -> Option<&Hooks> {
        match self {
            Self::Holds { hooks } => hooks.as_ref(),
            _ => None,
        }
    }

    /// Whether the contended part of the holds of locks that sleep is counted.
    pub(super) const fn contended_holds(&self) -> bool {
        matches!(self, Self::Holds { .. })
    }

    /// Whether waits for other locks than `mmap_lock` are left out.
    pub(super) const fn only_mmap_lock(&self) -> bool {
        matches!(self, Self::MmapLock { .. })
    }
}

/// Leaves programs and maps out that are not asked for.
pub(super) fn choose(
    open: &mut OpenContentionSkel<'_>,
    metered: &Metered,
    stacks: StackBudget,
    cpus: u32,
) -> Result<Option<MmapTracepoints>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot make the tables of holds", &error);
    let tracepoints = if metered.mmap_holds() { Some(needed_tracepoints()?) } else { None };
    let plain = tracepoints == Some(MmapTracepoints::Plain);
    let with_path = tracepoints == Some(MmapTracepoints::WithPath);
    open.progs.mmap_acquired.set_autoload(plain);
    open.progs.mmap_released.set_autoload(plain);
    open.progs.mmap_acquired_with_path.set_autoload(with_path);
    open.progs.mmap_released_with_path.set_autoload(with_path);
    let holds = metered.holds();
    open.maps.hold_buffers.set_autocreate(holds).map_err(refused)?;
    open.maps.bss_held_locks.set_autocreate(holds).map_err(refused)?;
    open.progs.sched_switch.set_autoload(metered.contended_holds());
    open.maps.bss_accounts.set_autocreate(metered.contended_holds()).map_err(refused)?;
    open.maps.contended_locks.set_autocreate(metered.contended_holds()).map_err(refused)?;
    open.maps.hold_buffers.set_max_entries(cpus * 2).map_err(refused)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.only_mmap_lock = u8::from(metered.only_mmap_lock());
        rodata.every_hold = u8::from(stacks == StackBudget::Every);
        rodata.tick_ns = tick_ns();
        rodata.contended_holds = u8::from(metered.contended_holds());
    }
    Ok(tracepoints)
}

/// The one of several forms of a program that this kernel took.
pub(super) fn loaded<'a, const N: usize>(forms: [&'a ProgramMut<'_>; N]) -> Option<BorrowedFd<'a>> {
    forms.into_iter().find(|program| program.autoload()).map(AsFd::as_fd)
}
