//! The table of locks: from an address to its place.
//!
//! Sets of eight ways; the addresses of a set are one cache line. A lock that no sample points to gives way to others. Samples
//! of a lock that is one of many made at its site point to the class.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::creation::Maker;
use super::{Wanted, creation, names, pages, rows, segment, shared_locks, stacks, unwind, waiters};
use crate::layout::{
    CLASSES, Class, ENTRY_INIT, ENTRY_NUMBER_SHIFT, ENTRY_SHARED, ENTRY_STACK, LOCK_PLACES, LOCK_SETS,
    LOCKS_OF_A_CLASS, LockEntry, Lost, Process, TAG_ADDRESS, TAG_CLASS_SHIFT, TAG_USED, Tags, Thread, WAYS,
};

/// A lock that is gone but has samples keeps its way: locks are aligned, so an odd address matches none.
const GONE: u64 = 1;

/// What an entry's flags say of how the lock was made.
const OF_ITS_MAKER: u32 = ((1 << ENTRY_NUMBER_SHIFT) - 1) & !(ENTRY_SHARED | ENTRY_STACK);

/// How far from its own place a class is looked for.
const CLASS_PROBES: usize = 8;

fn set_of(address: usize) -> usize {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - LOCK_SETS.ilog2())
}

/// Where a lock is.
#[derive(Clone, Copy)]
struct Found {
    tag: &'static AtomicU64,
    /// What the tag holds.
    held: u64,
    /// From 1.
    place: u32,
    entry: &'static LockEntry,
}

#[inline]
fn find(segment: &'static Process, address: usize) -> Option<Found> {
    let set = set_of(address);
    let tags: &Tags = pages::entry(&segment.tags, set)?;
    // All eight, without a branch: which way a lock has cannot be foretold.
    let ways = tags.tag.iter().enumerate().fold(0_u32, |ways, (way, tag)| {
        let is_it = (tag.load(Relaxed) ^ address as u64) << (u64::BITS - TAG_CLASS_SHIFT) == 0;
        ways | u32::from(is_it) << way
    });
    if ways == 0 {
        return None;
    }
    let way = ways.trailing_zeros() as usize;
    let (tag, place) = (&tags.tag[way % WAYS], set * WAYS + way);
    let held = tag.load(Acquire);
    // It may have become another lock's meanwhile.
    let entry = pages::entry(&segment.locks, place)?;
    (held & TAG_ADDRESS == address as u64).then_some(Found { tag, held, place: place as u32 + 1, entry })
}

impl Found {
    /// The place (from 1) that samples of this lock point to: its own or that of its class; `None` if none does so far.
    #[inline]
    fn sampled(&self) -> Option<u32> {
        let class = (self.held & !TAG_USED) >> TAG_CLASS_SHIFT;
        match class {
            0 => (self.held & TAG_USED != 0).then_some(self.place),
            _ => Some(LOCK_PLACES as u32 + class as u32),
        }
    }
}

/// A lock that samples point to.
#[derive(Clone, Copy)]
pub(super) struct Sampled {
    found: Found,
    /// Its place or that of its class, from 1.
    pub(super) place: u32,
}

impl Sampled {
    /// Whether the lock has moved since the hold before, if that was watched; from now on the hold of this thread is, if it `watches`.
    /// Called by one that has the lock.
    pub(super) fn watch(&self, thread: &'static Thread, watches: bool) -> Option<bool> {
        let (entry, address) = (self.found.entry, (self.found.held & TAG_ADDRESS) as usize);
        if let Some(shared) = shared_locks::of_entry(entry) {
            if waiters::is_watched(address) {
                // From before its number was known.
                waiters::watch_no_more(address);
            }
            return shared_locks::watch(shared, thread, watches);
        }
        let me = thread.owner.load(Relaxed);
        let after = if watches { me } else { 0 };
        let before = if waiters::is_watched(address) { entry.watched.load(Relaxed) } else { 0 };
        if before != after {
            entry.watched.store(after, Relaxed);
            if after == 0 {
                waiters::watch_no_more(address);
            } else if before == 0 {
                waiters::watch(address);
            }
        }
        (before != 0).then_some(before != me)
    }

    /// What is known of it.
    pub(super) fn entry(&self) -> &'static LockEntry {
        self.found.entry
    }
}

/// What a tag says gives way to another.
fn replace(tag: &AtomicU64, held: u64, after: u64) -> bool {
    tag.compare_exchange(held, after, AcqRel, Relaxed).is_ok()
}

