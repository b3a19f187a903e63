//! Meters the futex waits of running programs: the loader of `futex.bpf.c`.
//!
//! Nothing is put into the program and nothing stops it. The kernel side counts who slept in a futex call on which word, and
//! copies stacks; this side unwinds them by the files that the process maps, tells locks from conditions by the functions on
//! them, and names the lock.

mod call_frames;
pub(crate) mod processes;
pub(crate) mod semaphores;
mod tables;
pub(crate) mod user_stacks;
mod waits;

use std::cell::RefCell;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject, RingBuffer, RingBufferBuilder};
use lockmeter_profile::{Interval, IntervalClock, Loss, Source};

use crate::attaching::attach_one;
use crate::cgroups::CgroupScope;
use crate::clock::OwnCpu;
use crate::cost::{self, ProgramCost, Programs};
use crate::double_buffer::DoubleBuffers;
use crate::error::{ErrorKind, KernelError};
use crate::followed_processes::{leave_own_process_out, open_process};
use crate::libbpf_log::quiet_libbpf;
use crate::stack_budget::StackBudget;
use crate::switches::{self, TwoHalves};
#[doc(hidden)]
pub use processes::unwind_by_hostile_elf;
#[cfg(test)]
pub(crate) use tables::LOSS_CAUSES;
use tables::Word;
use waits::Waits;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/futex.skel.rs"));
}
use skeleton::{FutexSkel, FutexSkelBuilder};

/// Half full tables are drained early.
const DRAIN_AT_FILL: f64 = 0.5;

/// The budget of a machine with more CPUs is that of one with so many: all stacks are unwound by one thread, which takes
/// several times as long for it as copying does.
const MOST_CPUS_OF_STACKS: u32 = 4;

/// Bit of `task_struct.flags`, as `/proc/PID/stat` shows them: a thread of the kernel.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The numbers of `enum futex_scope` in `tables.h`.
const FUTEXES_OF_ALL: u32 = 1;
const FUTEXES_OF_CGROUP: u32 = 2;

/// Which processes are metered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Processes {
    /// All of the machine.
    All,
    /// Those of a control group and of those below it.
    Cgroup(CgroupScope),
    /// This one, its threads, and the children it has from now on.
    Of(u32),
    /// The children that this process starts until [`Source::command_started`] of the source.
    Children,
}

impl Programs<2> for FutexSkel<'_> {
    fn programs(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [Some(self.progs.sched_switch.as_fd()), Some(self.progs.sched_waking.as_fd())]
    }

    fn stack_ns(&self) -> u64 {
        self.maps.bss_data.as_deref().map_or(0, |bss| bss.stack_spent_ns)
    }
}

/// A running recording of futex waits. Dropping it detaches everything.
pub struct FutexSource {
    // Links go first: nothing may write to the tables when they are unmapped.
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    halves: DoubleBuffers<skeleton::types::futex_half>,
    skeleton: FutexSkel<'static>,
    waits: Rc<RefCell<Waits>>,
    cost: ProgramCost<2>,
    clock: IntervalClock,
    own_cpu: OwnCpu,
    misses: u64,
    /// Children of this process are metered.
    follows_own: bool,
}

impl FutexSource {
    /// Loads and attaches the programs; when this returns, waits are counted.
    pub fn start(processes: Processes, stacks: StackBudget) -> Result<Self, KernelError> {
        Self::start_metering(processes, stacks, false)
    }

    /// The same beside the preloaded library: what that meters is left out.
    pub fn start_beside_preloaded(processes: Processes, stacks: StackBudget) -> Result<Self, KernelError> {
        Self::start_metering(processes, stacks, true)
    }

