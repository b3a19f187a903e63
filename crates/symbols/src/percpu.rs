//! Per-CPU variables without data symbols.
//!
//! Type information knows where each per-CPU variable lies in its section, not where a CPU's copy of the section
//! begins. A task group knows the address of every CPU's run queue, which is one of those variables; the difference is
//! the copy's start.

use lockmeter_profile::Kind;

use crate::btf::{Btf, TypeKind};
use crate::evidence::IN_EVERYTHING;
use crate::fields::LockTypes;
use crate::kernel_symbols::KernelSymbols;
use crate::memory::KernelMemory;

const SECTION: &str = ".data..percpu";

/// More CPUs than any kernel is built for: a list longer than this is damage.
const MOST_CPUS: u32 = 8192;

/// Where each CPU keeps its copy of the per-CPU variables. No copy begins at address 0.
#[derive(Debug, Default)]
pub(crate) struct PerCpu {
    section: Option<u32>,
    section_bytes: u64,
    /// Start of each CPU's copy, by its number; 0 where it is not known.
    by_cpu: Vec<u64>,
    /// Those that are known, sorted.
    bases: Vec<u64>,
}

/// The lock in a per-CPU variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PerCpuLock {
    pub name: String,
    /// The variable's type, where it is a struct.
    pub object: Option<String>,
    pub variable: String,
}

impl PerCpu {
    pub fn find(btf: &Btf, symbols: &KernelSymbols, memory: &impl KernelMemory, task: u64) -> Self {
        let section = btf.by_name(TypeKind::Section, SECTION).next();
        let section_bytes = section.and_then(|id| btf.size_of(id)).unwrap_or(0);
        let by_cpu = bases_from_run_queues(btf, memory, task)
            .or_else(|| bases_from_offsets(symbols, memory))
            .unwrap_or_default();
        let mut bases: Vec<u64> = by_cpu.iter().copied().filter(|base| *base != 0).collect();
        bases.sort_unstable();
        Self { section, section_bytes, by_cpu, bases }
    }

    /// How many CPUs' copies are known.
    pub fn cpus(&self) -> usize {
        self.bases.len()
    }

    /// The address of a variable on each CPU, by its number; 0 where it is not known. None if there is no such variable.
    pub fn copies_of(&self, btf: &Btf, name: &str) -> Option<Vec<u64>> {
        let is_named = |id| btf.get(id).is_some_and(|variable| variable.name() == name);
        let placed = btf.get(self.section?)?.variables().find(|placed| is_named(placed.variable_id))?;
        let copy = |base: &u64| if *base == 0 { 0 } else { base.wrapping_add(u64::from(placed.offset)) };
        Some(self.by_cpu.iter().map(copy).collect())
    }

    /// Where the first CPU's copy starts.
    pub fn first_base(&self) -> Option<u64> {
        self.bases.first().copied()
    }

    /// The offset of an address in its CPU's copy of the section, which is the same for all CPUs.
    pub fn offset_of(&self, address: u64) -> Option<u32> {
        let base = *self.bases.get(self.bases.partition_point(|base| *base <= address).checked_sub(1)?)?;
        let offset = address - base;
        (offset < self.section_bytes).then(|| u32::try_from(offset).ok()).flatten()
    }

