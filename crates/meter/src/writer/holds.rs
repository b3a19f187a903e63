//! Level [`HOLD`](super::HOLD): every acquisition is counted; of which the hold is timed, `timing` says.

use core::sync::atomic::Ordering::Relaxed;

use super::locks::Sampled;
use super::samples::Key;
use super::{Registers, Wanted, clock, locks, near, recent, rows, samples, segment, stacks, thread, timing, watched};
use crate::layout::{HeldLock, Lost, Meta, Near, Segment, Thread, blocked, happened, mode, pack_held};

/// A lock was acquired, by a call that returns to `site`: the hold begins. If `nests`, a thread may acquire it again while it holds it: all its holds are timed,
/// for only the list of timed ones tells the last release.
#[inline]
pub fn acquired(wanted: Wanted, nests: bool, site: u64) {
    let Some(mine) = thread::mine() else { return };
    let thread = mine.thread;
    if nests || !timing::skips(thread, wanted.lock) {
        begin(thread, wanted, site);
    }
    mine.done();
}

/// As [`acquired`] for a lock that does not nest, when the entry that is written in assembly has found that this hold is to be
/// timed, or that the thread has no table yet.
#[inline(always)]
pub fn acquired_timed(wanted: Wanted, site: u64) {
    let Some(mine) = thread::mine() else { return };
    begin(mine.thread, wanted, site);
    mine.done();
}

