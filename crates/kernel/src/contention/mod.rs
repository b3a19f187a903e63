//! Meters contention of kernel locks: the loader of the programs below this folder.

mod holds;
mod interval;
mod metered;
mod mmap;
mod programs;
mod scope;
mod tables;
mod waits;

use std::os::fd::{AsFd, BorrowedFd};
use std::rc::Rc;

use libbpf_rs::Link;
use lockmeter_profile::{Interval, IntervalClock, Loss, Overhead, OwnCpu, Source};

#[cfg(test)]
pub(crate) use holds::NOT_IN_THE_MODEL;
pub use holds::{Hooks, OverBudget, SLEEPING_KINDS, SPINNING_KINDS, spin_functions_inlined};
pub use metered::Metered;
pub use mmap::MmapTracepoints;
pub use scope::{ProcessScope, Scope};
#[cfg(test)]
pub(crate) use tables::LOSS_CAUSES;
#[cfg(test)]
pub(crate) use waits::BLOCKERS;
pub use waits::OlderWait;

pub use crate::followed_processes::open_process;
pub use crate::kernel_names::MMAP_LOCK;
pub use crate::stack_budget::StackBudget;

use crate::cost::{self, ProgramCost};
use crate::double_buffer::DoubleBuffers;
use crate::error::KernelError;
use crate::followed_processes::leave_own_process_out;
use crate::kernel_names::{self, SharedNames};
use crate::libbpf_log::quiet_libbpf;
use crate::switches;
use holds::{HoldLengths, hooked};
use interval::Intervals;
use programs::{attach, load};
use scope::follow;
use tables::{Drained, PROGRAMS};
use waits::{OlderWaits, Waking};

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/contention.skel.rs"));
}
use skeleton::ContentionSkel;

/// Half full tables are drained early: a burst can fill the other buffer before anybody looks again.
const DRAIN_AT_FILL: f64 = 0.5;

/// How to meter.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whose waits.
    pub scope: Scope,
    /// How much CPU time stacks may cost.
    pub stacks: StackBudget,
    /// What to meter.
    pub metered: Metered,
}

/// Kernel memory that metering takes for each possible CPU: two buffers of tables and the CPU's own state.
pub const fn table_bytes_per_cpu() -> usize {
    2 * size_of::<skeleton::types::buffer>() + size_of::<skeleton::types::cpu_state>()
}

/// A running recording of lock contention. Dropping it detaches everything.
pub struct ContentionSource {
    // Links go first: nothing may write to the tables when they are unmapped.
    links: Vec<Link>,
    waking: Waking,
    older: OlderWaits,
    hooks: hooked::Attached,
    buffers: DoubleBuffers<skeleton::types::buffer>,
    skeleton: ContentionSkel<'static>,
    intervals: Intervals,
    /// The tables of holds, where these are metered.
    hold_buffers: Option<DoubleBuffers<skeleton::types::buffer>>,
    hold_lengths: HoldLengths,
    cost: ProgramCost<PROGRAMS>,
    scope: Scope,
    mmap_tracepoints: Option<MmapTracepoints>,
    /// The interval being metered.
    clock: IntervalClock,
    own_cpu: OwnCpu,
    misses: u64,
    missed_by_probes: u64,
    hooks_spent_ns: u64,
    hook_events: u64,
    open_waits: i64,
    keeps_cpus_apart: bool,
}

impl ContentionSource {
    /// Counts for each CPU apart from now on: every wait, and every hold, on the one on which it ended. Each interval then has up to as many
    /// totals more as there are CPUs.
    pub fn keep_cpus_apart(&mut self) {
        self.keeps_cpus_apart = true;
    }

