//! Whether anybody waits for a lock: what a release asks before it says who it is.
//!
//! Counters by a hash of the address. A counter shared by two locks makes a release take the longer way for nothing, and
//! does no harm. The uncontended path only reads, so the lines stay shared.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Eight share a cache line: waiters disturb the users of more locks than if each had its own, but all of them fit beside what
/// the program has in the first-level cache.
#[derive(Debug)]
pub struct Counter(AtomicU64);

const COUNTERS: usize = 128;

/// The bits of a lock's address that are the offset of its counter in [`WAITERS`].
pub const WAITERS_MASK: usize = (COUNTERS - 1) * size_of::<Counter>();

/// Public for entries written in assembly.
pub static WAITERS: [Counter; COUNTERS] = [const { Counter(AtomicU64::new(0)) }; COUNTERS];

/// Threads in a condition wait are counted in the upper half: their mutex has a waiter only once they were woken.
const IN_CONDITION: u64 = 1 << 32;

#[inline]
fn of(lock: usize) -> &'static AtomicU64 {
    &WAITERS[(lock & WAITERS_MASK) / size_of::<Counter>()].0
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

/// After a fork: those who waited do not exist here.
pub(super) fn forget() {
    for counter in &WAITERS {
        counter.0.store(0, Relaxed);
    }
}