/// A lock that samples may point to from now on, made if there is none. `None` if there is no room.
#[inline]
pub(super) fn find_or_make(
    segment: &'static Process,
    address: usize,
    kind: u8,
    site: impl FnOnce() -> u64,
) -> Option<Sampled> {
    let found = match find(segment, address) {
        Some(found) => found,
        None => make(segment, address, kind, site)?,
    };
    let place = found.sampled().unwrap_or_else(|| {
        found.tag.fetch_or(TAG_USED, Relaxed);
        found.place
    });
    Some(Sampled { found, place })
}

/// The entry of a lock, if it has one.
pub(super) fn entry(segment: &'static Process, address: usize) -> Option<&'static LockEntry> {
    find(segment, address).map(|found| found.entry)
}

/// The lock says that processes may share it: it gets an entry that stays, for the recorder to find, and until then this number.
pub(super) fn note_shared(segment: &'static Process, wanted: Wanted, site: u64, number: impl FnOnce(usize) -> u16) {
    let Some(lock) = find_or_make(segment, wanted.lock, wanted.kind, || site) else { return };
    let flags = &lock.entry().flags;
    if flags.load(Relaxed) & ENTRY_SHARED != 0 {
        return;
    }
    let noted = ENTRY_SHARED | u32::from(number(wanted.lock)) << ENTRY_NUMBER_SHIFT;
    if flags.fetch_or(noted, AcqRel) & ENTRY_SHARED == 0 {
        names::see_module(segment, site as usize);
        segment.shared_locks.fetch_add(1, Release);
        if let Some(session) = pages::session() {
            session.shared_locks.fetch_add(1, Release);
        }
    }
}

/// A lock was initialised here, by this call (0: not kept), where one may have been used before.
#[cold]
#[inline(never)]
pub(super) fn made_again(segment: &'static Process, address: usize, kind: u8, maker: u32) {
    waiters::watch_no_more(address);
    shared_locks::forget(address);
    rows::made_by(address, maker);
    let Some(found) = find(segment, address) else { return };
    let is_same = maker != 0 && found.entry.maker.load(Relaxed) == maker;
    if is_same && found.entry.flags.load(Relaxed) & OF_ITS_MAKER == u32::from(kind) << 8 | ENTRY_INIT {
        return;
    }
    // Another lock, or one that was used before it was initialised.
    let after = if found.held & TAG_USED == 0 { 0 } else { found.held | GONE };
    replace(found.tag, found.held, after);
    if found.sampled().is_some() {
        rows::changed();
    }
}

/// The lock at this place of the table lay in a library that was unloaded.
#[cold]
#[inline(never)]
pub(super) fn unloaded(segment: &'static Process, place: usize) {
    let Some(tags) = pages::entry::<Tags>(&segment.tags, place / WAYS) else { return };
    let tag = &tags.tag[place % WAYS];
    let held = tag.load(Acquire);
    let address = (held & TAG_ADDRESS) as usize;
    waiters::watch_no_more(address);
    rows::gone(address);
    let after = if held & TAG_USED == 0 { 0 } else { held | GONE };
    replace(tag, held, after);
}

/// A lock was destroyed. One that has samples stays until its place in memory becomes another lock.
pub(super) fn destroyed(segment: &'static Process, address: usize) {
    rows::gone(address);
    shared_locks::forget(address);
    if let Some(found) = find(segment, address)
        && found.held & TAG_USED == 0
    {
        replace(found.tag, found.held, 0);
    }
}

/// A lock that was gone, for another was made at its address, and that its maker now makes again: it has the same row.
fn back_again(segment: &'static Process, address: usize, maker: u32, flags: u32) -> Option<Found> {
    if maker == 0 {
        return None;
    }
    let set = set_of(address);
    let tags: &Tags = pages::entry(&segment.tags, set)?;
    (0..WAYS).find_map(|way| {
        let tag = &tags.tag[way];
        let held = tag.load(Acquire);
        if held & TAG_ADDRESS != address as u64 | GONE {
            return None;
        }
        let entry: &'static LockEntry = pages::entry(&segment.locks, set * WAYS + way)?;
        let is_it = entry.maker.load(Relaxed) == maker && entry.flags.load(Relaxed) & OF_ITS_MAKER == flags;
        let after = held & !GONE;
        let is_back = is_it && replace(tag, held, after);
        is_back.then_some(Found { tag, held: after, place: (set * WAYS + way) as u32 + 1, entry })
    })
}

#[cold]
#[inline(never)]
fn make(segment: &'static Process, address: usize, kind: u8, first_used: impl FnOnce() -> u64) -> Option<Found> {
    let set = set_of(address);
    let maker = creation::maker(address);
    let (site, is_made) = match maker {
        Some(maker) => {
            let (frames, depth) = maker.frames();
            (stacks::site_of(segment, &frames[..depth]), ENTRY_INIT)
        }
        None => (first_used(), 0),
    };
    let flags = u32::from(kind) << 8 | is_made;
    if let Some(found) = maker.as_ref().and_then(|maker| back_again(segment, address, maker.number, flags)) {
        creation::used(address);
        return Some(found);
    }
    let Some((tag, way, entry)) = take_slot(segment, set, address as u64) else {
        segment::lose(Lost::Lock);
        return None;
    };
    creation::used(address);
    entry.releaser.store(0, Relaxed);
    entry.released_at.store(0, Relaxed);
    entry.writer.store(0, Relaxed);
    entry.writer_at.store(0, Relaxed);
    entry.watched.store(0, Relaxed);
    entry.maker.store(maker.map_or(0, |maker| maker.number), Relaxed);
    entry.made_at.store(site, Relaxed);
    let lies_on = if unwind::is_on_own_stack(address) { ENTRY_STACK } else { 0 };
    entry.flags.store(flags | lies_on, Relaxed);
    entry.address.store(address as u64, Relaxed);
    names::see_module(segment, address);
    let class = class_of(segment, address, maker, flags, site);
    let class = u64::from(class) << TAG_CLASS_SHIFT;
    let held = tag.fetch_or(class, AcqRel) | class;
    Some(Found { tag, held, place: (set * WAYS + way) as u32 + 1, entry })
}

/// The class of a lock that is used for the first time, from 1; 0 if it is told apart. Locks that lie in a row are noted.
fn class_of(segment: &'static Process, address: usize, maker: Option<Maker>, flags: u32, site: u64) -> u32 {
    let place = |class: u32| if class == 0 { 0 } else { LOCK_PLACES as u32 + class };
    let Some(maker) = maker else {
        let class = match rows::class_of(address) {
            // It was made, or used, before, and gave way to others since.
            Some(place) => place - LOCK_PLACES as u32,
            None => match class(segment, address, flags, site) {
                Some((class, before)) if before >= LOCKS_OF_A_CLASS => class,
                _ => 0,
            },
        };
        rows::used(address, place(class));
        return class;
    };
    rows::made_by(address, maker.number);
    let class = if maker.is_told_apart { None } else { class(segment, address, flags, site) };
    let class = class.map_or(0, |(class, _)| class);
    if let Some(run) = maker.run(address).filter(|_| class != 0) {
        rows::found(place(class), maker.number, run);
    }
    class
}

/// A way of this set, and the entry that belongs to it.
fn take_slot(
    segment: &'static Process,
    set: usize,
    address: u64,
) -> Option<(&'static AtomicU64, usize, &'static LockEntry)> {
    let tags: &Tags = pages::entry_or_take(segment, &segment.tags, set)?;
    // All ways of a set have their entries on one page.
    pages::entry_or_take::<LockEntry>(segment, &segment.locks, set * WAYS)?;
    let way = if address & !TAG_ADDRESS == 0 { take_way(tags, address) } else { None }?;
    Some((&tags.tag[way], way, pages::entry(&segment.locks, set * WAYS + way)?))
}

/// Counts a lock to the class of its site: which that is (from 1), and how many were counted before. `None` if there is no room.
fn class(segment: &'static Process, address: usize, flags: u32, site: u64) -> Option<(u32, u32)> {
    if site == 0 {
        return None;
    }
    let first = (site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
    (0..CLASS_PROBES).find_map(|probe| {
        let place = (first + probe) % CLASSES;
        let class = pages::entry_or_take::<Class>(segment, &segment.classes, place)?;
        let there = class.site.load(Acquire);
        let is_new = there == 0 && class.site.compare_exchange(0, site, AcqRel, Relaxed).is_ok();
        if is_new {
            class.flags.store(flags, Relaxed);
            class.address.store(address as u64, Relaxed);
        }
        (is_new || there == site).then(|| (place as u32 + 1, class.locks.fetch_add(1, Relaxed)))
    })
}

/// A free way, else that of a lock without samples.
fn take_way(tags: &Tags, address: u64) -> Option<usize> {
    let take = |way: usize, from: u64| replace(&tags.tag[way], from, address);
    (0..WAYS).find(|way| tags.tag[*way].load(Relaxed) == 0 && take(*way, 0)).or_else(|| {
        (0..WAYS).find(|way| {
            let held = tags.tag[*way].load(Relaxed);
            held & TAG_USED == 0 && take(*way, held)
        })
    })
}
