//! Which holds are timed: all, until a thread takes locks so often that reading the clock twice for each would cost more
//! of its CPU time than the session allows. Then one of several is, drawn at random, and the others are counted.
//!
//! Each thread decides by itself, for groups of locks (by address): a lock that is taken now and then has all its holds
//! timed, though the same thread takes another a million times a second.

use core::sync::atomic::Ordering::Relaxed;

use super::hash::CELL_MULTIPLIER;
use super::{clock, segment, ticks, tls};
use crate::layout::{CELLS, Cell, Thread};

/// Timed holds between two looks at the rate: so long a burst is always timed.
const LOOK: u32 = 1024;
/// A thread that seldom runs may time this many holds of the clock's second as one that always does of its fifth.
const OF_CLOCK: u64 = 5;
const PER_MILLE: u64 = 1000;
/// One of this many at least is timed.
const MAX_STRIDE: u32 = 4096;
/// A stride grows by no more than this at a time, so that one burst does not end the timing of a group.
const MAX_GROWTH: u32 = 8;
/// Of the timed holds of a group that has others, one of this many is watched: that writes to a line that all users of the lock
/// share.
const WATCHED_OF_TIMED: u32 = 64;
/// The upper bits of the product are the group.
pub const CELL_SHIFT: u32 = u32::BITS - CELLS.ilog2();

const _: () = assert!(CELLS == u64::BITS as usize, "a word has one bit for each group");

#[inline(always)]
fn cell_of(lock: usize) -> usize {
    ((lock as u32).wrapping_mul(CELL_MULTIPLIER) >> CELL_SHIFT) as usize
}

/// A table has a new owner: everything is timed at first.
pub(super) fn begin(thread: &'static Thread, seed: u32) {
    for (cell, until) in thread.cells.iter().zip(&thread.until_timed) {
        cell.stride.store(1, Relaxed);
        cell.timed.store(0, Relaxed);
        until.store(0, Relaxed);
    }
    thread.random.store(seed.wrapping_mul(CELL_MULTIPLIER) | 1, Relaxed);
    thread.until_look.store(LOOK, Relaxed);
    let switches = segment::header().switches.load(Relaxed);
    thread.switches.store(switches, Relaxed);
    thread.held_switches.store(switches, Relaxed);
    thread.clock_read.store(clock::ticks(), Relaxed);
    thread.looked_at.store(clock::ticks(), Relaxed);
}

/// Whether the hold of this lock that begins now is not to be timed. Reads only: a hold that is not timed is counted when it
/// ends.
#[inline(always)]
pub(super) fn skips(lock: usize) -> bool {
    tls::is_quiet(cell_of(lock))
}

/// A hold of this lock ended that was not timed: the next one is, if it is time.
#[inline(always)]
pub(super) fn untimed(thread: &'static Thread, lock: usize) {
    let until = &thread.until_timed[cell_of(lock)];
    let left = until.load(Relaxed).cast_signed().wrapping_sub(1);
    until.store(left.cast_unsigned(), Relaxed);
    if left <= 0 {
        time_next(lock, thread);
    }
}

/// As many holds of the group of this lock ended as were not to be timed: the next one is. The table is the thread's own. Returns
/// what a function does that has released a lock.
#[cold]
#[inline(never)]
pub extern "C" fn time_next(lock: usize, thread: &'static Thread) -> i32 {
    tls::set_quiet(cell_of(lock), false);
    thread.until_timed[cell_of(lock)].store(0, Relaxed);
    // The reader is to see that something was counted, though the number above may be what it was.
    thread.changes.store(thread.changes.load(Relaxed).wrapping_add(1), Relaxed);
    0
}

/// A hold of this lock is being timed: draws which one will be next.
#[inline(always)]
pub(super) fn timed(thread: &'static Thread, lock: usize) {
    let at = cell_of(lock);
    let cell = &thread.cells[at];
    cell.timed.store(cell.timed.load(Relaxed).wrapping_add(1), Relaxed);
    let stride = cell.stride.load(Relaxed);
    if stride > 1 {
        let gap = gap(thread, stride);
        thread.until_timed[at].store(gap, Relaxed);
        tls::set_quiet(at, gap > 0);
    }
}

