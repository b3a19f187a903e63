//! The tables that the programs fill, drained.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use libbpf_rs::{MapCore, MapFlags};
use lockmeter_profile::Loss;

use super::programs::PROGRAMS;
use super::skeleton::types;
use crate::double_buffer::{DoubleBuffers, InactiveBuffer, table_length};
use crate::error::KernelError;

/// The causes of loss in the order of `enum run_loss` in `tables.h`.
pub(crate) const LOSS_CAUSES: [Loss; 6] = [
    Loss::RunsFull,
    Loss::RunUnpaired,
    Loss::QueueingNotSeen,
    Loss::LongRunsFull,
    Loss::NoTaskStorage,
    Loss::CachesFull,
];

/// One bucket of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Durations {
    pub count: u64,
    pub total: u64,
    pub max: u64,
    pub own_ns: u64,
}

/// What one handler or function did, by power of two of the duration.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Of an interrupt.
    pub name: String,
    pub runs: [Durations; BUCKETS],
    pub delays: [Durations; BUCKETS],
    /// How many runs there were beyond those timed, by the kernel's own count.
    pub untimed: u64,
}

/// Everything drained from all CPUs.
#[derive(Debug, Default)]
pub struct Drained {
    /// By the key of `tables.h`.
    pub runners: HashMap<u64, Runner>,
    /// With the CPU on which each ended.
    pub long_runs: Vec<(u32, types::long_run)>,
    pub losses: Vec<(Loss, u64)>,
}

const BUCKETS: usize = table_length(|slot: &types::runner_slot| &slot.runs);
const RUNNERS: usize = table_length(|buffer: &types::run_buffer| &buffer.runners);
const LONG_RUNS: usize = table_length(|buffer: &types::run_buffer| &buffer.long_runs);

impl DoubleBuffers<types::run_buffer> {
    /// How full the fullest table of the given buffer is, 0 to 1. The programs may be writing meanwhile.
    pub fn fill(&self, buffer: u32) -> f64 {
        let mut fullest: f64 = 0.0;
        for cpu in 0..self.cpus() {
            let buffer = self.buffer(cpu, buffer);
            // SAFETY: two integers inside the mapping, read once each; a stale value only misjudges the fill.
            let (runners, long_runs) = unsafe {
                (
                    (&raw const (*buffer).runners_used).read_volatile(),
                    (&raw const (*buffer).long_runs_used).read_volatile(),
                )
            };
            fullest = fullest.max(runners as f64 / RUNNERS as f64).max(long_runs as f64 / LONG_RUNS as f64);
        }
        fullest
    }

    /// Reads and clears the given buffer of every CPU.
    pub fn drain(&mut self, buffer: InactiveBuffer) -> Drained {
        let mut drained = Drained::default();
        for cpu in 0..self.cpus() {
            drain_buffer(self.inactive(cpu, buffer), u32::try_from(cpu).unwrap_or(u32::MAX), &mut drained);
        }
        drained.losses = self.take_losses(buffer, LOSS_CAUSES, |buffer| &mut buffer.losses);
        drained
    }
}

fn drain_buffer(buffer: &mut types::run_buffer, cpu: u32, drained: &mut Drained) {
    for slot in buffer.runners.iter_mut().filter(|slot| slot.key != 0) {
        match drained.runners.entry(slot.key) {
            Entry::Occupied(mut known) => known.get_mut().merge(slot),
            Entry::Vacant(new) => {
                new.insert(Runner::of(slot));
            }
        }
        // SAFETY: plain integers and characters, for which all-zero is valid: a free slot.
        *slot = unsafe { std::mem::zeroed() };
    }
    let used = usize::try_from(buffer.long_runs_used).unwrap_or(usize::MAX).min(buffer.long_runs.len());
    for run in buffer.long_runs[..used].iter_mut() {
        // SAFETY: as above.
        let run = std::mem::replace(run, unsafe { std::mem::zeroed() });
        if run.key != 0 {
            drained.long_runs.push((cpu, run));
        }
    }
    (buffer.long_runs_used, buffer.runners_used) = (0, 0);
}

impl Runner {
    fn of(slot: &types::runner_slot) -> Self {
        let name: Vec<u8> = slot.name.iter().map(|c| c.cast_unsigned()).take_while(|byte| *byte != 0).collect();
        let mut runner = Self::untimed(&String::from_utf8_lossy(&name));
        runner.merge(slot);
        runner
    }

    /// One of which no run was timed.
    pub fn untimed(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            runs: [Durations::default(); BUCKETS],
            delays: [Durations::default(); BUCKETS],
            untimed: 0,
        }
    }

    /// How many runs were timed.
    pub fn timed(&self) -> u64 {
        self.runs.iter().map(|durations| durations.count).sum()
    }

    fn merge(&mut self, slot: &types::runner_slot) {
        for (sums, buckets) in [(&mut self.runs, &slot.runs), (&mut self.delays, &slot.delays)] {
            for (sum, bucket) in sums.iter_mut().zip(buckets) {
                sum.count += bucket.count;
                sum.total += bucket.total_ns;
                sum.max = sum.max.max(bucket.max_ns);
                sum.own_ns += bucket.own_ns;
            }
        }
    }
}

/// What every CPU counts since the programs were loaded.
#[derive(Debug, Clone, Copy)]
pub struct CpuCounters {
    pub runs: [u64; PROGRAMS],
    pub items_begun: u64,
    pub items_ended: u64,
}

impl Default for CpuCounters {
    fn default() -> Self {
        Self { runs: [0; PROGRAMS], items_begun: 0, items_ended: 0 }
    }
}

/// The counters of all CPUs, added up.
pub fn cpu_counters(run_cpus: &impl MapCore) -> Result<CpuCounters, KernelError> {
    let mut sum = CpuCounters::default();
    for cpu in run_cpus_of(run_cpus)? {
        for (sum, runs) in sum.runs.iter_mut().zip(cpu.runs) {
            *sum += runs;
        }
        sum.items_begun += cpu.items_begun;
        sum.items_ended += cpu.items_ended;
    }
    Ok(sum)
}

/// How often each program ran on each CPU.
pub fn runs_by_cpu(run_cpus: &impl MapCore) -> Result<Vec<[u64; PROGRAMS]>, KernelError> {
    Ok(run_cpus_of(run_cpus)?.iter().map(|cpu| cpu.runs).collect())
}

fn run_cpus_of(run_cpus: &impl MapCore) -> Result<Vec<types::run_cpu>, KernelError> {
    let values = run_cpus
        .lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)
        .map_err(|error| KernelError::from_libbpf("cannot read the counters of the latency programs", &error))?;
    let whole = values.into_iter().flatten().filter(|value| value.len() >= size_of::<types::run_cpu>());
    // SAFETY: the bytes are at least as many as the type has, which is plain integers, valid for any bytes.
    Ok(whole.map(|value| unsafe { value.as_ptr().cast::<types::run_cpu>().read_unaligned() }).collect())
}