    fn start_metering(
        processes: Processes,
        stacks: StackBudget,
        is_beside_preloaded: bool,
    ) -> Result<Self, KernelError> {
        if !cfg!(target_arch = "x86_64") {
            let why = "locks of running programs can be metered on x86-64 only";
            return Err(KernelError::new(ErrorKind::Refused, why));
        }
        if let Processes::Of(pid) = processes {
            has_locks(pid)?;
        }
        let processes = &processes;
        sees_the_kernels_process_ids()?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelError::from_libbpf("cannot tell how many CPUs there are", &error))?;
        quiet_libbpf();
        let mut skeleton = load(processes, stacks, cpus)?;
        // SAFETY: the generated type of the map's values, plain integers; `load` made two for each CPU.
        let halves = unsafe { DoubleBuffers::map(&skeleton.maps.halves, cpus) }?;
        let waits = Rc::new(RefCell::new(Waits::new(is_beside_preloaded)));
        match processes {
            Processes::Of(pid) => waits.borrow_mut().look_at(*pid),
            Processes::All | Processes::Cgroup(_) => {}
            Processes::Children => follow(&skeleton.maps.processes, std::process::id())?,
        }
        let ring = read_records(&skeleton.maps.records, &waits)?;
        let links = attach(&mut skeleton)?;
        let cost = ProgramCost::new(&skeleton);
        let misses = cost::recursion_misses(&skeleton);
        Ok(Self {
            links,
            ring,
            halves,
            skeleton,
            waits,
            cost,
            clock: IntervalClock::start(),
            own_cpu: OwnCpu::start(),
            misses,
            follows_own: *processes == Processes::Children,
        })
    }

    /// Meters a process that runs already, and the children that it has from now on.
    pub fn follow(&self, pid: u32) -> Result<(), KernelError> {
        self.waits.borrow_mut().look_at(pid);
        follow(&self.skeleton.maps.processes, pid)
    }

    /// Adds everything measured since the last call to an interval, which keeps its own time.
    pub fn drain_into(&mut self, interval: &mut Interval) {
        let half = switches::flip(&mut self.skeleton);
        let drained = self.halves.drain(half);
        // After the flip: then the stacks of all that was counted are in the ring buffer.
        self.read_ring();
        for (loss, count) in &drained.losses {
            interval.losses.add(*loss, *count);
        }
        let misses = cost::recursion_misses(&self.skeleton);
        interval.losses.add(Loss::ProgramRecursion, misses.saturating_sub(self.misses));
        self.misses = misses;
        let overhead = &mut interval.overhead;
        overhead.program_run_ns += self.cost.estimate_ns(&self.skeleton, &drained.runs, drained.stack_ns);
        overhead.program_runs += drained.runs.iter().sum::<u64>();
        overhead.stack_ns += drained.stack_ns;
        overhead.stacks += drained.stacks_taken;
        overhead.sampling_period_ns = overhead.sampling_period_ns.max(self.sampling_period_ns());
        self.waits.borrow_mut().drain_into(interval, &drained);
    }

    /// Stops metering and adds the last of it to an interval. Waits for locks that are still going on are counted as
    /// unfinished.
    pub fn stop_into(mut self, interval: &mut Interval) {
        self.links.clear();
        self.drain_into(interval);
        let unfinished = self.unfinished();
        interval.losses.add(Loss::Unfinished, unfinished);
    }

    fn unfinished(&self) -> u64 {
        let Some(bss) = self.skeleton.maps.bss_data.as_deref() else { return 0 };
        let waits = self.waits.borrow();
        let asleep = bss.sleeper_tids.iter().zip(&bss.sleeps).filter(|(tid, _)| **tid != 0);
        let words = asleep.map(|(_, sleep)| Word { tgid: sleep.tgid, address: sleep.word });
        words.filter(|word| !waits.is_idle(*word)).count() as u64
    }

    fn next_interval(&mut self) -> Interval {
        let mut interval = self.clock.cut();
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        interval
    }

    fn read_ring(&self) {
        // An error is that of a callback, and ours has none.
        let _ = self.ring.consume();
    }

    /// The longest period since the last call.
    fn sampling_period_ns(&mut self) -> u64 {
        let every = self.skeleton.maps.rodata_data.is_some_and(|rodata| rodata.every_stack != 0);
        let Some(data) = self.skeleton.maps.data_data.as_deref_mut().filter(|_| !every) else { return 0 };
        std::mem::replace(&mut data.longest_period_ns, data.period_ns)
    }
}

impl TwoHalves for FutexSkel<'_> {
    fn active_half(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.active_half)
    }

    fn generation(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.data_data.as_deref_mut()?.generation)
    }
}

impl Source for FutexSource {
    type Error = KernelError;

    /// Under [`Processes::Children`]: from here on this process has no more children that are metered.
    fn command_started(&mut self) -> Result<(), KernelError> {
        if self.follows_own {
            self.follows_own = false;
            leave_own_process_out(&self.skeleton.maps.processes)?;
        }
        Ok(())
    }

