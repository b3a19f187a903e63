//! The tables that the programs fill, drained.

use std::collections::HashMap;

use lockmeter_profile::{Bucket, Loss};

use super::skeleton::types;
use crate::comm::Comm;
use crate::double_buffer::{DoubleBuffers, InactiveBuffer, table_length};

/// The causes of loss in the order of `enum loss` in `tables.h`.
pub(crate) const LOSS_CAUSES: [Loss; 16] = [
    Loss::TaskFolded,
    Loss::TotalsFull,
    Loss::SamplesFull,
    Loss::StacksFull,
    Loss::StackTooDeep,
    Loss::StackFailed,
    Loss::OverBudget,
    Loss::EndWithoutBegin,
    Loss::BeginWithoutEnd,
    Loss::NestedTooDeep,
    Loss::NoTaskStorage,
    Loss::CachesFull,
    Loss::HoldUnmatched,
    Loss::HoldReleaseUnseen,
    Loss::HeldFull,
    Loss::HoldInterrupted,
];

/// How many programs there are: `PROGRAMS` of `tables.h`.
pub const PROGRAMS: usize = 6;

/// What is counted exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TotalKey {
    pub class: u64,
    pub cgroup: u64,
    /// 0 for a folded slot, which knows no task.
    pub tgid: u32,
    pub meta: u32,
    pub comm: Comm,
    /// Where it ended, if CPUs are to be kept apart.
    pub cpu: Option<u32>,
}

impl TotalKey {
    /// What happened, as `enum happened` says it, or the data model.
    pub const fn happened(&self) -> u8 {
        (self.meta >> 24) as u8
    }

    pub const fn bucket(&self) -> Bucket {
        Bucket((self.meta >> 16) as u8)
    }

    /// The same with something else that happened, of another length.
    pub const fn with(self, happened: u8, bucket: Bucket) -> Self {
        Self { meta: self.meta & 0xffff | (bucket.0 as u32) << 16 | (happened as u32) << 24, ..self }
    }
}

/// The end of a chain of blockers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RootKey {
    pub class: u64,
    pub stack: u64,
    pub kind_mode: u32,
    /// What it did; 0 if that is not known.
    pub state: u32,
}

/// What a sampled wait is told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleKey {
    pub total: TotalKey,
    pub instance: u64,
    pub site: u64,
    pub blocker: u64,
    pub blocker_source: u32,
    /// What it did; 0 if that is not known.
    pub blocker_state: u32,
    /// Whom the blocker waited for itself.
    pub root: Option<RootKey>,
    pub blocker_tgid: u32,
    pub blocker_comm: Comm,
    pub owner_tgid: u32,
    pub owner_comm: Comm,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Counted {
    pub count: u64,
    pub total_ns: u64,
    pub spin_ns: u64,
    pub max_ns: u64,
    /// Samples only: how many stacks were taken.
    pub stacks: u64,
}

impl Counted {
    pub fn merge(&mut self, other: Counted) {
        self.count += other.count;
        self.total_ns += other.total_ns;
        self.spin_ns += other.spin_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.stacks += other.stacks;
    }
}

/// Holds that were counted and not timed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Untimed {
    pub count: u64,
    /// Of the time that they are given, in square nanoseconds.
    pub variance_ns2: f64,
}

/// Everything drained from all CPUs.
#[derive(Debug, Default)]
pub struct Drained {
    pub totals: HashMap<TotalKey, Counted>,
    /// How many holds of a total were counted and not timed; filled in by [`super::HoldLengths`].
    pub untimed: HashMap<TotalKey, Untimed>,
    /// `count` is in 1/1024ths of a wait.
    pub samples: HashMap<SampleKey, Counted>,
    /// Frames by hash, innermost first.
    pub stacks: HashMap<u64, Vec<u64>>,
    pub slow_holds: Vec<types::slow_hold>,
    pub losses: Vec<(Loss, u64)>,
    /// Runs of each program since the last drain, in the order of `enum program`.
    pub runs: [u64; PROGRAMS],
    pub opened: u64,
    pub closed: u64,
    pub stack_ns: u64,
    pub stacks_taken: u64,
}

impl Drained {
    /// How much was lost for this cause.
    pub fn lost(&self, cause: Loss) -> u64 {
        self.losses.iter().filter(|(loss, _)| *loss == cause).map(|(_, count)| count).sum()
    }

    /// Adds what was drained from other tables.
    pub fn merge(&mut self, other: Self) {
        for (key, counted) in other.totals {
            self.totals.entry(key).or_default().merge(counted);
        }
        for (key, counted) in other.samples {
            self.samples.entry(key).or_default().merge(counted);
        }
        self.stacks.extend(other.stacks);
        self.slow_holds.extend(other.slow_holds);
        self.losses.extend(other.losses);
        for (sum, runs) in self.runs.iter_mut().zip(other.runs) {
            *sum += runs;
        }
        self.opened += other.opened;
        self.closed += other.closed;
        self.stack_ns += other.stack_ns;
        self.stacks_taken += other.stacks_taken;
    }
}

