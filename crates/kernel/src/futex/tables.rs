//! The tables of exact totals, drained, and the records of sampled waits.

use std::collections::HashMap;

use lockmeter_profile::{Loss, Value};

use crate::comm::Comm;
use crate::double_buffer::{DoubleBuffers, InactiveHalf, table_length};
use crate::threads::skeleton::types;

/// The causes of loss in the order of `enum loss` in `tables.h`.
pub(crate) const LOSS_CAUSES: [Loss; 4] = [Loss::TaskFolded, Loss::TotalsFull, Loss::OverBudget, Loss::RingFull];

/// The numbers of `enum record_kind` in `tables.h`.
const RECORD_BEGIN: u32 = 1;
const RECORD_WOKEN: u32 = 2;
const RECORD_END: u32 = 3;

/// Set in the operation of a wait that timed out, `OPERATION_TIMED_OUT` in `tables.h`.
pub const TIMED_OUT: u32 = 0x4000;

/// A futex word of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Word {
    pub tgid: u32,
    pub address: u64,
}

/// What is counted exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TotalKey {
    pub word: Word,
    pub operation: u32,
    pub bucket: u8,
    pub cgroup: u64,
    /// Empty for a folded slot, which knows no task.
    pub comm: Comm,
}

/// Everything drained from all CPUs.
#[derive(Debug, Default)]
pub struct Drained {
    pub totals: HashMap<TotalKey, Value>,
    pub losses: Vec<(Loss, u64)>,
    pub stack_ns: u64,
    pub stacks_taken: u64,
}

const TOTALS: usize = table_length(|half: &types::futex_half| &half.totals);

impl DoubleBuffers<types::futex_half> {
    /// How full the fullest table of the given half is, 0 to 1. The programs may be writing meanwhile.
    pub fn fill(&self, half: u32) -> f64 {
        let used = (0..self.cpus()).map(|cpu| {
            let half = self.half(cpu, half);
            // SAFETY: one integer inside the mapping; a stale value only misjudges the fill.
            unsafe { (&raw const (*half).totals_used).read_volatile() }
        });
        used.max().unwrap_or(0) as f64 / TOTALS as f64
    }

    /// Reads and clears the given half of every CPU.
    pub fn drain(&mut self, half: InactiveHalf) -> Drained {
        let mut drained = Drained::default();
        for cpu in 0..self.cpus() {
            drain_half(self.inactive(cpu, half), &mut drained);
        }
        drained.losses = self.take_losses(half, LOSS_CAUSES, |half| &mut half.losses);
        drained
    }
}

fn drain_half(half: &mut types::futex_half, drained: &mut Drained) {
    for slot in half.totals.iter_mut().chain(&mut half.folded).filter(|slot| slot.tag != 0) {
        let slot = std::mem::take(slot);
        let key = TotalKey {
            word: Word { tgid: slot.tgid, address: slot.word },
            operation: slot.operation.into(),
            bucket: slot.bucket as u8,
            cgroup: slot.cgroup,
            comm: slot.comm.map(i8::cast_unsigned),
        };
        drained.totals.entry(key).or_default().merge(&Value {
            count: slot.count,
            total_ns: slot.total_ns,
            max_ns: slot.max_ns,
            spin_ns: 0,
        });
    }
    drained.stack_ns += std::mem::take(&mut half.stack_ns);
    drained.stacks_taken += std::mem::take(&mut half.stacks_taken);
    half.totals_used = 0;
}

/// A record of the ring buffer.
pub enum Record<'a> {
    Begin(&'a types::begin_record),
    Woken(&'a types::woken_record),
    End(&'a types::end_record),
}

impl<'a> Record<'a> {
    /// The record in these bytes; `None` if they are none.
    pub fn read(bytes: &'a [u8]) -> Option<Self> {
        let kind = bytes.get(..4).and_then(|kind| kind.try_into().ok()).map_or(0, u32::from_ne_bytes);
        // SAFETY: the generated types of the records are plain integers, valid for any bytes.
        unsafe {
            match kind {
                RECORD_BEGIN => view(bytes).map(Self::Begin),
                RECORD_WOKEN => view(bytes).map(Self::Woken),
                RECORD_END => view(bytes).map(Self::End),
                _ => None,
            }
        }
    }
}

/// # Safety
///
/// Any bytes must be a valid `T`.
unsafe fn view<T>(bytes: &[u8]) -> Option<&T> {
    let pointer = bytes.as_ptr().cast::<T>();
    // SAFETY: long enough and aligned; the caller says that the bytes are a valid value, and they live as long as the slice.
    (bytes.len() >= size_of::<T>() && pointer.is_aligned()).then(|| unsafe { &*pointer })
}
