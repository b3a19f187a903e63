//! Where the samples are that a thread counted to lately: by place of the lock, or of its class, and caller.

use core::sync::atomic::Ordering::Relaxed;

use super::walks;
use crate::layout::{RECENT, RECENT_MODE_SHIFT, Recent, SLOTS, Thread};

/// No sample is known yet.
pub(super) const NO_SLOT: u16 = SLOTS as u16;

/// The return address of a release, and its mode.
#[inline(always)]
pub(super) fn caller(mode: u8, site: u64) -> u64 {
    site ^ u64::from(mode) << RECENT_MODE_SHIFT
}

/// The entry of this lock or class and a caller that releases in this mode, and whether it was that of another until now.
#[inline]
fn of(thread: &'static Thread, place: u32, mode: u8, site: u64) -> (&'static Recent, u64, bool) {
    let caller = caller(mode, site);
    let mixed = (u64::from(place) << 32 ^ caller).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let recent = &thread.recent[(mixed >> (u64::BITS - RECENT.ilog2())) as usize];
    let is_it = recent.place.load(Relaxed) == place && recent.caller.load(Relaxed) == caller;
    (recent, caller, is_it)
}

/// The entry, in place of another's if need be.
#[inline]
pub(super) fn find(thread: &'static Thread, place: u32, mode: u8, site: u64) -> &'static Recent {
    let (recent, caller, is_it) = of(thread, place, mode, site);
    if !is_it {
        recent.place.store(place, Relaxed);
        recent.caller.store(caller, Relaxed);
        recent.untimed.store(NO_SLOT, Relaxed);
        recent.timed.store(NO_SLOT, Relaxed);
        recent.watched.store(NO_SLOT, Relaxed);
    }
    recent
}

/// The table has a new owner or the owner a new name: its samples are others.
pub(super) fn forget(thread: &'static Thread) {
    for recent in &thread.recent {
        recent.place.store(0, Relaxed);
    }
    for near in &thread.near {
        near.caller.store(0, Relaxed);
    }
    walks::forget(thread);
}