    /// Where the programs that watch threads are to keep the last sleeps of each: then it is known what holders did.
    pub fn past_sleeps(&self) -> BorrowedFd<'_> {
        self.skeleton.maps.past_sleeps.as_fd()
    }

    /// Loads and attaches the programs; when this returns, waits are counted.
    pub fn start(options: &Options) -> Result<Self, KernelError> {
        Self::start_with(options, &kernel_names::prepare(None)?)
    }

    /// The same with names that other collectors use, too.
    pub fn start_with(options: &Options, names: &SharedNames) -> Result<Self, KernelError> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelError::from_libbpf("cannot find out how many CPUs there are", &error))?;
        quiet_libbpf();
        let (mut skeleton, mmap_tracepoints) = load(options, &names.borrow(), cpus)?;
        // SAFETY: the generated type of the map's values, plain integers; `load` made two for each CPU.
        let buffers = unsafe { DoubleBuffers::map(&skeleton.maps.buffers, cpus) }?;
        let hold_buffers = match options.metered.holds() {
            // SAFETY: as above.
            true => Some(unsafe { DoubleBuffers::map(&skeleton.maps.hold_buffers, cpus) }?),
            false => None,
        };
        match &options.scope {
            Scope::Processes(processes) => {
                for pid in &processes.pids {
                    follow(&skeleton.maps.sleepers, *pid)?;
                }
            }
            Scope::Children => follow(&skeleton.maps.sleepers, std::process::id())?,
            Scope::Machine | Scope::Cgroup(_) => {}
        }
        let hooks = match options.metered.hooks() {
            Some(hooks) => hooked::attach(&mut skeleton, hooks)?,
            None => hooked::Attached::default(),
        };
        let waits_are_rare = options.metered.only_mmap_lock();
        let mut waking = Waking::new(waits_are_rare && options.stacks != StackBudget::Every);
        waking.attach(&mut skeleton)?;
        let links = attach(&mut skeleton, &options.scope, mmap_tracepoints)?;
        if hooks.len() > 0 {
            names.borrow_mut().learn_programs();
        }
        let cost = ProgramCost::new(&skeleton);
        let misses = misses(&skeleton);
        let mut source = Self {
            links,
            waking,
            older: OlderWaits::default(),
            hooks,
            buffers,
            hold_buffers,
            hold_lengths: HoldLengths::default(),
            skeleton,
            intervals: Intervals::new(Rc::clone(names)),
            cost,
            scope: options.scope.clone(),
            mmap_tracepoints,
            clock: IntervalClock::start(),
            own_cpu: OwnCpu::start(),
            misses,
            missed_by_probes: 0,
            hooks_spent_ns: 0,
            hook_events: 0,
            open_waits: 0,
            keeps_cpus_apart: false,
        };
        // Attaching takes a while on a slow machine; only now do begins and ends come in pairs.
        source.pause(false);
        Ok(source)
    }

    /// Switches hooks off that take more than their budget: those of spinning locks for good, those of sleeping locks until they have made up
    /// for it. Tells what they took when that begins. To be called as often as [`Self::tick`].
    pub fn keep_hooks_within_budget(&mut self) -> Option<OverBudget> {
        self.hooks.keep_within_budget(&mut self.skeleton)
    }

    /// Meters a process that runs already, its threads and the children that it has from now on; under a scope that follows children.
    pub fn follow(&self, pid: u32) -> Result<(), KernelError> {
        follow(&self.skeleton.maps.sleepers, pid)
    }

    /// Meters waits that began before the programs were attached. They end, and are counted, as others do.
    pub fn adopt(&mut self, waits: &[OlderWait]) -> Result<(), KernelError> {
        self.older.tell(waits, &mut self.skeleton)
    }

    /// How many functions are hooked.
    pub fn hooks(&self) -> usize {
        self.hooks.len()
    }

    /// Stops counting without detaching (`true`), or goes on (`false`). For measuring what counting costs.
    pub fn pause(&mut self, paused: bool) {
        if let Some(bss) = self.skeleton.maps.bss_data.as_deref_mut().filter(|_| !paused) {
            bss.watched = bss.watched.wrapping_add(1);
        }
        switches::pause(&mut self.skeleton, paused);
    }

    /// Detaches the programs, so that they cost nothing at all, and keeps what they counted. For measuring what metering costs.
    pub fn detach(&mut self) {
        self.pause(true);
        // In the opposite order of attaching.
        while self.links.pop().is_some() {}
        self.waking.detach();
    }

    /// Attaches the programs again.
    pub fn attach(&mut self) -> Result<(), KernelError> {
        if self.links.is_empty() {
            self.waking.attach(&mut self.skeleton)?;
            self.links = attach(&mut self.skeleton, &self.scope, self.mmap_tracepoints)?;
        }
        self.pause(false);
        Ok(())
    }

    fn overhead(&mut self, drained: &Drained) -> Overhead {
        // Hooks are many programs, which measure what they cost themselves.
        let hooks_spent_ns = self.hooks.spent_ns(&self.skeleton);
        let hook_events = hooked::events(&self.skeleton);
        let of_hooks_ns = hooks_spent_ns - std::mem::replace(&mut self.hooks_spent_ns, hooks_spent_ns);
        Overhead {
            own_cpu_ns: 0,
            program_run_ns: self.cost.estimate_ns(&self.skeleton, &drained.runs, drained.stack_ns) + of_hooks_ns,
            program_runs: drained.runs.iter().sum::<u64>()
                + (hook_events - std::mem::replace(&mut self.hook_events, hook_events)),
            stack_ns: drained.stack_ns,
            stacks: drained.stacks_taken,
            sampling_period_ns: self.sampling_period_ns(),
        }
    }

    /// As [`drain`](Source::drain), into an interval that may hold already what others have measured. It ends now. What this process took
    /// is for the one who drains all of them to count.
    pub fn drain_into(&mut self, interval: &mut Interval) {
        let left = switches::flip(&mut self.skeleton);
        // Before the wait, which takes a while where CPUs are busy.
        self.clock.cut_into(interval);
        let buffer = left.wait();
        let mut drained = self.buffers.drain(buffer, self.keeps_cpus_apart);
        if let Some(buffers) = &mut self.hold_buffers {
            drained.merge(buffers.drain(buffer, self.keeps_cpus_apart));
        }
        for (loss, count) in &drained.losses {
            interval.losses.add(*loss, *count);
        }
        let misses = misses(&self.skeleton);
        interval.losses.add(Loss::ProgramRecursion, misses.saturating_sub(self.misses));
        self.misses = misses;
        let missed = self.hooks.missed_by_probes();
        interval.losses.add(Loss::ProbeMissed, missed.saturating_sub(self.missed_by_probes));
        self.missed_by_probes = missed;
        interval.losses.add(Loss::HoldUnfinished, self.hooks.unfinished());
        interval.off.holds = self.hooks.off_ns();
        self.open_waits += drained.opened.cast_signed()
            - drained.closed.cast_signed()
            - drained.lost(Loss::BeginWithoutEnd).cast_signed();
        interval.overhead.merge(&self.overhead(&drained));
        self.hold_lengths.give(&mut drained);
        let caches = self.skeleton.maps.bss_data.as_deref().map_or(&[][..], |bss| &bss.caches);
        self.intervals.fill(interval, drained, caches);
    }

    /// As [`stop`](Source::stop), into such an interval.
    pub fn stop_into(&mut self, interval: &mut Interval) {
        // The begin program goes first, so that no wait is opened that the end program would not see closed. It was
        // attached last.
        self.links.pop();
        self.drain_into(interval);
        interval.losses.add(Loss::Unfinished, u64::try_from(self.open_waits).unwrap_or(0));
        if self.hold_buffers.is_some() && !self.hooks.have_counted_unfinished() {
            interval.losses.add(Loss::HoldUnfinished, hooked::unfinished(&self.skeleton));
        }
    }

    /// The longest period since the last call.
    fn sampling_period_ns(&mut self) -> u64 {
        let every = self.skeleton.maps.rodata_data.is_some_and(|rodata| rodata.every_stack != 0);
        let Some(data) = self.skeleton.maps.data_data.as_deref_mut().filter(|_| !every) else { return 0 };
        std::mem::replace(&mut data.longest_period_ns, data.period_ns)
    }
}

