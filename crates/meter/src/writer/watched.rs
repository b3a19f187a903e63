//! Which locks are watched: who has them next is to be seen. What a release asks that does not look into the table of locks.
//!
//! By a hash of the address, each place with the lock that it stands for: a release that has nothing to say must not be
//! taken for one that has, for those are nearly all. A lock that takes the place of another ends the watch of that, and
//! nothing is counted for it.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

const PLACES: usize = 512;

static WATCHED: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];

#[inline(always)]
fn of(address: usize) -> &'static AtomicU32 {
    let hash = (address as u32).wrapping_mul(0x9e37_79b1) >> (u32::BITS - PLACES.ilog2());
    &WATCHED[hash as usize % PLACES]
}

/// Never 0. Locks are aligned to four bytes, so that those of two locks in one place differ if they are less than 8 GB apart;
/// if they do not, a watch may be lost.
#[inline(always)]
const fn mark(address: usize) -> u32 {
    (address >> 2) as u32 | 1 << 31
}

/// The lock is watched from now on.
pub(super) fn came(address: usize) {
    of(address).store(mark(address), Relaxed);
}

/// It is no longer.
pub(super) fn gone(address: usize) {
    // Fails if it was not.
    let _ = of(address).compare_exchange(mark(address), 0, Relaxed, Relaxed);
}

/// Whether it is.
#[inline(always)]
pub(super) fn is(address: usize) -> bool {
    of(address).load(Relaxed) == mark(address)
}

/// After a fork: nothing is.
pub(super) fn forget() {
    for place in &WATCHED {
        place.store(0, Relaxed);
    }
}