impl DoubleBuffers<types::buffer> {
    /// How full the fullest table of the given buffer is, 0 to 1. The programs may be writing meanwhile.
    pub fn fill(&self, buffer: u32) -> f64 {
        let mut fullest: f64 = 0.0;
        for cpu in 0..self.cpus() {
            let buffer = self.buffer(cpu, buffer);
            // SAFETY: three integers inside the mapping, read once each; a torn or stale value only misjudges the fill.
            let (totals, samples, stacks) = unsafe {
                (
                    (&raw const (*buffer).totals_used).read_volatile(),
                    (&raw const (*buffer).samples_used).read_volatile(),
                    (&raw const (*buffer).stacks_used).read_volatile(),
                )
            };
            fullest = fullest
                .max(totals as f64 / TOTALS as f64)
                .max(samples as f64 / SAMPLES as f64)
                .max(stacks as f64 / STACKS as f64);
        }
        fullest
    }

    /// Whether a wait has begun since the given buffer was drained. The programs may be writing meanwhile.
    pub fn has_opened(&self, buffer: u32) -> bool {
        (0..self.cpus()).any(|cpu| {
            let buffer = self.buffer(cpu, buffer);
            // SAFETY: one integer inside the mapping; a stale value is seen at the next look.
            unsafe { (&raw const (*buffer).opened).read_volatile() > 0 }
        })
    }

    /// Reads and clears the given buffer of every CPU.
    pub fn drain(&mut self, buffer: InactiveBuffer, keeps_cpus_apart: bool) -> Drained {
        let mut drained = Drained::default();
        for cpu in 0..self.cpus() {
            let kept = u32::try_from(cpu).ok().filter(|_| keeps_cpus_apart);
            drain_buffer(self.inactive(cpu, buffer), kept, &mut drained);
        }
        drained.losses = self.take_losses(buffer, LOSS_CAUSES, |buffer| &mut buffer.losses);
        drained
    }
}

const TOTALS: usize = table_length(|buffer: &types::buffer| &buffer.totals);
const SAMPLES: usize = table_length(|buffer: &types::buffer| &buffer.samples);
const STACKS: usize = table_length(|buffer: &types::buffer| &buffer.stacks);

fn drain_buffer(buffer: &mut types::buffer, cpu: Option<u32>, drained: &mut Drained) {
    for slot in buffer.totals.iter_mut().chain(&mut buffer.folded).filter(|slot| slot.tag != 0) {
        let slot = std::mem::take(slot);
        let key = TotalKey {
            class: slot.class,
            cgroup: slot.cgroup,
            tgid: slot.tgid,
            meta: slot.meta,
            comm: slot.comm.map(i8::cast_unsigned),
            cpu,
        };
        drained.totals.entry(key).or_default().merge(Counted {
            count: slot.count,
            total_ns: slot.total_ns,
            spin_ns: slot.spin_ns,
            max_ns: slot.max_ns,
            stacks: 0,
        });
    }
    for slot in buffer.samples.iter_mut().filter(|slot| slot.tag != 0) {
        let slot = std::mem::take(slot);
        let key = SampleKey {
            total: TotalKey {
                class: slot.class,
                cgroup: slot.cgroup,
                tgid: slot.tgid,
                meta: slot.meta,
                comm: slot.comm.map(i8::cast_unsigned),
                cpu,
            },
            instance: slot.instance,
            site: slot.site,
            blocker: slot.blocker,
            blocker_source: u32::from(slot.blocker_source),
            blocker_state: u32::from(slot.blocker_state),
            root: (slot.root_class != 0).then_some(RootKey {
                class: slot.root_class,
                stack: slot.root_stack,
                kind_mode: slot.root_kind_mode,
                state: slot.root_state,
            }),
            blocker_tgid: slot.blocker_tgid,
            blocker_comm: slot.blocker_comm.map(i8::cast_unsigned),
            owner_tgid: slot.owner_tgid,
            owner_comm: slot.owner_comm.map(i8::cast_unsigned),
        };
        drained.samples.entry(key).or_default().merge(Counted {
            count: slot.weight,
            total_ns: slot.total_ns,
            spin_ns: slot.spin_ns,
            max_ns: slot.max_ns,
            stacks: u64::from(slot.stacks),
        });
    }
    let slow_holds = buffer.slow_holds.iter_mut().filter(|hold| hold.total_ns != 0);
    drained.slow_holds.extend(slow_holds.map(std::mem::take));
    for slot in buffer.stacks.iter_mut().filter(|slot| slot.hash != 0) {
        let depth = usize::try_from(slot.depth).unwrap_or(0).min(slot.frames.len());
        drained.stacks.entry(slot.hash).or_insert_with(|| slot.frames[..depth].to_vec());
        slot.hash = 0;
    }
    for (sum, runs) in drained.runs.iter_mut().zip(&mut buffer.runs) {
        *sum += std::mem::take(runs);
    }
    drained.opened += std::mem::take(&mut buffer.opened);
    drained.closed += std::mem::take(&mut buffer.closed);
    drained.stack_ns += std::mem::take(&mut buffer.stack_ns);
    drained.stacks_taken += std::mem::take(&mut buffer.stacks_taken);
    (buffer.totals_used, buffer.samples_used, buffer.stacks_used) = (0, 0, 0);
}
