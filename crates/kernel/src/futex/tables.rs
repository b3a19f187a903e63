//! The tables of exact totals, drained, and the records of sampled waits.

use std::collections::HashMap;

use lockmeter_profile::{Loss, Value};

use crate::comm::Comm;
use crate::double_buffer::{DoubleBuffers, InactiveBuffer, table_length};
use crate::threads::skeleton::types;

/// The causes of loss in the order of `enum loss` in `tables.h`.
pub(crate) const LOSS_CAUSES: [Loss; 4] = [Loss::TaskFolded, Loss::TotalsFull, Loss::OverBudget, Loss::RingFull];

/// The numbers of `enum record_kind` in `tables.h`.
const RECORD_BEGIN: u32 = 1;
const RECORD_WOKEN: u32 = 2;
const RECORD_END: u32 = 3;

/// Set in the operation of a wait that timed out, `OPERATION_TIMED_OUT` in `tables.h`.
pub const TIMED_OUT: u32 = 0x4000;

/// Set beside it once the thread has come again for the same word at once, `OPERATION_RETRIED` in `tables.h`.
pub const RETRIED: u32 = 0x2000;

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

impl Drained {
    /// Who gives up and comes again at once has waited all the while: such waits are moved from those that timed out to those that
    /// ended, and keep their mark. Of one that came again after a drain, the part before has been counted as timed out.
    fn join_retried(&mut self) {
        let retried: Vec<TotalKey> = self.totals.keys().filter(|key| key.operation & RETRIED != 0).copied().collect();
        for key in retried {
            let timed_out = TotalKey { operation: key.operation & !RETRIED, ..key };
            let Some(retried) = self.totals.remove(&key) else { continue };
            let Some(before) = self.totals.get_mut(&timed_out) else { continue };
            let moved = Value {
                count: retried.count.min(before.count),
                total_ns: retried.total_ns.min(before.total_ns),
                ..retried
            };
            before.count -= moved.count;
            before.total_ns -= moved.total_ns;
            if before.count == 0 {
                self.totals.remove(&timed_out);
            }
            let key = TotalKey { operation: key.operation & !TIMED_OUT, ..key };
            self.totals.entry(key).or_default().merge(&moved);
        }
    }
}

const TOTALS: usize = table_length(|buffer: &types::futex_buffer| &buffer.totals);

impl DoubleBuffers<types::futex_buffer> {
    /// How full the fullest table of the given buffer is, 0 to 1. The programs may be writing meanwhile.
    pub fn fill(&self, buffer: u32) -> f64 {
        let used = (0..self.cpus()).map(|cpu| {
            let buffer = self.buffer(cpu, buffer);
            // SAFETY: one integer inside the mapping; a stale value only misjudges the fill.
            unsafe { (&raw const (*buffer).totals_used).read_volatile() }
        });
        used.max().unwrap_or(0) as f64 / TOTALS as f64
    }

    /// Reads and clears the given buffer of every CPU.
    pub fn drain(&mut self, buffer: InactiveBuffer) -> Drained {
        let mut drained = Drained::default();
        for cpu in 0..self.cpus() {
            drain_buffer(self.inactive(cpu, buffer), &mut drained);
        }
        drained.join_retried();
        drained.losses = self.take_losses(buffer, LOSS_CAUSES, |buffer| &mut buffer.losses);
        drained
    }
}

fn drain_buffer(buffer: &mut types::futex_buffer, drained: &mut Drained) {
    for slot in buffer.totals.iter_mut().chain(&mut buffer.folded).filter(|slot| slot.tag != 0) {
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
    drained.stack_ns += std::mem::take(&mut buffer.stack_ns);
    drained.stacks_taken += std::mem::take(&mut buffer.stacks_taken);
    buffer.totals_used = 0;
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