/// From 0 to twice the stride less two, all alike: programs lock in patterns, and a fixed step could fall in with one.
#[inline(always)]
fn gap(thread: &'static Thread, stride: u32) -> u32 {
    let mut random = thread.random.load(Relaxed);
    random ^= random << 13;
    random ^= random >> 17;
    random ^= random << 5;
    thread.random.store(random, Relaxed);
    ((u64::from(random) * u64::from(2 * stride - 1)) >> 32) as u32
}

/// Whether it is to be seen who has this lock after the timed hold that ends now, with this many left until the next look.
#[inline(always)]
pub(super) fn watches(thread: &'static Thread, lock: usize, until_look: u32) -> bool {
    thread.cells[cell_of(lock)].stride.load(Relaxed) == 1 || until_look.is_multiple_of(WATCHED_OF_TIMED)
}

/// One of how many holds is timed of the group of this lock, as a power of two: what a timed one stands for, with itself.
#[inline(always)]
pub(super) fn drawn_of(thread: &'static Thread, lock: usize) -> u8 {
    thread.cells[cell_of(lock)].stride.load(Relaxed).trailing_zeros() as u8
}

/// A timed hold ended: every so often, looks whether too many are.
#[inline]
pub(super) fn ended(thread: &'static Thread, now: u64) {
    let left = thread.until_look.load(Relaxed).wrapping_sub(1);
    thread.until_look.store(left, Relaxed);
    if left == 0 {
        look(thread, now);
    }
}

#[cold]
#[inline(never)]
fn look(thread: &'static Thread, now: u64) {
    let elapsed_ns = clock::between_ns(thread.looked_at.load(Relaxed), now);
    thread.looked_at.store(now, Relaxed);
    // What the thread itself ran would take a system call. The recorder asks how much the process ran.
    let running = match segment::header().running_per_mille.load(Relaxed) {
        0 => PER_MILLE,
        running => u64::from(running).min(PER_MILLE),
    };
    let ran_ns = elapsed_ns / PER_MILLE * running;
    thread.until_look.store(LOOK, Relaxed);
    let rate = segment::header().timed_holds.load(Relaxed);
    let switches = segment::header().switches.load(Relaxed);
    if thread.switches.swap(switches, Relaxed) != switches && rate != 0 {
        // Holds were not timed meanwhile, or more of them: that time says nothing of this rate.
        thread.cells.iter().for_each(|cell| cell.timed.store(0, Relaxed));
        return;
    }
    let counts_ns = ran_ns.max(elapsed_ns / OF_CLOCK);
    let allowed = if rate == 0 { u64::MAX } else { counts_ns.saturating_mul(rate.into()) / 1_000_000_000 };
    let share = share(&thread.cells, allowed);
    for (cell, until) in thread.cells.iter().zip(&thread.until_timed) {
        let stride = cell.stride.load(Relaxed).max(1);
        let begun = u64::from(cell.timed.load(Relaxed)) * u64::from(stride);
        let wanted = u32::try_from(begun.div_ceil(share.max(1))).unwrap_or(MAX_STRIDE).clamp(1, MAX_STRIDE);
        let wanted = wanted.next_power_of_two();
        let next = if wanted > 1 && stride == 1 && !ticks::are_there() { 1 } else { wanted.min(stride * MAX_GROWTH) };
        cell.stride.store(next, Relaxed);
        cell.timed.store(0, Relaxed);
        if next < stride {
            // What was drawn for the old stride may be far away.
            until.store(until.load(Relaxed).min(next), Relaxed);
        }
    }
}

/// How many holds of a group may be timed so that all together are no more than allowed: groups with fewer leave the rest
/// to the others.
fn share(cells: &[Cell; CELLS], allowed: u64) -> u64 {
    let begun = |cell: &Cell| u64::from(cell.timed.load(Relaxed)) * u64::from(cell.stride.load(Relaxed).max(1));
    let (mut share, mut left, mut groups) = (0, allowed, cells.len() as u64);
    // Each pass takes out groups that need less than an equal part; four come close enough.
    for _ in 0..4 {
        let equal = left / groups.max(1);
        if equal <= share {
            break;
        }
        share = equal;
        (left, groups) = (allowed, 0);
        for cell in cells {
            match begun(cell) {
                few if few <= share => left = left.saturating_sub(few),
                _ => groups += 1,
            }
        }
        if groups == 0 {
            return u64::MAX;
        }
    }
    share
}
