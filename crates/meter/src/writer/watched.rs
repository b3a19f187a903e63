//! Which locks may be watched: what a release asks that does not look into the table of locks.
//!
//! Counters by a hash of the address. Where two locks share one, a release looks into the table for nothing.

use core::sync::atomic::{AtomicU16, Ordering::Relaxed};

const COUNTERS: usize = 512;

static WATCHED: [AtomicU16; COUNTERS] = [const { AtomicU16::new(0) }; COUNTERS];

#[inline(always)]
fn of(address: usize) -> &'static AtomicU16 {
    let hash = (address as u32).wrapping_mul(0x9e37_79b1) >> (u32::BITS - COUNTERS.ilog2());
    &WATCHED[hash as usize % COUNTERS]
}

/// The lock is watched from now on.
pub(super) fn came(address: usize) {
    of(address).fetch_add(1, Relaxed);
}

/// It is no longer.
pub(super) fn gone(address: usize) {
    of(address).fetch_sub(1, Relaxed);
}

/// Whether it may be.
#[inline(always)]
pub(super) fn may_be(address: usize) -> bool {
    of(address).load(Relaxed) != 0
}

/// After a fork: nothing is.
pub(super) fn forget() {
    for counter in &WATCHED {
        counter.store(0, Relaxed);
    }
}
