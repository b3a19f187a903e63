//! Level [`HOLD`](super::HOLD): every acquisition is counted; of which the hold is timed, `timing` says.

use core::sync::atomic::Ordering::Relaxed;

use super::locks::Sampled;
use super::samples::Key;
use super::{
    Registers, Wanted, clock, locks, pages, release_cache, rows, samples, segment, shared_samples, stacks, stops,
    thread, timing, tls, waiters,
};
use crate::layout::{
    CountedSlot, HeldLock, LockEntry, Lost, Meta, Process, Thread, blocked, happened, mode, pack_held,
};

/// A lock was acquired, by a call that returns to `site`: the hold begins. If `nests`, a thread may acquire it again while it
/// holds it: all its holds are timed, for only the list of timed ones tells the last release.
#[inline]
pub fn acquired(wanted: Wanted, nests: bool, site: u64) {
    if (nests || !timing::skips(wanted.lock)) && !tls::has_no_clock() {
        // Where there is none, the hold is not timed, and counted when it ends.
        let Some(mine) = thread::mine() else { return };
        begin(mine.thread, wanted, nests, site);
        mine.done();
    }
}

/// The hold of a lock that does not nest begins, and is timed.
#[cold]
#[inline(never)]
pub(super) fn begin_timed(lock: usize, kind: u8, mode: u8, site: u64) {
    let Some(mine) = thread::mine() else { return };
    begin(mine.thread, Wanted { lock, kind, mode }, false, site);
    mine.done();
}

