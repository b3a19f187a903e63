//! What runs inside the metered program.
//!
//! Nothing here allocates, takes a lock, panics by design, or calls a function of libc that could come back to an interposed
//! one. Everything may run in a signal handler, on a small stack, before and after `main`.
//!
//! No value here has a destructor: a thread that is cancelled in its wait unwinds through the callers.

mod clock;
mod locks;
mod names;
mod samples;
mod segment;
mod stacks;
mod syscalls;
mod thread;
mod unwind;
mod waiters;

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{FRAMES, HeldLock, Lost, Meta, Segment, Thread, blocked, happened, pack_held};
pub use crate::layout::{HOLD, OFF, WAIT, kind, mode};
use samples::Key;
pub use segment::HEADER;
pub use unwind::Registers;
use waiters::Waiters;
pub use waiters::{WAITERS, WAITERS_MASK};

/// Frames of a lock's maker: enough to get out of the functions that wrap an initialisation.
const MAKER_FRAMES: usize = 6;

/// Begins metering, as the session in this directory says. Called once, when the library is loaded; before, everything is
/// off.
pub fn start(directory: &[u8]) {
    names::prepare();
    unwind::prepare();
    thread::watch_ends();
    segment::start(directory);
}

/// To be called in a forked child, before anything else runs there.
pub fn after_fork_in_child() {
    segment::after_fork_in_child();
}

/// To be called when a library was unloaded.
pub fn library_unloaded() {
    unwind::forget();
}

/// What is metered now: [`OFF`], [`WAIT`] or [`HOLD`].
#[inline]
pub fn level() -> u32 {
    segment::header().level.load(Relaxed)
}

/// This thread's id.
pub fn thread_id() -> u32 {
    syscalls::thread_id()
}

/// A lock, and how it is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// Its address.
    pub lock: usize,
    /// One of [`kind`].
    pub kind: u8,
    /// One of [`mode`].
    pub mode: u8,
}

/// A wait that has begun.
#[derive(Debug)]
#[must_use]
pub struct Waiting {
    wanted: Wanted,
    begun: u64,
    site: u64,
    /// Not counted, but the counter of waiters was raised, if false.
    counted: bool,
}

/// A lock could not be had at once: the wait begins.
#[cold]
#[inline(never)]
pub fn begin_wait(wanted: Wanted, registers: &Registers) -> Waiting {
    let begun = clock::ticks();
    waiters::came(wanted.lock);
    let mut waiting = Waiting { wanted, begun, site: 0, counted: false };
    let Some(mine) = thread::mine() else { return waiting };
    if let Some(segment) = segment::current() {
        // The stack is taken while there is nothing to do but wait.
        waiting.site = stacks::stack_site(segment, registers, FRAMES);
        waiting.counted = true;
    }
    mine.thread.waiting[1].store(begun, Relaxed);
    mine.thread.waiting[0].store(wanted.lock as u64, Relaxed);
    mine.done();
    waiting
}

/// The wait is over; `acquired` says whether with the lock.
#[cold]
#[inline(never)]
pub fn end_wait(waiting: Waiting, acquired: bool) {
    let ended = clock::ticks();
    waiters::gone(waiting.wanted.lock);
    record_wait(&waiting, ended, acquired);
}

fn record_wait(waiting: &Waiting, ended: u64, acquired: bool) {
    if !waiting.counted {
        return;
    }
    let Some(mine) = thread::mine() else { return };
    mine.thread.waiting[0].store(0, Relaxed);
    if acquired && let Some(segment) = segment::current() {
        count_wait(segment, mine.thread, waiting, clock::between_ns(waiting.begun, ended));
    }
    mine.done();
}

fn count_wait(segment: &'static Segment, thread: &'static Thread, waiting: &Waiting, ns: u64) {
    let Wanted { lock, kind, mode } = waiting.wanted;
    let (mut place, mut blocker, mut known, mut comm) = (0, 0, blocked::UNKNOWN, 0);
    if let Some((found, entry)) = locks::find_or_make(segment, lock, kind, || waiting.site) {
        place = u64::from(found);
        let (at, by, shift) = match mode {
            mode::READ => (&entry.writer_at, &entry.writer, 16),
            _ => (&entry.released_at, &entry.releaser, 0),
        };
        if at.load(Acquire) >= waiting.begun {
            (blocker, known) = (by.load(Relaxed), blocked::RELEASER);
            comm = u64::from(entry.releaser_comm.load(Relaxed) >> shift & 0xffff);
        }
    }
    let happened = match kind {
        kind::CONDVAR | kind::BARRIER => happened::IDLE,
        _ => happened::WAIT,
    };
    let meta = meta(happened, waiting.wanted, ns, known);
    samples::count(segment, thread, Key { meta, lock: place | comm << 32, site: waiting.site, blocker }, ns);
}

