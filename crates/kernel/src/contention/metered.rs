//! What is metered beside the waits, and what this kernel has for it.

use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::btf::{Btf, BtfKind, types};
use libbpf_rs::{Link, MapCore, MapFlags, ProgramMut};

use lockmeter_profile::Kind;

use super::hooked::Hooks;
use super::skeleton::{ContentionSkel, OpenContentionSkel, types as tables};
use crate::error::{ErrorKind, KernelError};
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

/// How the tracepoints of `mmap_lock` hand over what they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MmapTracepoints {
    /// Address space, mode, success.
    Plain,
    /// With the path of the memory control group between them, which the kernel puts together for each event (up to 6.13).
    WithPath,
}

impl MmapTracepoints {
    /// Since when the kernel has them.
    pub const SINCE: &'static str = "5.11";

    /// How this kernel has them; `None` if it has not.
    pub fn find() -> Option<Self> {
        let btf = Btf::from_vmlinux().ok()?;
        let typedef = btf.type_by_name::<types::Typedef<'_>>("btf_trace_mmap_lock_released")?;
        let function = typedef.next_type()?.next_type().filter(|function| function.kind() == BtfKind::FuncProto)?;
        // The first parameter is the tracepoint's own.
        match types::FuncProto::try_from(function).ok()?.len() {
            3 => Some(Self::Plain),
            4 => Some(Self::WithPath),
            _ => None,
        }
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
    let tracepoints = if metered.mmap_holds() { Some(mmap_tracepoints()?) } else { None };
    let plain = tracepoints == Some(MmapTracepoints::Plain);
    let with_path = tracepoints == Some(MmapTracepoints::WithPath);
    open.progs.mmap_acquired.set_autoload(plain);
    open.progs.mmap_released.set_autoload(plain);
    open.progs.mmap_acquired_with_path.set_autoload(with_path);
    open.progs.mmap_released_with_path.set_autoload(with_path);
    let holds = metered.holds();
    open.maps.hold_halves.set_autocreate(holds).map_err(refused)?;
    open.maps.bss_held_locks.set_autocreate(holds).map_err(refused)?;
    open.progs.sched_switch.set_autoload(metered.contended_holds());
    open.maps.bss_accounts.set_autocreate(metered.contended_holds()).map_err(refused)?;
    open.maps.contended_locks.set_autocreate(metered.contended_holds()).map_err(refused)?;
    open.maps.hold_halves.set_max_entries(cpus * 2).map_err(refused)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.only_mmap_lock = u8::from(metered.only_mmap_lock());
        rodata.every_hold = u8::from(stacks == StackBudget::Every);
        rodata.contended_holds = u8::from(metered.contended_holds());
    }
    Ok(tracepoints)
}

fn mmap_tracepoints() -> Result<MmapTracepoints, KernelError> {
    MmapTracepoints::find().ok_or_else(|| {
        KernelError::new(
            ErrorKind::KernelTooOld,
            format!(
                "this kernel has no mmap_lock tracepoints: they came with Linux {} and need CONFIG_MMU; use such a kernel, or \
                 `--no-hold`, which needs only lock:contention_begin",
                MmapTracepoints::SINCE
            ),
        )
    })
}

/// Attaches the end of a hold before its begin: a begin without its end would leave a lock held.
pub(super) fn attach_mmap(
    skeleton: &mut ContentionSkel<'_>,
    tracepoints: MmapTracepoints,
    attach: impl Fn(&mut ProgramMut<'_>) -> Result<Link, KernelError>,
) -> Result<[Link; 2], KernelError> {
    let programs = &mut skeleton.progs;
    Ok(match tracepoints {
        MmapTracepoints::Plain => [attach(&mut programs.mmap_released)?, attach(&mut programs.mmap_acquired)?],
        MmapTracepoints::WithPath => {
            [attach(&mut programs.mmap_released_with_path)?, attach(&mut programs.mmap_acquired_with_path)?]
        }
    })
}

/// How many locks the table says are held.
pub(super) fn still_held(held_locks: &impl MapCore, watched: u32) -> u64 {
    let Ok(Some(bytes)) = held_locks.lookup(&0u32.to_ne_bytes(), MapFlags::ANY) else { return 0 };
    let held = bytes.chunks_exact(size_of::<tables::held>()).filter(|place| {
        // The first fields of `struct held`: the tag, the begin, and since which resumption.
        is_set(&place[..8]) && place[16..20] == watched.to_ne_bytes()
    });
    held.count() as u64
}

/// How many holds have begun and not ended that are in no table of all CPUs: of `mmap_lock`, not timed, and of hooked locks, by the task
/// that runs on a CPU.
pub(super) fn still_open(cpu_states: &impl MapCore, watched: u32) -> u64 {
    let Ok(Some(cpus)) = cpu_states.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY) else { return 0 };
    cpus.iter().map(|cpu| marks(cpu, watched) + open_holds(cpu, watched)).sum()
}

fn marks(cpu: &[u8], watched: u32) -> u64 {
    let marks = offset_of!(tables::cpu_state, untimed_marks);
    let marks = &cpu[marks..marks + size_of_field(|cpu: &tables::cpu_state| &cpu.untimed_marks)];
    if word_at(cpu, offset_of!(tables::cpu_state, marks_since)) != watched {
        return 0;
    }
    marks.chunks_exact(size_of::<u64>()).filter(|mark| is_set(mark)).count() as u64
}

fn open_holds(cpu: &[u8], watched: u32) -> u64 {
    let stacks = offset_of!(tables::cpu_state, open_holds);
    let stacks = &cpu[stacks..stacks + size_of_field(|cpu: &tables::cpu_state| &cpu.open_holds)];
    let current = stacks
        .chunks_exact(size_of::<tables::open_holds>())
        .filter(|stack| word_at(stack, offset_of!(tables::open_holds, resumed)) == watched);
    let holds = current
        .flat_map(|stack| stack[offset_of!(tables::open_holds, holds)..].chunks_exact(size_of::<tables::open_hold>()));
    // The first field is the key.
    holds.filter(|hold| is_set(&hold[..size_of::<u64>()])).count() as u64
}

fn word_at(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word))
}

fn is_set(word: &[u8]) -> bool {
    word.iter().any(|byte| *byte != 0)
}

const fn size_of_field<T, F>(_field: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// The one of several forms of a program that this kernel took.
pub(super) fn loaded<'a, const N: usize>(forms: [&'a ProgramMut<'_>; N]) -> Option<BorrowedFd<'a>> {
    forms.into_iter().find(|program| program.autoload()).map(AsFd::as_fd)
}
