//! Which programs there are, which of them a wish needs, and which tracepoints this kernel has.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::btf::{Btf, types};
use libbpf_rs::{Link, ProgramMut};
use lockmeter_profile::Kind;

use super::RUNNERS;
use super::skeleton::{LatencySkel, OpenLatencySkel};
use crate::cost::Programs;
use crate::error::{ErrorKind, KernelError};

/// What belongs together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Group {
    /// Handlers of devices' interrupts.
    Irq,
    /// Interrupts of the CPU itself. Which of them a kernel has depends on how it was built.
    Vector,
    Softirq,
    /// Since when a softirq is pending.
    Raise,
    Tasklet,
    Timer,
    Hrtimer,
    Work,
    /// The locks that long runs waited for.
    Locks,
}

impl Group {
    /// What its tracepoints tell of, and since which Linux all of them are there (with `CONFIG_TRACEPOINTS`).
    const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Irq => ("hard interrupts", "2.6.29"),
            Self::Vector => ("interrupts of the CPU itself", "3.11, on x86 with a local APIC"),
            Self::Softirq | Self::Raise => ("softirqs", "2.6.31"),
            Self::Tasklet => ("tasklets", "6.4 (6.1.159 of the stable kernels)"),
            Self::Timer => ("timers", "2.6.32"),
            Self::Hrtimer => ("high-resolution timers", "2.6.32"),
            Self::Work => ("work items", "2.6.36"),
            Self::Locks => ("waits for locks", "5.19"),
        }
    }

    /// Whether one tracepoint tells something without the others of its group.
    const fn is_loose(self) -> bool {
        matches!(self, Self::Vector)
    }
}

/// A tracepoint and the program for it.
struct Entry {
    group: Group,
    tracepoint: &'static str,
    /// Attached last, so that every begin has its end.
    begins: bool,
}

impl Entry {
    /// What it belongs to of what may be timed in windows. The timer's interrupt is not: it does not come as often as others.
    fn windowed(&self) -> Option<Windowed> {
        match self.group {
            Group::Softirq | Group::Raise => Some(Windowed::Softirqs),
            Group::Irq => Some(Windowed::Irqs),
            Group::Vector if self.tracepoint.starts_with("reschedule_") || self.tracepoint.starts_with("call_") => {
                Some(Windowed::Vectors)
            }
            _ => None,
        }
    }
}

/// What may be timed in windows only, for the kernel counts it by itself; in the order of `enum window` in `tables.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Windowed {
    Softirqs = 1,
    /// Interrupts from CPU to CPU.
    Vectors = 2,
    /// Of devices.
    Irqs = 3,
}

impl Windowed {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Softirqs, Self::Vectors, Self::Irqs];
}

/// A program that is attached while a window is open.
pub struct WindowedProgram {
    /// Its place among all programs.
    pub at: usize,
    pub windowed: Windowed,
    pub program: OwnedFd,
    pub tracepoint: &'static str,
    pub begins: bool,
}

/// Declares the programs in the order of `enum run_program` in `tables.h`.
macro_rules! programs {
    ($($program:ident: $group:ident, $tracepoint:literal, $begins:literal;)+) => {
        const ENTRIES: &[Entry] =
            &[$(Entry { group: Group::$group, tracepoint: $tracepoint, begins: $begins },)+];

        /// How many programs there are.
        pub const PROGRAMS: usize = ENTRIES.len();

        /// Leaves out what was not chosen.
        pub fn select(open: &mut OpenLatencySkel<'_>, chosen: &Chosen) {
            let mut wanted = chosen.0.iter();
            $(open.progs.$program.set_autoload(wanted.next().is_some_and(|wanted| *wanted));)+
        }

        fn all<'a, 'obj>(skeleton: &'a mut LatencySkel<'obj>) -> [&'a mut ProgramMut<'obj>; PROGRAMS] {
            [$(&mut skeleton.progs.$program,)+]
        }

        impl Programs<PROGRAMS> for LatencySkel<'_> {
            fn programs(&self) -> [Option<BorrowedFd<'_>>; PROGRAMS] {
                [$(self.progs.$program.autoload().then(|| self.progs.$program.as_fd()),)+]
            }

            /// No stacks are taken.
            fn stack_ns(&self) -> u64 {
                0
            }
        }
    };
}