fn misses(skeleton: &ContentionSkel<'_>) -> u64 {
    cost::recursion_misses(skeleton) + hooked::recursion_misses(skeleton)
}

impl Source for ContentionSource {
    type Error = KernelError;

    /// Under [`Scope::Children`]: those that it has started stay metered.
    fn command_started(&mut self) -> Result<(), KernelError> {
        if self.scope == Scope::Children { leave_own_process_out(&self.skeleton.maps.sleepers) } else { Ok(()) }
    }

    /// Keeps the account of what metering costs, and has wake-ups looked at where somebody waits.
    fn tick(&mut self) -> bool {
        self.cost.tick(&self.skeleton);
        let buffer = switches::active_buffer(&mut self.skeleton);
        self.waking.look(|| self.open_waits > 0 || self.buffers.has_opened(buffer), &mut self.skeleton);
        let holds = self.hold_buffers.as_mut().map_or(0.0, |buffers| buffers.fill(buffer));
        self.buffers.fill(buffer).max(holds) >= DRAIN_AT_FILL
    }

    fn drain(&mut self) -> Result<Interval, KernelError> {
        let mut interval = Interval::default();
        self.drain_into(&mut interval);
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        Ok(interval)
    }

    /// Waits that are still going on are counted as unfinished.
    fn stop(mut self) -> Result<Interval, KernelError> {
        let mut interval = Interval::default();
        self.stop_into(&mut interval);
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        Ok(interval)
    }
}
