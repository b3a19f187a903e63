//! What threads count together that have no table of their own to change: there was no page for one, or it is being changed, by what a
//! signal handler interrupted or by a task that shares the thread's storage. By lock and duration, without caller and blocker, so that
//! totals stay exact.

use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::{pages, segment};
use crate::layout::{Lost, Meta, Process, SHARED_SLOTS, Slot, blocked};

/// How far from its own place a sample is looked for.
const PROBES: usize = 64;

/// Counts one event of this duration to the lock at this place. What there is no room for is lost, and that is counted.
#[cold]
#[inline(never)]
pub(super) fn count(segment: &'static Process, meta: Meta, lock: u32, ns: u64) {
    let meta = Meta { comm: 0, blocked: blocked::UNKNOWN, ..meta }.pack();
    let Some(slot) = find_or_take(segment, meta, lock) else { return segment::lose(Lost::Sample) };
    slot.total_ns.fetch_add(ns, Relaxed);
    slot.max_ns.fetch_max(ns, Relaxed);
    slot.count.fetch_add(1, Release);
}

fn find_or_take(segment: &'static Process, meta: u64, lock: u32) -> Option<&'static Slot> {
    let first = (meta ^ u64::from(lock) << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..PROBES).find_map(|probe| {
        let place = (first as usize + probe) % SHARED_SLOTS;
        let slot = pages::entry_or_take::<Slot>(segment, &segment.shared, place)
            // Of the first page there is always one.
            .or_else(|| pages::entry(&segment.shared, place % crate::layout::SLOTS_OF_A_PAGE))?;
        let is_it = |slot: &Slot| slot.meta.load(Acquire) == meta && slot.lock.load(Relaxed) == u64::from(lock);
        // What marks it as taken while the rest is written; a sample without blocker has no other use for it.
        let is_free = slot.meta.load(Relaxed) == 0 && slot.blocker.compare_exchange(0, 1, AcqRel, Relaxed).is_ok();
        if is_free {
            slot.lock.store(lock.into(), Relaxed);
            slot.meta.store(meta, Release);
        }
        (is_free || is_it(slot)).then_some(slot)
    })
}