#[inline(always)]
fn begin(thread: &'static Thread, wanted: Wanted, nests: bool, site: u64) {
    timing::timed(thread, wanted.lock);
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    if held == 0 {
        return push(thread, &thread.held[0], wanted, 0, site);
    }
    let again = thread.held[..held].iter().rev().find(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    if let Some(again) = again {
        if nests || wanted.mode == mode::READ {
            // It is held from its first acquisition to its last release.
            again.how.store(again.how.load(Relaxed).wrapping_add(1 << 32), Relaxed);
        } else {
            // Its release was not seen: metering was off, or another thread released it. This is a new hold.
            again.site.store(site, Relaxed);
            again.how.store(pack_held(wanted.kind, wanted.mode, 0), Relaxed);
            again.since.store(clock::ticks(), Relaxed);
        }
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
    tls::set_held(thread, held + 1);
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
    Ended(u64, u32, Option<&'static CountedSlot>),
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
    let Some(thread) = thread::table() else {
        if thread::is_without_room() {
            releasing.hold = Hold::NotTimed;
        } else {
            // It has acquired nothing since it has been metered.
            segment::lose(Lost::Unmatched);
        }
        return releasing;
    };
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    // Locks are mostly released in the opposite order.
    let place = thread.held[..held].iter().rposition(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    let Some(place) = place else {
        releasing.hold = Hold::NotTimed;
        return releasing;
    };
    // Only now: it takes longer than the search, which mostly ends at the first.
    let now = clock::ticks();
    let this = &thread.held[place];
    let how = this.how.load(Relaxed);
    let is_nested = how >> 32 > 0;
    let Some(mine) = thread::mine() else {
        if is_nested {
            segment::lose(Lost::Interrupted);
        } else {
            releasing.hold = Hold::NotTimed;
        }
        return releasing;
    };
    if is_nested {
        this.how.store(how - (1 << 32), Relaxed);
    } else {
        releasing.wanted = Wanted { lock: wanted.lock, kind: how as u8, mode: (how >> 8) as u8 };
        let held_ns = stops::between_ns_running(this.since.load(Relaxed), now);
        if place + 1 < held {
            close_gap(thread, place, held);
        }
        tls::set_held(thread, held - 1);
        timing::ended(thread, now);
        let (at, counted) = sign(thread, releasing.wanted, stacks::address_site(registers));
        releasing.hold = Hold::Ended(held_ns, at, counted);
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
fn sign(thread: &'static Thread, wanted: Wanted, site: u64) -> (u32, Option<&'static CountedSlot>) {
    let Some(segment) = segment::current() else { return (0, None) };
    let watches = wanted.mode != mode::READ && timing::watches(thread, wanted.lock, thread.until_look.load(Relaxed));
    if let Some(counted) = release_cache::find(thread, wanted.lock, wanted.mode, site) {
        let place = counted.lock.load(Relaxed) as u32;
        let is_done = if watches {
            // The most common case writes to nothing shared.
            counted.addresses() == 1
                && waiters::is_watched(wanted.lock)
                && is_mine(segment, thread, place)
                && samples::count_bare_again(thread, counted.watched.load(Relaxed))
        } else {
            !is_watched(wanted)
        };
        if is_done {
            return (place, Some(counted));
        }
    }
    sign_searching(segment, thread, wanted, site, watches)
}

/// Whether the lock that has this place is watched, and was this thread's.
#[inline(always)]
pub(super) fn is_mine(segment: &'static Process, thread: &'static Thread, place: u32) -> bool {
    let entry = pages::entry::<LockEntry>(&segment.locks, (place as usize).wrapping_sub(1));
    entry.is_some_and(|entry| entry.watched.load(Relaxed) == thread.owner.load(Relaxed))
}

#[inline(never)]
fn sign_searching(
    segment: &'static Process,
    thread: &'static Thread,
    wanted: Wanted,
    site: u64,
    watches: bool,
) -> (u32, Option<&'static CountedSlot>) {
    let (lock, counted) = search(segment, thread, wanted, site);
    let Some(lock) = lock else { return (0, counted) };
    if wanted.mode != mode::READ && (watches || waiters::is_watched(wanted.lock)) {
        look_who_had_it(segment, thread, lock, wanted, counted, watches);
    }
    (lock.place, counted)
}

/// The lock, if there is room for it, and its sample of holds that are not timed, if there is room for that.
fn search(
    segment: &'static Process,
    thread: &'static Thread,
    wanted: Wanted,
    site: u64,
) -> (Option<Sampled>, Option<&'static CountedSlot>) {
    let changes = rows::changes();
    let lock = locks::find_or_make(segment, wanted.lock, wanted.kind, || site);
    let place = lock.map_or(0, |lock| lock.place);
    if let Some(counted) = release_cache::find(thread, wanted.lock, wanted.mode, site) {
        return (lock, Some(counted));
    }
    let found = samples::untimed(segment, thread, key_of_untimed(wanted, place, site));
    if let (Some(found), Some(_)) = (found, lock) {
        release_cache::learn(thread, found, wanted.lock, place, site, changes);
    }
    (lock, found)
}

fn key_of_untimed(wanted: Wanted, place: u32, site: u64) -> Key {
    let meta = super::meta(happened::UNTIMED, wanted, 0, blocked::UNKNOWN);
    Key { meta, lock: place.into(), site, blocker: 0 }
}

/// The lock was released, if `done`: the hold is counted, when nobody waits for it any more.
#[inline]
pub fn released(releasing: &Releasing, registers: &Registers, done: bool) {
    let site = stacks::address_site(registers);
    match releasing.hold {
        Hold::Ended(ns, place, counted) => count_timed(releasing.wanted, site, ns, place, counted),
        Hold::NotTimed if done => {
            count_untimed(releasing.wanted, site);
            if is_watched(releasing.wanted) {
                tell_who_has_it(releasing.wanted, site);
            }
        }
        Hold::NotTimed | Hold::GoesOn => {}
    }
}

#[inline]
fn count_timed(wanted: Wanted, site: u64, ns: u64, place: u32, counted: Option<&'static CountedSlot>) {
    let meta = super::meta(happened::HOLD, wanted, ns, blocked::UNKNOWN);
    let Some(mine) = thread::mine() else { return count_with_others(meta, place, ns) };
    let thread = mine.thread;
    if let Some(segment) = segment::current() {
        let timed = counted.map_or(0, |counted| counted.timed.load(Relaxed));
        if !samples::count_again(segment, thread, timed, meta, ns) {
            let counted_to = count_at(segment, thread, place, site, meta, ns);
            if let Some(counted) = counted {
                counted.timed.store(counted_to, Relaxed);
            }
        }
    }
    mine.done();
}

/// A timed hold of the lock with this place ended, whose caller's last one was counted to another sample.
#[inline(never)]
pub(super) fn count_timed_elsewhere(
    mine: thread::Mine,
    counted: &'static CountedSlot,
    wanted: Wanted,
    site: u64,
    ns: u64,
) {
    if let Some(segment) = segment::current() {
        let meta = super::meta(happened::HOLD, wanted, ns, blocked::UNKNOWN);
        let place = counted.lock.load(Relaxed) as u32;
        counted.timed.store(count_at(segment, mine.thread, place, site, meta, ns), Relaxed);
    }
    mine.done();
}

/// A lock was released of whose hold this thread, which has a table, times nothing. Entries written in assembly do themselves
/// what is most common: they find the caller's own place, count, and have a hold timed when it is time.
#[inline(never)]
pub fn count_untimed(wanted: Wanted, site: u64) {
    let Some(mine) = thread::mine() else { return count_without_table(wanted) };
    let thread = mine.thread;
    if let Some(counted) = release_cache::find(thread, wanted.lock, wanted.mode, site) {
        // First, so that whoever sees the other change below sees this.
        samples::count_untimed(counted);
    } else if let Some(segment) = segment::current() {
        match search(segment, thread, wanted, site) {
            (_, Some(counted)) => samples::count_untimed(counted),
            (lock, None) => {
                let place = lock.map_or(0, |lock| lock.place);
                samples::count_without_site(segment, thread, key_of_untimed(wanted, place, site));
            }
        }
    }
    timing::untimed(thread, wanted.lock);
    mine.done();
}

/// A lock was released by a thread that has no table to change.
#[cold]
fn count_without_table(wanted: Wanted) {
    if let Some(segment) = segment::current().filter(|_| thread::counts_with_others()) {
        let place = locks::find_or_make(segment, wanted.lock, wanted.kind, || 0).map_or(0, |lock| lock.place);
        count_with_others(super::meta(happened::UNTIMED, wanted, 0, blocked::UNKNOWN), place, 0);
    }
}

/// Counts a hold of the lock with this place, of a thread that has no table to change.
#[cold]
fn count_with_others(meta: Meta, place: u32, ns: u64) {
    if let Some(segment) = segment::current() {
        segment::lose(Lost::Site);
        shared_samples::count(segment, meta, place, ns);
    }
}

/// Whether this release has to say who has the lock. A reader's is not what is watched for.
#[inline(always)]
fn is_watched(wanted: Wanted) -> bool {
    wanted.mode != mode::READ && waiters::is_watched(wanted.lock)
}

/// A lock that is watched was held by this thread, which does not watch it any further.
#[cold]
#[inline(never)]
fn tell_who_has_it(wanted: Wanted, site: u64) {
    let Some(mine) = thread::mine() else { return };
    if let Some(segment) = segment::current()
        && let (Some(lock), counted) = search(segment, mine.thread, wanted, site)
    {
        look_who_had_it(segment, mine.thread, lock, wanted, counted, false);
    }
    mine.done();
}

/// Counts to the lock at this place, and says to which sample (0: one without the site).
fn count_at(segment: &'static Process, thread: &'static Thread, place: u32, site: u64, meta: Meta, ns: u64) -> u16 {
    let key = Key { meta, lock: place.into(), site, blocker: 0 };
    samples::count(segment, thread, key, ns).unwrap_or(0)
}

/// Counts the acquisition of this hold if the hold before was watched, and whether the lock moved; and has this one watched, if
/// `watches`.
#[inline(never)]
fn look_who_had_it(
    segment: &'static Process,
    thread: &'static Thread,
    lock: Sampled,
    wanted: Wanted,
    counted: Option<&'static CountedSlot>,
    watches: bool,
) {
    let me = thread.owner.load(Relaxed);
    let before = lock.watch(if watches { me } else { 0 });
    if before == 0 {
        return;
    }
    if !samples::count_bare_again(thread, counted.map_or(0, |counted| counted.watched.load(Relaxed))) {
        let meta = super::meta(happened::WATCHED, wanted, 0, blocked::UNKNOWN);
        let counted_to = count_at(segment, thread, lock.place, 0, meta, 0);
        if let Some(counted) = counted {
            counted.watched.store(counted_to, Relaxed);
        }
    }
    if before != me {
        let meta = super::meta(happened::MOVED, wanted, 0, blocked::UNKNOWN);
        count_at(segment, thread, lock.place, 0, meta, 0);
    }
}
