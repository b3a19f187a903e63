//! The timed hold of a thread that times no other now, in few instructions and without a call: with every hold timed, this is
//! what each costs. Whatever takes more is left to [`holds`](super::holds), before anything is changed.

use core::sync::atomic::Ordering::Relaxed;

use super::holds::{begin_timed, count_timed_elsewhere, is_mine};
use super::{Wanted, clock, release_cache, samples, segment, stops, thread, timing, tls, waiters};
use crate::layout::{CountedSlot, Thread, pack_held};

/// A lock that does not nest was acquired, and the entry that is written in assembly has found that this hold is to be timed, or
/// that the thread has no table yet.
#[inline(always)]
pub fn acquired_timed(wanted: Wanted, site: u64) {
    let Wanted { lock, kind, mode } = wanted;
    let (Some(thread), Some(counter)) = (thread::table(), clock::counter()) else {
        return begin_timed(lock, kind, mode, site);
    };
    if thread.held_count.load(Relaxed) != 0 {
        return begin_timed(lock, kind, mode, site);
    }
    let Some(mine) = thread::mine_if_idle(thread) else { return };
    timing::timed(thread, lock);
    let only = &thread.held[0];
    only.site.store(site, Relaxed);
    only.lock.store(lock as u64, Relaxed);
    only.how.store(pack_held(kind, mode, 0), Relaxed);
    tls::set_held(thread, 1);
    // Last, so that what we do ourselves is not in the hold.
    only.since.store(counter.ticks(), Relaxed);
    mine.done();
}

/// A lock without modes is to be released, and the entry that is written in assembly has found that nobody waits for it, and that
/// its hold is the only one that the thread times. If that takes no more than this, has it released by `release`, counts the
/// hold, and returns `true`; else does nothing. The table is the thread's own, and `waiters` the word of the lock's place in
/// [`WAITERS`](super::WAITERS).
#[inline(always)]
pub fn end_only_hold(thread: &'static Thread, wanted: Wanted, site: u64, waiters: u64, release: impl FnOnce()) -> bool {
    let Some(counter) = clock::counter() else { return false };
    let now = counter.ticks();
    let only = &thread.held[0];
    let left = thread.until_look.load(Relaxed).wrapping_sub(1);
    let ns = counter.between_ns(only.since.load(Relaxed), now);
    let is_usual = only.how.load(Relaxed) == pack_held(wanted.kind, wanted.mode, 0) && ns < stops::LEAST_NS;
    if !is_usual || left == 0 {
        return false;
    }
    let Some(counted) = release_cache::find_first(thread, wanted.lock, wanted.mode, site) else { return false };
    let Some(mine) = thread::mine_if_idle(thread) else { return false };
    if !stays_as_watched(thread, wanted, counted, waiters, left) {
        mine.done();
        return false;
    }
    tls::set_held(thread, 0);
    thread.until_look.store(left, Relaxed);
    release();
    if samples::count_timed_beside(segment::header(), thread, counted, ns) {
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
