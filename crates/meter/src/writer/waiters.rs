//! Whether anybody waits for a lock, and whether it is watched: what a release asks before it says who it is.
//!
//! By a hash of the address. A counter of waiters shared by two locks makes a release take the longer way for nothing, and
//! does no harm. The uncontended path only reads, so the lines stay shared.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::hash::CELL_MULTIPLIER;

/// What is known of the locks of one place. Eight share a cache line: waiters disturb the users of more locks than if each
/// had its own, but all of them fit beside what the program has in the first-level cache.
#[derive(Debug)]
#[repr(C, align(8))]
pub struct WaitersOfHash {
    /// Threads that wait. Those in a condition wait are counted in the upper half: their mutex has a waiter only once they
    /// were woken.
    waiting: AtomicU32,
    /// The lock that is watched: who has it next is to be seen. One that takes the place of another ends the watch of that,
    /// and nothing is counted for it.
    watched: AtomicU32,
}

const PLACES: usize = 256;

/// The product of an address and [`CELL_MULTIPLIER`], shifted by this, is its place in [`WAITERS`].
pub const WAITERS_SHIFT: u32 = u32::BITS - PLACES.ilog2();

/// Public for entries written in assembly, which read a place as one word.
// A forked child forgets which locks are watched.
#[unsafe(link_section = ".data.lockmeter_child_waiters")]
pub static WAITERS: [WaitersOfHash; PLACES] =
    [const { WaitersOfHash { waiting: AtomicU32::new(0), watched: AtomicU32::new(0) } }; PLACES];

const IN_CONDITION: u32 = 1 << 16;

#[inline(always)]
fn of_lock(lock: usize) -> &'static WaitersOfHash {
    &WAITERS[((lock as u32).wrapping_mul(CELL_MULTIPLIER) >> WAITERS_SHIFT) as usize % PLACES]
}

#[inline]
fn of(lock: usize) -> &'static AtomicU32 {
    &of_lock(lock).waiting
}

/// A thread begins to wait.
pub(super) fn came(lock: usize) {
    of(lock).fetch_add(1, Relaxed);
}

/// A thread waits no more.
pub(super) fn gone(lock: usize) {
    of(lock).fetch_sub(1, Relaxed);
}

/// A thread begins to wait for a condition with this mutex.
pub(super) fn condition_came(mutex: usize) {
    of(mutex).fetch_add(IN_CONDITION, Relaxed);
}

/// It waits no more.
pub(super) fn condition_gone(mutex: usize) {
    of(mutex).fetch_sub(IN_CONDITION, Relaxed);
}

/// Who may be waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiters {
    Nobody,
    /// Only threads whose condition may have been signalled.
    InCondition,
    Somebody,
}

#[inline]
pub(super) fn waiters(lock: usize) -> Waiters {
    match of(lock).load(Relaxed) {
        0 => Waiters::Nobody,
        count if count % IN_CONDITION == 0 => Waiters::InCondition,
        _ => Waiters::Somebody,
    }
}

/// Never 0. Locks are aligned to four bytes, so that those of two locks in one place differ if they are less than 4 GB apart;
/// if they do not, a watch may be lost. Entries written in assembly make it, too.
#[inline(always)]
const fn mark(lock: usize) -> u32 {
    lock as u32 | 1
}

/// The lock is watched from now on.
pub(super) fn watch(lock: usize) {
    of_lock(lock).watched.store(mark(lock), Relaxed);
}

/// It is no longer.
pub(super) fn watch_no_more(lock: usize) {
    // Fails if it was not.
    let _ = of_lock(lock).watched.compare_exchange(mark(lock), 0, Relaxed, Relaxed);
}

/// Whether it is watched.
#[inline(always)]
pub(super) fn is_watched(lock: usize) -> bool {
    of_lock(lock).watched.load(Relaxed) == mark(lock)
}

/// Whether it is watched, as this word of its place says, which an entry has read.
#[inline(always)]
pub(super) const fn says_watched(place: u64, lock: usize) -> bool {
    (place >> u32::BITS) as u32 == mark(lock)
}

/// After a fork: those who waited do not exist here, and nothing is watched.
pub(super) fn forget() {
    const AT_ONCE: usize = 16;
    for places in WAITERS.chunks(AT_ONCE) {
        let counts = || places.iter().flat_map(|place| [&place.waiting, &place.watched]);
        // Most children only run another program, and what is not written to need not be copied.
        if counts().fold(0, |any, count| any | count.load(Relaxed)) != 0 {
            counts().for_each(|count| count.store(0, Relaxed));
        }
    }
}