programs! {
    irq_entry: Irq, "irq_handler_entry", true;
    irq_exit: Irq, "irq_handler_exit", false;
    softirq_raise: Raise, "softirq_raise", true;
    softirq_entry: Softirq, "softirq_entry", true;
    softirq_exit: Softirq, "softirq_exit", false;
    tasklet_entry: Tasklet, "tasklet_entry", true;
    tasklet_exit: Tasklet, "tasklet_exit", false;
    timer_entry: Timer, "timer_expire_entry", true;
    timer_exit: Timer, "timer_expire_exit", false;
    hrtimer_entry: Hrtimer, "hrtimer_expire_entry", true;
    hrtimer_exit: Hrtimer, "hrtimer_expire_exit", false;
    work_queue: Work, "workqueue_queue_work", true;
    work_start: Work, "workqueue_execute_start", true;
    work_end: Work, "workqueue_execute_end", false;
    local_timer_entry: Vector, "local_timer_entry", true;
    local_timer_exit: Vector, "local_timer_exit", false;
    reschedule_entry: Vector, "reschedule_entry", true;
    reschedule_exit: Vector, "reschedule_exit", false;
    call_entry: Vector, "call_function_entry", true;
    call_exit: Vector, "call_function_exit", false;
    call_single_entry: Vector, "call_function_single_entry", true;
    call_single_exit: Vector, "call_function_single_exit", false;
    irq_work_entry: Vector, "irq_work_entry", true;
    irq_work_exit: Vector, "irq_work_exit", false;
    thermal_entry: Vector, "thermal_apic_entry", true;
    thermal_exit: Vector, "thermal_apic_exit", false;
    lock_begin: Locks, "contention_begin", true;
    lock_end: Locks, "contention_end", false;
}

/// The programs to load, in the order of their declaration.
pub struct Chosen([bool; PROGRAMS]);

/// Something that was asked for and that this kernel does not tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    what: &'static str,
    since: &'static str,
    tracepoint: &'static str,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "this kernel does not report {}: the tracepoint {} came with Linux {} and needs CONFIG_TRACEPOINTS",
            self.what, self.tracepoint, self.since
        )
    }
}

/// Finds the programs that metering these runners needs and that this kernel has tracepoints for. Fails if it has none for any
/// of the runners.
pub fn choose(runners: &[Kind], with_locks: bool) -> Result<(Chosen, Vec<Missing>), KernelError> {
    let btf =
        Btf::from_vmlinux().map_err(|error| KernelError::from_libbpf("cannot read the kernel's types", &error))?;
    let has = |tracepoint: &str| btf.type_by_name::<types::Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some();
    let has: Vec<bool> = ENTRIES.iter().map(|entry| has(entry.tracepoint)).collect();
    let missing = missing(runners, with_locks, &has);
    let untold = |runner: &Kind| groups(*runner).iter().all(|group| !is_whole(*group, &has));
    match missing.first() {
        Some(first) if runners.iter().all(untold) => return Err(first.into()),
        _ => {}
    }
    let needed = needed(runners, with_locks);
    let mut chosen = [false; PROGRAMS];
    for (at, entry) in ENTRIES.iter().enumerate() {
        let partner = partner(at);
        let whole = if entry.group.is_loose() { has[at] && has[partner] } else { is_whole(entry.group, &has) };
        chosen[at] = whole && needed.contains(&entry.group);
    }
    Ok((Chosen(chosen), missing))
}

/// The groups that tell of a runner itself.
const fn groups(runner: Kind) -> &'static [Group] {
    match runner {
        Kind::Irq => &[Group::Irq, Group::Vector],
        Kind::Softirq => &[Group::Softirq, Group::Raise],
        Kind::Tasklet => &[Group::Tasklet],
        Kind::Timer => &[Group::Timer],
        Kind::Hrtimer => &[Group::Hrtimer],
        Kind::Work => &[Group::Work],
        _ => &[],
    }
}

/// Interrupts are always needed, to be subtracted from what they interrupt; so are softirqs, from work items.
fn needed(runners: &[Kind], with_locks: bool) -> Vec<Group> {
    let mut needed = vec![Group::Irq, Group::Vector];
    needed.extend(runners.iter().flat_map(|runner| groups(*runner)));
    if runners.contains(&Kind::Work) {
        needed.push(Group::Softirq);
    }
    if with_locks {
        needed.push(Group::Locks);
    }
    needed
}

/// Whether the kernel has all the tracepoints of a group, or any where one tells something.
fn is_whole(group: Group, has: &[bool]) -> bool {
    let mut of_group = ENTRIES.iter().zip(has).filter(|(entry, _)| entry.group == group).map(|(_, has)| *has);
    if group.is_loose() { of_group.any(|has| has) } else { of_group.all(|has| has) }
}