fn meta(happened: u8, wanted: Wanted, ns: u64, blocked: u8) -> Meta {
    let bucket = if ns == 0 { 0 } else { ns.ilog2() as u8 };
    Meta { happened, kind: wanted.kind, mode: wanted.mode, bucket, blocked, comm: 0 }
}

/// A lock was acquired (level [`HOLD`]): the hold begins.
#[inline]
pub fn acquired(wanted: Wanted) {
    let Some(mine) = thread::mine() else { return };
    let thread = mine.thread;
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    if held == 0 {
        begin_hold(thread, &thread.held[0], wanted, 0);
        return mine.done();
    }
    let again = thread.held[..held].iter().rev().find(|held| held.lock.load(Relaxed) == wanted.lock as u64);
    if let Some(again) = again {
        // A recursive lock is held from its first acquisition to its last release.
        again.how.store(again.how.load(Relaxed).wrapping_add(1 << 32), Relaxed);
    } else if let Some(next) = thread.held.get(held) {
        begin_hold(thread, next, wanted, held);
    } else {
        segment::lose(Lost::Held);
    }
    mine.done();
}

#[inline]
fn begin_hold(thread: &'static Thread, next: &'static HeldLock, wanted: Wanted, held: usize) {
    next.lock.store(wanted.lock as u64, Relaxed);
    next.how.store(pack_held(wanted.kind, wanted.mode, 0), Relaxed);
    thread.held_count.store(held as u32 + 1, Relaxed);
    // Last, so that what we do ourselves is not in the hold.
    next.since.store(clock::ticks(), Relaxed);
}

/// A release in progress.
#[derive(Debug)]
#[must_use]
pub struct Releasing {
    held_ns: Option<u64>,
    wanted: Wanted,
    timed: bool,
}

/// A lock is about to be released: says who does it if somebody waits. `is_contended` tells whether a lock that a thread in
/// a condition wait may want back has a waiter.
#[inline]
pub fn releasing(held: Wanted, registers: &Registers, is_contended: impl FnOnce() -> bool) {
    let somebody = match waiters::waiters(held.lock) {
        Waiters::Nobody => false,
        Waiters::InCondition => is_contended(),
        Waiters::Somebody => true,
    };
    if somebody {
        note_releaser(held, registers);
    }
}

/// The hold ends (level [`HOLD`]); to be called after [`releasing`] and before the release.
#[inline]
pub fn end_hold(lock: usize) -> Releasing {
    let now = clock::ticks();
    let mut releasing =
        Releasing { held_ns: None, wanted: Wanted { lock, kind: 0, mode: mode::EXCLUSIVE }, timed: false };
    let Some(mine) = thread::mine() else { return releasing };
    let thread = mine.thread;
    let held = (thread.held_count.load(Relaxed) as usize).min(thread.held.len());
    if let Some(last) = held.checked_sub(1)
        && let Some(this) = thread.held.get(last)
        && this.lock.load(Relaxed) == lock as u64
        && this.how.load(Relaxed) >> 32 == 0
    {
        // Locks are mostly released in the opposite order.
        let how = this.how.load(Relaxed);
        releasing.timed = true;
        releasing.wanted = Wanted { lock, kind: how as u8, mode: (how >> 8) as u8 };
        releasing.held_ns = Some(clock::between_ns(this.since.load(Relaxed), now));
        thread.held_count.store(last as u32, Relaxed);
        mine.done();
        return releasing;
    }
    let place = thread.held[..held].iter().rposition(|held| held.lock.load(Relaxed) == lock as u64);
    if let Some(place) = place {
        let this = &thread.held[place];
        let how = this.how.load(Relaxed);
        releasing.timed = true;
        if how >> 32 > 0 {
            this.how.store(how - (1 << 32), Relaxed);
        } else {
            releasing.wanted = Wanted { lock, kind: how as u8, mode: (how >> 8) as u8 };
            releasing.held_ns = Some(clock::between_ns(this.since.load(Relaxed), now));
            for (to, from) in thread.held[place..held].iter().zip(&thread.held[place + 1..held]) {
                to.lock.store(from.lock.load(Relaxed), Relaxed);
                to.since.store(from.since.load(Relaxed), Relaxed);
                to.how.store(from.how.load(Relaxed), Relaxed);
            }
            thread.held_count.store(held as u32 - 1, Relaxed);
        }
    }
    mine.done();
    releasing
}

