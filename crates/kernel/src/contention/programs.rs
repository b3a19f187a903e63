//! The programs: loaded, attached, and steered.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};

use super::holds::hooked;
use super::mmap::{self, MmapTracepoints};
use super::scope::Scope;
use super::skeleton::types::cpu_state;
use super::skeleton::{ContentionSkel, ContentionSkelBuilder};
use super::tables::PROGRAMS;
use super::{Options, metered};
use crate::attaching::attach_one;
use crate::cost::Programs;
use crate::error::KernelError;
use crate::kernel_names::{self, KernelNames};
use crate::stack_budget::StackBudget;
use crate::switches::{DoubleBuffered, Pausable};

impl Programs<PROGRAMS> for ContentionSkel<'_> {
    fn programs(&self) -> [Option<BorrowedFd<'_>>; PROGRAMS] {
        let programs = &self.progs;
        [
            Some(programs.contention_begin.as_fd()),
            Some(programs.contention_end.as_fd()),
            Some(programs.sched_waking.as_fd()),
            metered::loaded([&programs.mmap_acquired, &programs.mmap_acquired_with_path]),
            metered::loaded([&programs.mmap_released, &programs.mmap_released_with_path]),
            metered::loaded([&programs.sched_switch]),
        ]
    }

    fn stack_ns(&self) -> u64 {
        self.maps.bss_data.as_deref().map_or(0, |bss| bss.stack_spent_ns)
    }
}

impl DoubleBuffered for ContentionSkel<'_> {
    fn active_buffer(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.active_buffer)
    }

    fn generation(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.data_data.as_deref_mut()?.generation)
    }
}

impl Pausable for ContentionSkel<'_> {
    fn resumed(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.resumed)
    }

    fn paused(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.data_data.as_deref_mut()?.paused)
    }
}

pub(super) fn load(
    options: &Options,
    names: &KernelNames,
    cpus: usize,
) -> Result<(ContentionSkel<'static>, Option<MmapTracepoints>), KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot load the contention programs", &error);
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = ContentionSkelBuilder::default().open(storage).map_err(refused)?;
    let cpus = u32::try_from(cpus).unwrap_or(1);
    open.maps.buffers.set_max_entries(cpus * 2).map_err(refused)?;
    open.progs.follow_children.set_autoload(options.scope.follows_children());
    let mmap_tracepoints = metered::choose(&mut open, &options.metered, options.stacks, cpus)?;
    hooked::choose(&mut open, options.metered.hooks());
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.cpus = cpus;
        match &options.scope {
            Scope::Machine => {}
            Scope::Processes(_) | Scope::Children => rodata.scope = 1,
            Scope::Cgroup(cgroup) => {
                rodata.scope = 2;
                rodata.scope_cgroup = cgroup.id;
                rodata.scope_cgroup_level = cgroup.level;
            }
        }
        match options.stacks {
            StackBudget::Share { ppm } => rodata.stack_budget_ppm = ppm,
            StackBudget::Every => rodata.every_stack = 1,
        }
        kernel_names::tell_programs!(names, rodata);
    }
    let skeleton = open.load().map_err(refused)?;
    tell_preempt_counts(&skeleton, &names.preempt_counts(), cpus).map_err(refused)?;
    Ok((skeleton, mmap_tracepoints))
}

/// Tells each CPU where its `preempt_count` is. Nothing is attached yet, so the rest of its state is zero.
fn tell_preempt_counts(skeleton: &ContentionSkel<'_>, addresses: &[u64], cpus: u32) -> libbpf_rs::Result<()> {
    let state = |cpu: usize| {
        let mut bytes = vec![0; size_of::<cpu_state>()];
        let at = std::mem::offset_of!(cpu_state, preempt_count_at);
        let address = addresses.get(cpu).copied().unwrap_or(0);
        bytes[at..at + size_of::<u64>()].copy_from_slice(&address.to_ne_bytes());
        bytes
    };
    let states: Vec<Vec<u8>> = (0..cpus as usize).map(state).collect();
    skeleton.maps.cpu_states.update_percpu(&0_u32.to_ne_bytes(), &states, MapFlags::ANY)
}

/// Attaches end before begin: a begin without its end would leave a wait open.
pub(super) fn attach(
    skeleton: &mut ContentionSkel<'_>,
    scope: &Scope,
    mmap_tracepoints: Option<MmapTracepoints>,
) -> Result<Vec<Link>, KernelError> {
    let mut links = vec![attach_one(&mut skeleton.progs.contention_end)?];
    if scope.follows_children() {
        links.push(attach_one(&mut skeleton.progs.follow_children)?);
    }
    if let Some(tracepoints) = mmap_tracepoints {
        links.extend(mmap::attach(skeleton, tracepoints, attach_one)?);
    }
    if skeleton.progs.sched_switch.autoload() {
        links.push(attach_one(&mut skeleton.progs.sched_switch)?);
    }
    links.push(attach_one(&mut skeleton.progs.contention_begin)?);
    Ok(links)
}