#[inline(always)]
fn begin(thread: &'static Thread, wanted: Wanted, site: u64) {
    timing::timed(thread, wanted.lock);
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    if held == 0 {
        return push(thread, &thread.held[0], wanted, 0, site);
    }
    let again = thread.held[..held].iter().rev().find(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    if let Some(again) = again {
        // A recursive lock is held from its first acquisition to its last release.
        again.how.store(again.how.load(Relaxed).wrapping_add(1 << 32), Relaxed);
    } else if let Some(next) = thread.held.get(held) {
        push(thread, next, wanted, held, site);
    } else {
        segment::lose(Lost::Held);
    }
}

#[inline]
fn push(thread: &'static Thread, next: &'static HeldLock, wanted: Wanted, held: usize, site: u64) {
    next.site.store(site, Relaxed);
    next.lock.store(wanted.lock as u64, Relaxed);
    next.how.store(pack_held(wanted.kind, wanted.mode, 0), Relaxed);
    thread.held_count.store(held as u32 + 1, Relaxed);
    // Last, so that what we do ourselves is not in the hold.
    next.since.store(clock::ticks(), Relaxed);
}

/// A release in progress.
#[expect(missing_debug_implementations, reason = "holds what is shared with the recorder")]
#[must_use]
pub struct Releasing {
    wanted: Wanted,
    hold: Hold,
}

#[derive(Clone, Copy)]
enum Hold {
    /// It ends now; how long it took, the place of the lock, and where its samples are known to be.
    Ended(u64, u32, Option<&'static Near>),
    /// A nested release, or nothing can be counted.
    GoesOn,
    /// No timed hold of this lock.
    NotTimed,
}

/// The hold ends; to be called after [`releasing`](super::releasing) and before the release. The mode is that of the release
/// where the lock tells.
#[inline]
pub fn end_hold(wanted: Wanted, registers: &Registers) -> Releasing {
    let mut releasing = Releasing { wanted, hold: Hold::GoesOn };
    let Some(mine) = thread::mine() else { return releasing };
    let thread = mine.thread;
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    // Locks are mostly released in the opposite order.
    let place = thread.held[..held].iter().rposition(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    releasing.hold = Hold::NotTimed;
    if let Some(place) = place {
        // Only now: it takes longer than the search, which mostly ends at the first.
        let now = clock::ticks();
        let this = &thread.held[place];
        let how = this.how.load(Relaxed);
        if how >> 32 > 0 {
            this.how.store(how - (1 << 32), Relaxed);
            releasing.hold = Hold::GoesOn;
        } else {
            releasing.wanted = Wanted { lock: wanted.lock, kind: how as u8, mode: (how >> 8) as u8 };
            let held_ns = clock::between_ns(this.since.load(Relaxed), now);
            if place + 1 < held {
                close_gap(thread, place, held);
            }
            thread.held_count.store(held as u32 - 1, Relaxed);
            timing::ended(thread, now);
            let (at, near) = sign(thread, releasing.wanted, stacks::address_site(registers));
            releasing.hold = Hold::Ended(held_ns, at, near);
        }
    }
    mine.done();
    releasing
}

#[cold]
fn close_gap(thread: &'static Thread, place: usize, held: usize) {
    for (to, from) in thread.held[place..held].iter().zip(&thread.held[place + 1..held]) {
        to.lock.store(from.lock.load(Relaxed), Relaxed);
        to.since.store(from.since.load(Relaxed), Relaxed);
        to.how.store(from.how.load(Relaxed), Relaxed);
        to.site.store(from.site.load(Relaxed), Relaxed);
    }
}

/// Leaves word that this thread had the lock, and counts if another had it before. While the lock is held, for the next holder
/// is to see it; readers follow each other in no order. Returns the lock's place, and where its samples are known to be.
#[inline]
fn sign(thread: &'static Thread, wanted: Wanted, site: u64) -> (u32, Option<&'static Near>) {
    let Some(segment) = segment::current() else { return (0, None) };
    let watches = wanted.mode != mode::READ && timing::watches(thread, wanted.lock);
    if let Some(near) = near::find(thread, wanted.lock, wanted.mode, site) {
        let place = near.place.load(Relaxed);
        let is_done = if watches {
            // The most common case writes to nothing shared.
            near.count.load(Relaxed) == 1
                && watched::is(wanted.lock)
                && is_mine(segment, thread, place)
                && samples::count_bare_again(thread, near.watched.load(Relaxed))
        } else {
            !is_watched(wanted)
        };
        if is_done {
            return (place, Some(near));
        }
    }
    sign_searching(segment, thread, wanted, site, watches)
}

/// Whether the lock that has this place is watched, and was this thread's.
#[inline]
fn is_mine(segment: &'static Segment, thread: &'static Thread, place: u32) -> bool {
    let entry = segment.locks.get((place as usize).wrapping_sub(1));
    entry.is_some_and(|entry| entry.watched.load(Relaxed) == thread.owner.load(Relaxed))
}

#[inline(never)]
fn sign_searching(
    segment: &'static Segment,
    thread: &'static Thread,
    wanted: Wanted,
    site: u64,
    watches: bool,
) -> (u32, Option<&'static Near>) {
    let changes = rows::changes();
    let Some(lock) = locks::find_or_make(segment, wanted.lock, wanted.kind, || site) else { return (0, None) };
    let near = near::find(thread, wanted.lock, wanted.mode, site)
        .or_else(|| near::learn(thread, wanted.lock, lock.place, wanted.mode, site, changes));
    if wanted.mode != mode::READ && (watches || watched::is(wanted.lock)) {
        look_who_had_it(segment, thread, lock, wanted, site, watches);
        if let Some(near) = near {
            near.watched.store(recent::find(thread, lock.place, wanted.mode, site).watched.load(Relaxed), Relaxed);
        }
    }
    (lock.place, near)
}

/// The lock was released, if `done`: the hold is counted, when nobody waits for it any more.
#[inline]
pub fn released(releasing: &Releasing, registers: &Registers, done: bool) {
    let site = stacks::address_site(registers);
    match releasing.hold {
        Hold::Ended(ns, place, near) => count_timed(releasing.wanted, site, ns, place, near),
        Hold::NotTimed if done => count_untimed(releasing.wanted, site),
        Hold::NotTimed | Hold::GoesOn => {}
    }
}

#[inline]
fn count_timed(wanted: Wanted, site: u64, ns: u64, place: u32, near: Option<&'static Near>) {
    let Some(mine) = thread::mine() else { return };
    let thread = mine.thread;
    if let Some(segment) = segment::current() {
        let meta = super::meta(happened::HOLD, wanted, ns, blocked::UNKNOWN);
        // A signal handler may have changed it since the hold ended.
        let near = near.filter(|near| near::still_is(near, place, wanted.mode, site));
        let timed = near.map_or_else(|| &recent::find(thread, place, wanted.mode, site).timed, |near| &near.timed);
        if !samples::count_again(segment, thread, timed.load(Relaxed), meta, ns) {
            timed.store(count_at(segment, thread, place, site, meta, ns), Relaxed);
        }
    }
    mine.done();
}

/// A lock was released of whose hold this thread times nothing.
#[inline(always)]
pub fn count_untimed(wanted: Wanted, site: u64) {
    if !count_untimed_again(wanted, site) {
        count_untimed_searching(wanted, site);
    }
}

/// The common case, which calls nothing: `false`, and nothing done, if this is another.
#[inline(always)]
fn count_untimed_again(wanted: Wanted, site: u64) -> bool {
    let Some(mine) = thread::mine_already() else { return false };
    let thread = mine.thread;
    let open = thread.untimed_open.load(Relaxed);
    let counted = open != 0
        && !is_watched(wanted)
        && near::find_first(thread, wanted.lock, wanted.mode, site)
            .is_some_and(|near| samples::count_bare_again(thread, near.untimed.load(Relaxed)));
    if counted {
        thread.untimed_open.store(open - 1, Relaxed);
    }
    mine.done();
    counted
}

/// Whether this release has to say who has the lock. A reader's is not what is watched for.
#[inline(always)]
fn is_watched(wanted: Wanted) -> bool {
    wanted.mode != mode::READ && watched::is(wanted.lock)
}

#[inline(never)]
extern "C-unwind" fn count_untimed_searching(wanted: Wanted, site: u64) {
    let Some(mine) = thread::mine() else { return };
    let thread = mine.thread;
    let open = thread.untimed_open.load(Relaxed);
    if open == 0 {
        segment::lose(Lost::Unmatched);
        return mine.done();
    }
    thread.untimed_open.store(open - 1, Relaxed);
    let near = near::find(thread, wanted.lock, wanted.mode, site).filter(|_| !is_watched(wanted));
    if near.is_some_and(|near| samples::count_bare_again(thread, near.untimed.load(Relaxed))) {
        return mine.done();
    }
    if let Some(segment) = segment::current() {
        let changes = rows::changes();
        let lock = locks::find_or_make(segment, wanted.lock, wanted.kind, || site);
        let place = lock.map_or(0, |lock| lock.place);
        let recent = recent::find(thread, place, wanted.mode, site);
        if !samples::count_bare_again(thread, recent.untimed.load(Relaxed)) {
            let meta = super::meta(happened::UNTIMED, wanted, 0, blocked::UNKNOWN);
            recent.untimed.store(count_at(segment, thread, place, site, meta, 0), Relaxed);
        }
        if let Some(lock) = lock {
            let near = near::find(thread, wanted.lock, wanted.mode, site)
                .or_else(|| near::learn(thread, wanted.lock, place, wanted.mode, site, changes));
            if let Some(near) = near {
                near.untimed.store(recent.untimed.load(Relaxed), Relaxed);
            }
            if is_watched(wanted) {
                look_who_had_it(segment, thread, lock, wanted, site, false);
            }
        }
    }
    mine.done();
}

/// Counts to the lock at this place, and says to which sample.
fn count_at(segment: &'static Segment, thread: &'static Thread, place: u32, site: u64, meta: Meta, ns: u64) -> u16 {
    let key = Key { meta, lock: place.into(), site, blocker: 0 };
    samples::count(segment, thread, key, ns).unwrap_or(recent::NO_SLOT)
}

/// Counts the acquisition of this hold if the hold before was watched, and whether the lock moved; and has this one watched, if
/// `watches`.
#[inline(never)]
fn look_who_had_it(
    segment: &'static Segment,
    thread: &'static Thread,
    lock: Sampled,
    wanted: Wanted,
    site: u64,
    watches: bool,
) {
    let me = thread.owner.load(Relaxed);
    let before = lock.watch(if watches { me } else { 0 });
    if before == 0 {
        return;
    }
    let recent = recent::find(thread, lock.place, wanted.mode, site);
    if !samples::count_bare_again(thread, recent.watched.load(Relaxed)) {
        let meta = super::meta(happened::WATCHED, wanted, 0, blocked::UNKNOWN);
        recent.watched.store(count_at(segment, thread, lock.place, 0, meta, 0), Relaxed);
    }
    if before != me {
        let meta = super::meta(happened::MOVED, wanted, 0, blocked::UNKNOWN);
        count_at(segment, thread, lock.place, 0, meta, 0);
    }
}