fn missing(runners: &[Kind], with_locks: bool, has: &[bool]) -> Vec<Missing> {
    let mut missing = Vec::new();
    let asked = RUNNERS.iter().filter(|runner| runners.contains(runner)).flat_map(|runner| groups(*runner));
    let locks: &[Group] = if with_locks { &[Group::Locks] } else { &[] };
    for group in asked.chain(locks).filter(|group| !is_whole(**group, has)) {
        let (what, since) = group.about();
        let lacking = ENTRIES.iter().zip(has).find(|(entry, has)| entry.group == *group && !**has);
        if let Some((entry, _)) = lacking
            && !missing.iter().any(|known: &Missing| known.what == what)
        {
            missing.push(Missing { what, since, tracepoint: entry.tracepoint });
        }
    }
    missing
}

/// Of an interrupt's entry its exit, and the other way round: they are declared side by side.
fn partner(at: usize) -> usize {
    let stem = |at: usize| {
        let name = ENTRIES[at].tracepoint;
        name.strip_suffix("_entry").or(name.strip_suffix("_exit"))
    };
    [at.wrapping_sub(1), at + 1]
        .into_iter()
        .find(|other| *other < PROGRAMS && stem(*other).is_some() && stem(*other) == stem(at))
        .unwrap_or(at)
}

/// Attaches what is timed all the time, ends before begins.
pub fn attach(skeleton: &mut LatencySkel<'_>) -> Result<Vec<Link>, KernelError> {
    let mut links = Vec::new();
    let (begins, ends): (Vec<_>, Vec<_>) = all(skeleton)
        .into_iter()
        .zip(ENTRIES)
        .filter(|(program, entry)| program.autoload() && entry.windowed().is_none())
        .partition(|(_, entry)| entry.begins);
    for (program, entry) in ends.into_iter().chain(begins) {
        let link = program
            .attach()
            .map_err(|error| KernelError::from_libbpf(&format!("cannot attach to {}", entry.tracepoint), &error))?;
        links.push(link);
    }
    Ok(links)
}

/// The loaded programs of what may be timed in windows only.
pub fn windowed(skeleton: &LatencySkel<'_>) -> Result<Vec<WindowedProgram>, KernelError> {
    let loaded = skeleton.programs().into_iter().zip(ENTRIES).enumerate();
    loaded
        .filter_map(|(at, (program, entry))| Some((at, program?, entry, entry.windowed()?)))
        .map(|(at, program, entry, windowed)| {
            let program = program.try_clone_to_owned().map_err(|error| {
                KernelError::new(
                    ErrorKind::Refused,
                    format!("cannot keep the program of {}: {error}", entry.tracepoint),
                )
            })?;
            Ok(WindowedProgram { at, windowed, program, tracepoint: entry.tracepoint, begins: entry.begins })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(missing: &[&str]) -> Vec<bool> {
        ENTRIES.iter().map(|entry| !missing.contains(&entry.tracepoint)).collect()
    }

    #[test]
    fn a_kernel_without_tasklet_tracepoints_is_said_to_lack_them_and_since_when_others_have_them() {
        let has = without(&["tasklet_entry", "tasklet_exit"]);
        let missing = missing(&RUNNERS, true, &has);
        assert_eq!(missing.len(), 1);
        let sentence = missing[0].to_string();
        assert!(sentence.contains("tasklets") && sentence.contains("Linux 6.4"), "{sentence}");
    }

    #[test]
    fn one_interrupt_of_the_cpu_without_a_tracepoint_leaves_the_others() {
        let has = without(&["thermal_apic_entry", "thermal_apic_exit"]);
        assert!(missing(&RUNNERS, false, &has).is_empty());
        assert!(is_whole(Group::Vector, &has));
        let all = without(
            ENTRIES.iter().filter(|e| e.group == Group::Vector).map(|e| e.tracepoint).collect::<Vec<_>>().as_slice(),
        );
        assert_eq!(missing(&[Kind::Irq], false, &all).len(), 1);
    }

    #[test]
    fn an_entry_and_its_exit_are_partners() {
        for (at, entry) in ENTRIES.iter().enumerate().filter(|(_, entry)| entry.group == Group::Vector) {
            let partner = partner(at);
            assert_ne!(ENTRIES[partner].begins, entry.begins, "{}", entry.tracepoint);
        }
    }
}