    /// Becomes readable when a process was seen for the first time, which may not live for long.
    fn news(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the ring buffer's own descriptor, which is open for as long as it lives.
        Some(unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) })
    }

    fn take_news(&mut self) {
        self.read_ring();
    }

    /// Reads the stacks that were copied meanwhile.
    fn tick(&mut self) -> bool {
        self.cost.tick(&self.skeleton);
        self.read_ring();
        let half = switches::active_half(&mut self.skeleton);
        self.halves.fill(half) >= DRAIN_AT_FILL
    }

    fn drain(&mut self) -> Result<Interval, KernelError> {
        let mut interval = self.next_interval();
        self.drain_into(&mut interval);
        Ok(interval)
    }

    fn stop(mut self) -> Result<Interval, KernelError> {
        let mut interval = self.next_interval();
        self.stop_into(&mut interval);
        Ok(interval)
    }
}

fn load(processes: &Processes, stacks: StackBudget, cpus: usize) -> Result<FutexSkel<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot load the futex programs", &error);
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = FutexSkelBuilder::default().open(storage).map_err(refused)?;
    let cpus = u32::try_from(cpus).unwrap_or(1);
    open.maps.halves.set_max_entries(cpus * 2).map_err(refused)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.cpus = cpus.min(MOST_CPUS_OF_STACKS);
        rodata.own_tgid = std::process::id();
        match processes {
            Processes::All => rodata.scope = FUTEXES_OF_ALL,
            Processes::Cgroup(cgroup) => {
                rodata.scope = FUTEXES_OF_CGROUP;
                rodata.scope_cgroup = cgroup.id;
                rodata.scope_cgroup_level = cgroup.level;
            }
            Processes::Of(pid) => rodata.target = *pid,
            Processes::Children => {}
        }
        match stacks {
            StackBudget::Share { ppm } => rodata.stack_budget_ppm = ppm,
            StackBudget::Every => rodata.every_stack = 1,
        }
    }
    open.load().map_err(refused)
}

/// Attaches what begins waits last: a sleep whose waking is not seen would have no blocker.
fn attach(skeleton: &mut FutexSkel<'_>) -> Result<Vec<Link>, KernelError> {
    Ok(vec![
        attach_one(&mut skeleton.progs.follow_children)?,
        attach_one(&mut skeleton.progs.sched_waking)?,
        attach_one(&mut skeleton.progs.sched_switch)?,
    ])
}

fn read_records(records: &impl MapCore, waits: &Rc<RefCell<Waits>>) -> Result<RingBuffer<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot read the ring buffer of stacks", &error);
    let waits = Rc::clone(waits);
    let mut builder = RingBufferBuilder::new();
    let take = move |bytes: &[u8]| {
        waits.borrow_mut().take(bytes);
        0
    };
    builder.add(records, take).map_err(refused)?;
    builder.build().map_err(refused)
}

/// Marks a process as followed: its children are from now on, too.
fn follow(processes: &impl MapCore, pid: u32) -> Result<(), KernelError> {
    let process = open_process(pid)?;
    let yes = 1_u32.to_ne_bytes();
    processes
        .update(&process.as_raw_fd().to_ne_bytes(), &yes, MapFlags::ANY)
        .map_err(|error| KernelError::from_libbpf(&format!("cannot follow process {pid}"), &error))
}

/// The programs say process ids as the kernel counts them, which mean other processes in a container.
fn sees_the_kernels_process_ids() -> Result<(), KernelError> {
    const INITIAL_NAMESPACE: &str = "pid:[4026531836]";
    match std::fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() != INITIAL_NAMESPACE => {
            let why = "locks of running programs cannot be metered from inside a container with process ids of its own; run \
                       lockmeter on the host, where such programs can be metered, too";
            Err(KernelError::new(ErrorKind::Refused, why))
        }
        _ => Ok(()),
    }
}

/// Whether a process can have locks of its own that this one may look at.
fn has_locks(pid: u32) -> Result<(), KernelError> {
    // Says what is wrong with the number itself.
    open_process(pid)?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name, which may hold anything, flags are the seventh.
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6)?.parse::<u64>().ok());
    if flags.is_some_and(|flags| flags & PF_KTHREAD != 0) {
        let why = format!("process {pid} is a thread of the kernel, which has no locks of its own");
        return Err(KernelError::new(ErrorKind::NoUserLocks, why));
    }
    match std::fs::File::open(format!("/proc/{pid}/maps")) {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => Err(KernelError::new(
            ErrorKind::NotPermitted,
            format!("process {pid} belongs to another user, so its locks cannot be named; run as root or as that user"),
        )),
        _ => Ok(()),
    }
}
