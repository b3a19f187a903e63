//! The timed hold that a thread began last, in few instructions and without a call: with every hold timed, this is what each costs.
//! Whatever takes more is left to [`holds`](super::holds), before anything is changed.

use core::sync::atomic::{Ordering::Relaxed, compiler_fence};

use super::holds::{begin_timed, count_timed_elsewhere, is_mine};
use super::{Wanted, clock, release_cache, samples, segment, stops, thread, timing, waiters};
use crate::layout::{CountedSlot, Thread, mode, pack_held};

/// A lock that does not nest was acquired, and the entry that is written in assembly has found that this hold is to be timed, that
/// the thread holds as many locks as are followed, or that it has no table yet.
#[inline(always)]
pub fn acquired_timed(wanted: Wanted, site: u64) {
    let Wanted { lock, kind, mode } = wanted;
    let (Some(thread), Some(counter)) = (thread::table(), clock::counter()) else {
        return begin_timed(lock, kind, mode, site);
    };
    let held = thread.held_count.load(Relaxed);
    let (Some(next), true) = (thread.held.get(held as usize), held == 0 || mode != mode::READ) else {
        return begin_timed(lock, kind, mode, site);
    };
    let Some(mine) = thread::mine_if_idle(thread) else { return };
    timing::timed(thread, lock);
    // First, so that a signal handler's holds are above it.
    thread.held_count.store(held + 1, Relaxed);
    compiler_fence(core::sync::atomic::Ordering::SeqCst);
    next.site.store(site, Relaxed);
    next.lock.store(lock as u64, Relaxed);
    next.how.store(pack_held(kind, mode, 0), Relaxed);
    // Last, so that what we do ourselves is not in the hold.
    next.since.store(counter.ticks(), Relaxed);
    mine.done();
}

/// A lock without modes is to be released, and the entry that is written in assembly has found that nobody waits for it, that it is the
/// one that the thread acquired last, and that this hold is timed. If that takes no more than this, has it released by `release`,
/// counts the hold, and returns `true`; else does nothing. The table is the thread's own, and `waiters` the word of the lock's place in
/// [`WAITERS`](super::WAITERS).
#[inline(always)]
pub fn end_newest_hold(thread: &'static Thread, wanted: Wanted, waiters: u64, release: impl FnOnce()) -> bool {
    let Some(counter) = clock::counter() else { return false };
    let now = counter.ticks();
    let others = thread.held_count.load(Relaxed).wrapping_sub(1);
    let Some(newest) = thread.held.get(others as usize) else { return false };
    let left = thread.until_look.load(Relaxed).wrapping_sub(1);
    let ns = counter.between_ns(newest.since.load(Relaxed), now);
    // A shorter one is no long hold: see `ticks`.
    let is_usual = newest.how.load(Relaxed) == pack_held(wanted.kind, wanted.mode, 0) && ns < stops::LEAST_NS;
    if !is_usual || left == 0 {
        return false;
    }
    let site = newest.site.load(Relaxed);
    let Some(counted) = release_cache::find_first(thread, wanted.lock, wanted.mode, site) else { return false };
    let Some(mine) = thread::mine_if_idle(thread) else { return false };
    if !stays_as_watched(thread, wanted, counted, waiters, left) {
        mine.done();
        return false;
    }
    thread.held_count.store(others, Relaxed);
    if others == 0 {
        thread.clock_read.store(now, Relaxed);
    }
    thread.until_look.store(left, Relaxed);
    release();
    if samples::count_timed_beside(segment::header(), thread, counted, timing::drawn_of(thread, wanted.lock), ns) {
        mine.done();
    } else {
        count_timed_elsewhere(mine, counted, wanted, site, ns);
    }
    true
}

/// Whether the lock is watched by this thread and is to be, which is counted; or is not and is not to be. Writes to nothing shared.
#[inline(always)]
fn stays_as_watched(
    thread: &'static Thread,
    wanted: Wanted,
    counted: &'static CountedSlot,
    waiters: u64,
    until_look: u32,
) -> bool {
    let is_watched = waiters::says_watched(waiters, wanted.lock);
    if !timing::watches(thread, wanted.lock, until_look) {
        return !is_watched;
    }
    is_watched
        && counted.addresses() == 1
        && segment::current().is_some_and(|segment| is_mine(segment, thread, counted.lock.load(Relaxed) as u32))
        && samples::count_bare_again(thread, counted.watched.load(Relaxed))
}
