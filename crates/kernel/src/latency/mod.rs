//! Meters interrupts, timers and work items: the loader of `latency.bpf.c`.

mod kernel_counts;
mod naming;
mod programs;
mod tables;
mod untimed;
mod windows;

use std::mem::MaybeUninit;
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapHandle, OpenObject};
use lockmeter_profile::{Interval, IntervalClock, Kind, Loss, Overhead, OwnCpu, Source};

use crate::clock::{boot_unix_ns, tick_ns};
use crate::cost::{self, ProgramCost};
use crate::double_buffer::DoubleBuffers;
use crate::error::{ErrorKind, KernelError};
use crate::libbpf_log::quiet_libbpf;
use crate::switches::{self, DoubleBuffered, Pausable};
use naming::{Clocks, Names};
pub use programs::Missing;
use programs::{Chosen, PROGRAMS};
#[cfg(test)]
pub(crate) use tables::LOSS_CAUSES;
use tables::{CpuCounters, cpu_counters};
use untimed::Untimed;
use windows::Windows;

#[allow(missing_docs, clippy::all, clippy::undocumented_unsafe_blocks, clippy::pedantic)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
}
use skeleton::{LatencySkel, LatencySkelBuilder};

/// What can run: hard interrupts, softirqs, tasklets, timers, high-resolution timers, work items.
pub const RUNNERS: [Kind; 6] = [Kind::Irq, Kind::Softirq, Kind::Tasklet, Kind::Timer, Kind::Hrtimer, Kind::Work];

/// Half full tables are drained early: a burst can fill the other buffer before anybody looks again.
const DRAIN_AT_FILL: f64 = 0.5;

/// What to meter.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which of [`RUNNERS`].
    pub runners: Vec<Kind>,
    /// Runs at least this long are listed one by one, with the locks they waited for.
    pub threshold: Option<Duration>,
    /// Time every run, whatever that costs. So it is done wherever long runs are listed, for none may be missed.
    pub every: bool,
}

/// Kernel memory that metering takes for each possible CPU: two buffers of tables and the CPU's own state.
pub const fn table_bytes_per_cpu() -> usize {
    2 * size_of::<skeleton::types::run_buffer>() + size_of::<skeleton::types::run_cpu>()
}

/// A running recording of interrupts, timers and work items. Dropping it detaches everything.
pub struct LatencySource {
    // Links go first: nothing may write to the tables when they are unmapped.
    links: Vec<Link>,
    windows: Option<Windows>,
    untimed: Untimed,
    buffers: DoubleBuffers<skeleton::types::run_buffer>,
    skeleton: LatencySkel<'static>,
    names: Names,
    missing: Vec<Missing>,
    /// Not yet handed over.
    notices: Vec<String>,
    cost: ProgramCost<PROGRAMS>,
    clock: IntervalClock,
    clocks: Clocks,
    own_cpu: OwnCpu,
    misses: u64,
    counters: CpuCounters,
}

impl LatencySource {
    /// Loads and attaches the programs; when this returns, runs are counted.
    pub fn start(options: &Options) -> Result<Self, KernelError> {
        KernelError::unless_privileged("cannot meter interrupts")?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| KernelError::from_libbpf("cannot find out how many CPUs there are", &error))?;
        quiet_libbpf();
        let (chosen, missing) = programs::choose(&options.runners, options.threshold.is_some())?;
        let names = Names::prepare(options.threshold.is_some())?;
        let mut skeleton = load(options, &chosen, &names, cpus)?;
        // SAFETY: the generated type of the map's values, plain integers; `load` made two for each CPU.
        let buffers = unsafe { DoubleBuffers::map(&skeleton.maps.buffers, cpus) }?;
        let links = programs::attach(&mut skeleton)?;
        let windows = open_windows(&skeleton, options.every || options.threshold.is_some())?;
        let cost = ProgramCost::new(&skeleton);
        let misses = cost::recursion_misses(&skeleton);
        let mut source = Self {
            links,
            windows: Some(windows),
            untimed: Untimed::start(&[]),
            buffers,
            skeleton,
            names,
            notices: missing.iter().map(|missing| format!("{missing}; the rest is metered")).collect(),
            missing,
            cost,
            // No run may begin before the interval does.
            clock: IntervalClock::start(),
            clocks: Clocks { tick_ns: tick_ns(), boot_unix_ns: boot_unix_ns() },
            own_cpu: OwnCpu::start(),
            misses,
            counters: CpuCounters::default(),
        };
        // Only now do begins and ends come in pairs.
        source.pause(false);
        source.untimed = Untimed::start(&options.runners);
        Ok(source)
    }

    /// What was asked for and this kernel does not show.
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    /// Stops counting without detaching (`true`), or goes on (`false`). For measuring what counting costs.
    pub fn pause(&mut self, paused: bool) {
        switches::pause(&mut self.skeleton, paused);
    }

    /// As [`drain`](Source::drain), into an interval that holds already what others have measured, and when. What this process took is for
    /// the one who drains all of them to count.
    pub fn drain_into(&mut self, interval: &mut Interval) -> Result<(), KernelError> {
        let buffer = switches::flip(&mut self.skeleton).wait();
        let mut drained = self.buffers.drain(buffer);
        let interrupted = self.windows.as_ref().map(Windows::interrupted).unwrap_or_default();
        self.untimed.complete(&mut drained, interrupted);
        for (loss, count) in &drained.losses {
            interval.losses.add(*loss, *count);
        }
        let misses = cost::recursion_misses(&self.skeleton);
        interval.losses.add(Loss::ProgramRecursion, misses.saturating_sub(self.misses));
        self.misses = misses;
        interval.overhead.merge(&self.overhead()?);
        let caches = self.skeleton.maps.bss_data.as_deref().map_or(&[][..], |bss| &bss.caches);
        self.names.fill(interval, &drained, &self.clocks, caches);
        Ok(())
    }

    fn overhead(&mut self) -> Result<Overhead, KernelError> {
        let counters = cpu_counters(&self.skeleton.maps.run_cpus)?;
        let mut runs = counters.runs;
        for (runs, before) in runs.iter_mut().zip(&self.counters.runs) {
            *runs -= before;
        }
        self.counters = counters;
        Ok(Overhead {
            program_run_ns: self.cost.estimate_ns(&self.skeleton, &runs, 0),
            program_runs: runs.iter().sum(),
            ..Overhead::default()
        })
    }
}