    /// The lock at an address in some CPU's copy.
    pub fn lock_at(&self, btf: &Btf, locks: LockTypes, address: u64, kind: Kind) -> Option<PerCpuLock> {
        let offset = self.offset_of(address)?;
        let placed = btf
            .get(self.section?)?
            .variables()
            .find(|placed| offset.checked_sub(placed.offset).is_some_and(|inside| inside < placed.size))?;
        let variable = btf.get(placed.variable_id)?;
        let inside = u64::from(offset - placed.offset);
        if let Some(path) = locks.at_or_element(btf, variable.target(), inside, kind) {
            let variable = variable.name().to_owned();
            let object = path.name.split('.').next().unwrap_or("").to_owned();
            // Of a variable that is a lock or another everyday type, the variable's own name tells more.
            let is_telling = path.name.contains('.') && !IN_EVERYTHING.contains(&object.as_str());
            let field = path.name.split_once('.').map(|(_, field)| format!(".{field}")).unwrap_or_default();
            return Some(match is_telling {
                true => PerCpuLock { name: path.name, object: Some(object), variable },
                false => PerCpuLock { name: format!("{variable}{field}"), object: None, variable },
            });
        }
        let name = if inside == 0 { variable.name().to_owned() } else { format!("{}+{inside:#x}", variable.name()) };
        Some(PerCpuLock { name, object: None, variable: variable.name().to_owned() })
    }
}

impl LockTypes {
    /// As [`LockTypes::at`], for a variable that may be an array.
    fn at_or_element(self, btf: &Btf, id: u32, offset: u64, kind: Kind) -> Option<crate::fields::LockPath> {
        let (_, found) = btf.strip(id)?;
        match found.array() {
            Some((element, _)) => self.at(btf, element, offset % btf.size_of(element).filter(|size| *size > 0)?, kind),
            None => self.at(btf, id, offset, kind),
        }
    }
}

/// `task->sched_task_group->cfs_rq[cpu]->rq` is a CPU's run queue (`CONFIG_FAIR_GROUP_SCHED`).
fn bases_from_run_queues(btf: &Btf, memory: &impl KernelMemory, task: u64) -> Option<Vec<u64>> {
    let section = btf.get(btf.by_name(TypeKind::Section, SECTION).next()?)?;
    let named = |placed: &crate::btf::Placed| {
        btf.get(placed.variable_id).is_some_and(|variable| variable.name() == "runqueues")
    };
    let run_queues = u64::from(section.variables().find(named)?.offset);
    let at = |struct_name, path| btf.offset_of(struct_name, path).map(u64::from);
    let read = |address: u64| memory.read_u64(address).ok().filter(|value| *value != 0);

    let group = read(task.wrapping_add(at("task_struct", "sched_task_group")?))?;
    let queues = read(group.wrapping_add(at("task_group", "cfs_rq")?))?;
    let (queue_to_run_queue, run_queue_cpu) = (at("cfs_rq", "rq")?, at("rq", "cpu")?);
    let base = |cpu: u32| {
        let queue = read(queues.wrapping_add(u64::from(cpu) * 8))?;
        let run_queue = read(queue.wrapping_add(queue_to_run_queue))?;
        let is_its_own = memory.read_u32(run_queue.wrapping_add(run_queue_cpu)) == Ok(cpu);
        is_its_own.then(|| run_queue.wrapping_sub(run_queues))
    };
    let bases: Vec<u64> = (0..possible_cpus().min(MOST_CPUS)).map(|cpu| base(cpu).unwrap_or(0)).collect();
    bases.iter().any(|base| *base != 0).then_some(bases)
}

/// `__per_cpu_offset[cpu]` is the distance from the section as linked to a CPU's copy.
fn bases_from_offsets(symbols: &KernelSymbols, memory: &impl KernelMemory) -> Option<Vec<u64>> {
    let offsets = symbols.address_of("__per_cpu_offset")?;
    // Where the section was linked at 0 (x86-64 before 6.15) this symbol is absolute and so not in the table.
    let linked_at = symbols.address_of("__per_cpu_start").unwrap_or(0);
    let bases = (0..possible_cpus().min(MOST_CPUS))
        .map(|cpu| memory.read_u64(offsets.wrapping_add(u64::from(cpu) * 8)))
        .map(|offset| offset.map_or(0, |offset| linked_at.wrapping_add(offset)));
    Some(bases.collect())
}

/// One more than the highest CPU number that may ever be used.
pub(crate) fn possible_cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    text.trim().rsplit([',', '-']).next().and_then(|last| last.parse::<u32>().ok()).map_or(1, |last| last + 1)
}
