//! Level [`HOLD`](super::HOLD): every acquisition is counted; of which the hold is timed, `timing` says.

use core::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use super::locks::Sampled;
use super::samples::Key;
use super::{
    Registers, Wanted, clock, locks, pages, release_cache, rows, samples, segment, shared_locks, shared_samples,
    stacks, stops, thread, ticks, timing, tls, waiters,
};
use crate::layout::{
    CountedSlot, HELD, HELD_ROBUST, HELD_UNTIMED, HeldLock, LockEntry, Lost, Meta, Process, SITE_IS_RELEASE, Thread,
    blocked, happened, mode, pack_held, pack_untimed,
};

/// A lock was acquired, by a call that returns to `site`: the hold begins. If `nests`, a thread may acquire it again while it
/// holds it: all its holds are timed, for only a timed one says which is the last release.
#[inline]
pub fn acquired(wanted: Wanted, nests: bool, site: u64) {
    if !nests && timing::skips(wanted.lock) {
        if let Some(thread) = thread::table() {
            let how = pack_untimed(wanted.kind, wanted.mode, ticks::now());
            push(thread, wanted, how, site);
            tell_sharers(thread, wanted, site);
        }
    } else if !tls::has_no_clock() {
        // Where there is none, the hold is not timed, and counted when it ends.
        let Some(mine) = thread::mine() else { return };
        begin(mine.thread, wanted, nests, site);
        tell_sharers(mine.thread, wanted, site);
        mine.done();
    }
}

/// If processes share the lock, the others are to know who has it.
#[inline(always)]
fn tell_sharers(thread: &'static Thread, wanted: Wanted, site: u64) {
    if shared_locks::any()
        && let Some(segment) = segment::current()
    {
        shared_locks::acquired(segment, thread, wanted, site);
    }
}

/// The hold of a lock that does not nest begins, and is timed unless it need not be.
#[cold]
#[inline(never)]
pub(super) fn begin_timed(lock: usize, kind: u8, mode: u8, site: u64) {
    acquired(Wanted { lock, kind, mode }, false, site);
}

#[inline(always)]
fn begin(thread: &'static Thread, wanted: Wanted, nests: bool, site: u64) {
    timing::timed(thread, wanted.lock);
    if nests || wanted.mode == mode::READ {
        let is_it = |held: &&HeldLock| {
            held.lock.load(Relaxed) == wanted.lock as u64 && held.how.load(Relaxed) & HELD_UNTIMED == 0
        };
        if let Some(again) = thread.held[..held_count(thread)].iter().rev().find(is_it) {
            // It is held from its first acquisition to its last release.
            again.how.store(again.how.load(Relaxed).wrapping_add(1 << 32), Relaxed);
            return;
        }
    }
    let next = push(thread, wanted, pack_held(wanted.kind, wanted.mode, 0), site);
    // Last, so that what we do ourselves is not in the hold.
    next.since.store(clock::ticks(), Relaxed);
}