impl DoubleBuffered for LatencySkel<'_> {
    fn active_buffer(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.active_buffer)
    }
}

impl Pausable for LatencySkel<'_> {
    fn resumed(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.bss_data.as_deref_mut()?.resumed)
    }

    fn paused(&mut self) -> Option<&mut u32> {
        Some(&mut self.maps.data_data.as_deref_mut()?.paused)
    }
}

impl Source for LatencySource {
    type Error = KernelError;

    /// Keeps the account of what metering costs.
    fn tick(&mut self) -> bool {
        self.cost.tick(&self.skeleton);
        let buffer = switches::active_buffer(&mut self.skeleton);
        self.buffers.fill(buffer) >= DRAIN_AT_FILL
    }

    /// What was asked for and this kernel does not show.
    fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn drain(&mut self) -> Result<Interval, KernelError> {
        let mut interval = Interval::default();
        self.clock.cut_into(&mut interval);
        self.drain_into(&mut interval)?;
        interval.overhead.own_cpu_ns = self.own_cpu.used_ns();
        Ok(interval)
    }

    /// Work items that are still going on are counted as unfinished.
    fn stop(mut self) -> Result<Interval, KernelError> {
        self.pause(true);
        let mut interval = self.drain()?;
        self.windows = None;
        self.links.clear();
        let unfinished = self.counters.items_begun.saturating_sub(self.counters.items_ended);
        interval.losses.add(Loss::RunUnfinished, unfinished);
        Ok(interval)
    }
}

fn load(options: &Options, chosen: &Chosen, names: &Names, cpus: usize) -> Result<LatencySkel<'static>, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot load the latency programs", &error);
    // The skeleton borrows its storage for as long as it lives, which is as long as the process.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = LatencySkelBuilder::default().open(storage).map_err(refused)?;
    let cpus = u32::try_from(cpus).unwrap_or(1);
    open.maps.buffers.set_max_entries(cpus * 2).map_err(refused)?;
    programs::select(&mut open, chosen);
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.counted_runners = naming::runner_bits(&options.runners);
        rodata.threshold_ns =
            options.threshold.map_or(0, |threshold| u64::try_from(threshold.as_nanos()).unwrap_or(u64::MAX).max(1));
        names.tell_programs(rodata);
    }
    open.load().map_err(refused)
}

fn open_windows(skeleton: &LatencySkel<'_>, every: bool) -> Result<Windows, KernelError> {
    let refused = |error| KernelError::from_libbpf("cannot keep the maps of the latency programs", &error);
    let states = MapHandle::try_from(&skeleton.maps.data_windows).map_err(refused)?;
    let counters = MapHandle::try_from(&skeleton.maps.run_cpus).map_err(refused)?;
    Windows::open(programs::windowed(skeleton)?, states, counters, every)
}

impl From<&Missing> for KernelError {
    fn from(missing: &Missing) -> Self {
        Self::new(ErrorKind::KernelTooOld, missing.to_string())
    }
}