/// The lock was released, if `done`: the hold is counted, when nobody waits for it any more.
#[inline]
pub fn released(releasing: &Releasing, registers: &Registers, done: bool) {
    let Some(ns) = releasing.held_ns else {
        if done && !releasing.timed {
            segment::lose(Lost::Unmatched);
        }
        return;
    };
    let Some(mine) = thread::mine() else { return };
    if let Some(segment) = segment::current() {
        let site = stacks::address_site(registers);
        let Wanted { lock, kind, .. } = releasing.wanted;
        let found = locks::find_or_make(segment, lock, kind, || site);
        let place = found.map_or(0, |(place, _)| place);
        let meta = meta(happened::HOLD, releasing.wanted, ns, blocked::UNKNOWN);
        samples::count(segment, mine.thread, Key { meta, lock: place.into(), site, blocker: 0 }, ns);
    }
    mine.done();
}

/// Leaves word of who releases a lock that somebody waits for.
#[cold]
#[inline(never)]
fn note_releaser(held: Wanted, registers: &Registers) {
    let Some(mine) = thread::mine() else { return };
    if let Some(segment) = segment::current() {
        let site = stacks::stack_site(segment, registers, FRAMES);
        if let Some((_, entry)) = locks::find_or_make(segment, held.lock, held.kind, || site) {
            let comm = mine.thread.comm.load(Relaxed) & 0xffff;
            let writer_comm = entry.releaser_comm.load(Relaxed) & !0xffff;
            let now = clock::ticks();
            entry.releaser.store(site, Relaxed);
            if held.mode == mode::WRITE {
                entry.writer.store(site, Relaxed);
                entry.releaser_comm.store(comm << 16 | comm, Relaxed);
                entry.writer_at.store(now, Release);
            } else {
                entry.releaser_comm.store(writer_comm | comm, Relaxed);
            }
            entry.released_at.store(now, Release);
        }
    }
    mine.done();
}

/// A condition wait that has begun.
#[derive(Debug)]
#[must_use]
pub struct InCondition {
    waiting: Waiting,
    mutex: usize,
}

/// A thread is about to wait for a condition, which gives its mutex back meanwhile.
#[inline(never)]
pub fn begin_condition(condition: usize, mutex: usize, registers: &Registers) -> InCondition {
    let wanted = Wanted { lock: condition, kind: kind::CONDVAR, mode: mode::EXCLUSIVE };
    waiters::condition_came(mutex);
    InCondition { waiting: begin_wait(wanted, registers), mutex }
}

/// It has its mutex again. What passed until the signal was a wait for the condition; if the mutex was contended after that,
/// the rest was a wait for the mutex.
#[inline(never)]
pub fn end_condition(condition: InCondition) {
    let ended = clock::ticks();
    let InCondition { waiting, mutex } = condition;
    waiters::condition_gone(mutex);
    waiters::gone(waiting.wanted.lock);
    let Some(segment) = segment::current() else { return };
    let released_at = |lock| locks::entry(segment, lock).map_or(0, |entry| entry.released_at.load(Acquire));
    let signalled = released_at(waiting.wanted.lock);
    let woken = if (waiting.begun..=ended).contains(&signalled) { signalled } else { ended };
    let given_back = released_at(mutex);
    let again =
        Waiting { wanted: Wanted { lock: mutex, kind: kind::MUTEX, mode: mode::EXCLUSIVE }, begun: woken, ..waiting };
    record_wait(&waiting, woken, true);
    if given_back > woken && woken < ended {
        record_wait(&again, ended, true);
    }
}

/// A lock was initialised.
#[cold]
pub fn lock_created(lock: usize, kind: u8, registers: &Registers) {
    // A lock made while nothing can be recorded yet is named by its first site.
    let Some(mine) = segment::current().and_then(|_| thread::mine()) else { return };
    if let Some(segment) = segment::current() {
        let site = stacks::stack_site(segment, registers, MAKER_FRAMES);
        locks::created(segment, lock, kind, site);
    }
    mine.done();
}

/// A lock was destroyed.
#[cold]
pub fn lock_destroyed(lock: usize) {
    if let Some(segment) = segment::current() {
        locks::destroyed(segment, lock);
    }
}