/// One more lock that the thread holds. Of one that it holds already, and that does not nest, the release was not seen: another thread
/// released it. What is above is what counts.
#[inline]
fn push(thread: &'static Thread, wanted: Wanted, how: u64, site: u64) -> &'static HeldLock {
    let mut held = held_count(thread);
    if held == HELD {
        held = make_room(thread);
    }
    // First, so that a signal handler's holds are above it.
    thread.held_count.store(held as u32 + 1, Relaxed);
    compiler_fence(SeqCst);
    let next = &thread.held[held];
    next.site.store(site, Relaxed);
    next.lock.store(wanted.lock as u64, Relaxed);
    next.how.store(how, Relaxed);
    next
}

/// How many locks the thread holds, as far as is known: what it held before metering was switched may be released since.
#[inline]
fn held_count(thread: &'static Thread) -> usize {
    let switches = segment::header().switches.load(Relaxed);
    if thread.held_switches.load(Relaxed) != switches {
        thread.held_switches.store(switches, Relaxed);
        thread.held_count.store(0, Relaxed);
    }
    (thread.held_count.load(Relaxed) as usize).min(HELD)
}

/// The thread holds as many locks as are followed, or others release what it acquires. What stands below another hold of the same lock
/// is over; if there is none, those held longest are followed no further. Says how many are left.
#[cold]
#[inline(never)]
fn make_room(thread: &'static Thread) -> usize {
    let mut kept = 0;
    for place in 0..HELD {
        let lock = thread.held[place].lock.load(Relaxed);
        if thread.held[place + 1..].iter().all(|above| above.lock.load(Relaxed) != lock) {
            copy(&thread.held[place], &thread.held[kept]);
            kept += 1;
        }
    }
    if kept == HELD {
        kept = HELD / 2;
        for (to, from) in thread.held.iter().zip(&thread.held[kept..]) {
            copy(from, to);
            segment::lose(Lost::Held);
        }
    }
    thread.held_count.store(kept as u32, Relaxed);
    kept
}

fn copy(from: &HeldLock, to: &HeldLock) {
    to.lock.store(from.lock.load(Relaxed), Relaxed);
    to.since.store(from.since.load(Relaxed), Relaxed);
    to.how.store(from.how.load(Relaxed), Relaxed);
    to.site.store(from.site.load(Relaxed), Relaxed);
}

/// A release in progress.
#[expect(missing_debug_implementations, reason = "holds what is shared with the recorder")]
#[must_use]
pub struct Releasing {
    wanted: Wanted,
    /// Where it was acquired; if that was not seen, where it is released.
    site: u64,
    hold: Hold,
}

impl Releasing {
    /// Where the lock was acquired, as the return address of the call; 0: that was not seen.
    const fn acquired(&self) -> u64 {
        if self.site & SITE_IS_RELEASE == 0 { self.site } else { 0 }
    }
}

#[derive(Clone, Copy)]
enum Hold {
    /// It was timed: how long it took, the place of the lock, and where its samples are known to be.
    Timed(u64, u32, Option<&'static CountedSlot>),
    /// A long one that was timed: how long it took.
    TimedLong(u64),
    /// A long one that was not timed: how long it took.
    Long(u64),
    /// A nested release, or nothing can be counted.
    GoesOn,
    /// It was neither timed nor long, or its acquisition was not seen.
    NotTimed,
}

/// A lock is about to be released: at level [`HOLD`](super::HOLD) the hold ends, and if somebody waits it is said who releases it. The
/// level is not [`OFF`](super::OFF), and the mode that of the release where the lock tells; `is_contended` as in
/// [`releasing`](super::releasing).
#[inline]
pub fn begin_release(
    level: u32,
    held: Wanted,
    registers: &Registers,
    is_contended: impl FnOnce() -> bool,
) -> Option<Releasing> {
    // First, for to say who it is takes its time.
    let ended = (level == super::HOLD).then(|| end_hold(held, registers));
    super::releasing(held, ended.as_ref().map_or(0, Releasing::acquired), registers, is_contended);
    if shared_locks::any() && !ended.as_ref().is_some_and(|ended| matches!(ended.hold, Hold::GoesOn)) {
        shared_locks::releases(held);
    }
    ended
}

/// As [`begin_release`], of a lock that the thread has acquired more than once, and keeps.
pub fn begin_inner_release(level: u32, held: Wanted, registers: &Registers) -> Option<Releasing> {
    (level == super::HOLD).then(|| end_hold(held, registers))
}

#[inline]
fn end_hold(wanted: Wanted, registers: &Registers) -> Releasing {
    let site = stacks::address_site(registers) | SITE_IS_RELEASE;
    let mut releasing = Releasing { wanted, site, hold: Hold::NotTimed };
    let Some(thread) = thread::table() else {
        if is_inherited() {
            releasing.hold = Hold::GoesOn;
        } else if !thread::is_without_room() {
            // It has acquired nothing since it has been metered.
            segment::lose(Lost::Unmatched);
            releasing.hold = Hold::GoesOn;
        }
        return releasing;
    };
    let held = held_count(thread);
    // Locks are mostly released in the opposite order.
    let place = thread.held[..held].iter().rposition(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    let Some(place) = place else {
        if is_inherited() {
            releasing.hold = Hold::GoesOn;
        }
        return releasing;
    };
    end_hold_at(thread, place, held, releasing)
}

/// The hold ends that stands at this place of those that count.
#[inline]
fn end_hold_at(thread: &'static Thread, place: usize, held: usize, mut releasing: Releasing) -> Releasing {
    let wanted = releasing.wanted;
    let this = &thread.held[place];
    let (how, since) = (this.how.load(Relaxed), this.since.load(Relaxed));
    releasing.site = this.site.load(Relaxed);
    if how & HELD_UNTIMED != 0 {
        releasing.wanted = Wanted { lock: wanted.lock, kind: how as u8, mode: (how >> 8) as u8 };
        remove(thread, place, held);
        releasing.hold = end_untimed(thread, (how >> 32) as u32);
        return releasing;
    }
    // Only now: it takes longer than the search, which mostly ends at the first.
    let now = clock::ticks();
    let is_nested = how >> 32 > 0;
    let Some(mine) = thread::mine() else {
        if is_nested {
            segment::lose(Lost::Interrupted);
            releasing.hold = Hold::GoesOn;
        }
        return releasing;
    };
    if is_nested {
        this.how.store(how - (1 << 32), Relaxed);
        releasing.hold = Hold::GoesOn;
    } else {
        releasing.wanted = Wanted { lock: wanted.lock, kind: how as u8, mode: (how >> 8) as u8 };
        let held_ns = stops::between_ns_running(since, now);
        remove(thread, place, held);
        if held == 1 {
            thread.clock_read.store(now, Relaxed);
        }
        timing::ended(thread, now);
        let (at, counted) = sign(thread, releasing.wanted, releasing.site);
        releasing.hold =
            if ticks::is_long(since, now) { Hold::TimedLong(held_ns) } else { Hold::Timed(held_ns, at, counted) };
    }
    mine.done();
    releasing
}

/// The thread has the lock now, a robust mutex: others get it if the thread ends.
pub fn ends_with_owner(lock: usize) {
    let Some(thread) = thread::table() else { return };
    let held = thread.held[..held_count(thread)].iter().rev();
    if let Some(this) = held.into_iter().find(|held| held.lock.load(Relaxed) == lock as u64) {
        this.how.store(this.how.load(Relaxed) | HELD_ROBUST, Relaxed);
    }
}

/// The thread ends, and with it its holds of robust mutexes.
pub(super) fn end_with_owner(thread: &'static Thread) {
    for place in (0..held_count(thread)).rev() {
        let this = &thread.held[place];
        let how = this.how.load(Relaxed);
        if how & HELD_ROBUST == 0 {
            continue;
        }
        if how & HELD_UNTIMED == 0 {
            // However often it was acquired.
            this.how.store(how & u64::from(u32::MAX), Relaxed);
        }
        let wanted = Wanted { lock: this.lock.load(Relaxed) as usize, kind: how as u8, mode: (how >> 8) as u8 };
        let releasing = Releasing { wanted, site: this.site.load(Relaxed), hold: Hold::NotTimed };
        released(&end_hold_at(thread, place, held_count(thread), releasing), true);
    }
}

/// To be called before a fork: a child may release what the thread holds now. Its own acquisitions are the parent's to count.
pub(super) fn note_inherited() {
    let held = match thread::table() {
        Some(thread) => {
            let was_switched = thread.held_switches.load(Relaxed) != segment::header().switches.load(Relaxed);
            if was_switched { 0 } else { u64::from(thread.held_count.load(Relaxed)).min(HELD as u64) }
        }
        // A forked child that has acquired nothing itself.
        None => tls::inherited_holds(),
    };
    tls::set_inherited_holds(held);
}

/// After a fork, in the parent: it has acquired itself what it holds.
pub(super) fn forget_inherited() {
    if thread::table().is_some() {
        tls::set_inherited_holds(0);
    }
}

/// Whether what is released, of which the acquisition was not seen, is a lock that was held before the fork.
#[cold]
fn is_inherited() -> bool {
    let holds = tls::inherited_holds();
    tls::set_inherited_holds(holds.saturating_sub(1));
    holds > 0
}

/// One of the locks that the thread holds is held no more.
#[inline]
fn remove(thread: &'static Thread, place: usize, held: usize) {
    for (to, from) in thread.held[place..held].iter().zip(&thread.held[place + 1..held]) {
        copy(from, to);
    }
    thread.held_count.store(held as u32 - 1, Relaxed);
}

/// A hold that began at this tick ends.
#[inline]
fn end_untimed(thread: &'static Thread, tick: u32) -> Hold {
    if !ticks::is_long_since(tick) || tls::has_no_clock() {
        return Hold::NotTimed;
    }
    Hold::Long(stops::between_ns_running(ticks::earliest_begin(thread, tick), clock::ticks()))
}

/// Leaves word that this thread had the lock, and counts if another had it before. While the lock is held, for the next holder
/// is to see it; readers follow each other in no order. Returns the lock's place, and where its samples are known to be.
#[inline]
fn sign(thread: &'static Thread, wanted: Wanted, site: u64) -> (u32, Option<&'static CountedSlot>) {
    let Some(segment) = segment::current() else { return (0, None) };
    let watches = wanted.mode != mode::READ && timing::watches(thread, wanted.lock, thread.until_look.load(Relaxed));
    let shared = shared_locks::of(segment, wanted.lock);
    if let Some(counted) = release_cache::find(thread, wanted.lock, wanted.mode, site) {
        let place = counted.lock.load(Relaxed) as u32;
        let is_done = if watches {
            // The most common case writes to nothing shared.
            counted.addresses() == 1
                && match shared {
                    Some(shared) => shared_locks::is_mine(shared, thread),
                    None => waiters::is_watched(wanted.lock) && is_mine(segment, thread, place),
                }
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
    if watches || is_watched(wanted) {
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
pub fn released(releasing: &Releasing, done: bool) {
    let Releasing { wanted, site, hold } = *releasing;
    match hold {
        Hold::Timed(ns, place, counted) => return count_timed(wanted, site, ns, place, counted),
        Hold::TimedLong(ns) => return count_long(wanted, site, ns),
        Hold::NotTimed if done => count_untimed(wanted, site),
        Hold::Long(ns) if done => count_long(wanted, site, ns),
        _ => return,
    }
    if is_watched(wanted) {
        tell_who_has_it(wanted, site);
    }
}

/// A hold that counts for itself alone: it says nothing of those that were not timed.
#[cold]
#[inline(never)]
fn count_long(wanted: Wanted, site: u64, ns: u64) {
    let meta = super::meta(happened::LONG_HOLD, wanted, ns, blocked::UNKNOWN);
    let Some(segment) = segment::current() else { return };
    let Some(mine) = thread::mine() else {
        let place = locks::find_or_make(segment, wanted.lock, wanted.kind, || site).map_or(0, |lock| lock.place);
        return count_with_others(meta, place, ns);
    };
    let (lock, _) = search(segment, mine.thread, wanted, site);
    count_at(segment, mine.thread, lock.map_or(0, |lock| lock.place), site, meta, ns);
    mine.done();
}

#[inline]
fn count_timed(wanted: Wanted, site: u64, ns: u64, place: u32, counted: Option<&'static CountedSlot>) {
    let Some(mine) = thread::mine() else {
        return count_with_others(super::meta(happened::HOLD, wanted, ns, 0), place, ns);
    };
    let thread = mine.thread;
    let meta = super::meta(happened::HOLD, wanted, ns, timing::drawn_of(thread, wanted.lock));
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
        let meta = super::meta(happened::HOLD, wanted, ns, timing::drawn_of(mine.thread, wanted.lock));
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
        // First, so that the one that sees the other change below sees this.
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
    wanted.mode != mode::READ
        && (waiters::is_watched(wanted.lock) || shared_locks::any() && shared_locks::is_watched(wanted.lock))
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
    let Some(has_moved) = lock.watch(thread, watches) else { return };
    if !samples::count_bare_again(thread, counted.map_or(0, |counted| counted.watched.load(Relaxed))) {
        let meta = super::meta(happened::WATCHED, wanted, 0, blocked::UNKNOWN);
        let counted_to = count_at(segment, thread, lock.place, 0, meta, 0);
        if let Some(counted) = counted {
            counted.watched.store(counted_to, Relaxed);
        }
    }
    if has_moved {
        let meta = super::meta(happened::MOVED, wanted, 0, blocked::UNKNOWN);
        count_at(segment, thread, lock.place, 0, meta, 0);
    }
}
