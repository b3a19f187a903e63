//! A thread's samples: a small hash table that only this thread writes to.

use core::arch::asm;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use super::{bucket, names, pages, segment, shared_samples};
use crate::layout::{
    CountedSlot, FIRST_SLOTS, Lost, Meta, Process, SITE_IS_RELEASE, SITE_IS_STACK, SLOTS, Slot, Thread, blocked,
    happened,
};

/// How far from its own place a sample is looked for on the first page, and then on the others.
const FIRST_PROBES: usize = 8;
const PROBES: usize = 24;
/// Beyond this many, new samples lose their site and blocker, so that totals of locks stay exact.
const SLOTS_WITH_SITE: u32 = (SLOTS - SLOTS / 4) as u32;

/// What tells samples apart.
#[derive(Clone, Copy)]
pub(super) struct Key {
    /// Its thread name is filled in here.
    pub(super) meta: Meta,
    /// Place of the lock, and from bit 32 the releaser's thread name.
    pub(super) lock: u64,
    pub(super) site: u64,
    pub(super) blocker: u64,
}

impl Key {
    #[inline]
    fn hash(&self, meta: u64) -> usize {
        let mix = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        (mix(mix(meta, self.lock), self.site ^ self.blocker.rotate_left(7)) >> 8) as usize
    }

    #[inline]
    fn is_in(&self, slot: &Slot) -> bool {
        slot.site.load(Relaxed) == self.site
            && slot.lock.load(Relaxed) == self.lock
            // Holds that are not timed have something else there.
            && (slot.blocker.load(Relaxed) == self.blocker || self.meta.happened == happened::UNTIMED)
    }
}

/// The places where a sample with this hash may be, the first page of samples first. The very first sample is never used: its number
/// stands for none.
#[inline]
fn slots_of(hash: usize) -> impl Iterator<Item = usize> {
    const OTHERS: usize = SLOTS - FIRST_SLOTS;
    let on_first_page = (0..FIRST_PROBES).map(move |probe| 1 + (hash + probe) % (FIRST_SLOTS - 1));
    let on_others = (0..PROBES).map(move |probe| FIRST_SLOTS + ((hash >> 6) + probe) % OTHERS);
    on_first_page.chain(on_others)
}

#[inline(always)]
fn slot(thread: &'static Thread, place: usize) -> Option<&'static Slot> {
    pages::entry(&thread.slots, place)
}

/// Counts one event of this duration, and says to which sample if that has all of the key.
#[inline]
pub(super) fn count(segment: &'static Process, thread: &'static Thread, key: Key, ns: u64) -> Option<u16> {
    let meta = Meta { comm: thread.comm.load(Relaxed), ..key.meta }.pack();
    let found = find(thread, &key, meta).or_else(|| take(segment, thread, key));
    if let Some((place, slot)) = found {
        add(segment, thread, slot, ns);
        return Some(place as u16);
    }
    match folded(segment, thread, key) {
        Some(slot) => add(segment, thread, slot, ns),
        None => shared_samples::count(segment, key.meta, key.lock as u32, ns),
    }
    None
}

/// Counts a part of an event that is counted itself.
pub(super) fn count_part(segment: &'static Process, thread: &'static Thread, key: Key, ns: u64) {
    let meta = Meta { comm: thread.comm.load(Relaxed), ..key.meta }.pack();
    // Without room for it, the part is nobody's.
    if let Some((_, slot)) = find(thread, &key, meta).or_else(|| take(segment, thread, key)) {
        add(segment, thread, slot, ns);
    }
}

/// As [`count`], if the sample that was counted to before (0: none, and the first sample is never one) is the one: it is known
/// to be of the same lock and site.
#[inline(always)]
pub(super) fn count_again(header: &Process, thread: &'static Thread, place: u16, meta: Meta, ns: u64) -> bool {
    let Some(slot) = slot(thread, place.into()) else { return false };
    let meta = Meta { comm: thread.comm.load(Relaxed), ..meta }.pack();
    let is_it = slot.meta.load(Relaxed) == meta;
    if is_it {
        add(header, thread, slot, ns);
    }
    is_it
}

/// Counts a timed hold to the sample that the last one of the same lock and caller was counted to, if that is of such a duration;
/// `counted` is that of their holds that are not timed, in which all else is the same.
#[inline(always)]
pub(super) fn count_timed_beside(
    header: &Process,
    thread: &'static Thread,
    counted: &CountedSlot,
    drawn_of: u8,
    ns: u64,
) -> bool {
    const OTHER: u64 = Meta::of(happened::UNTIMED).pack() ^ Meta::of(happened::HOLD).pack();
    let meta =
        (counted.meta.load(Relaxed) ^ OTHER) | Meta { bucket: bucket(ns), blocked: drawn_of, ..Meta::of(0) }.pack();
    let Some(slot) = slot(thread, counted.timed.load(Relaxed).into()) else { return false };
    let is_it = slot.meta.load(Relaxed) == meta;
    if is_it {
        add(header, thread, slot, ns);
    }
    is_it
}

/// Counts one more of what has no duration; `false` if there is no such sample.
#[inline(always)]
pub(super) fn count_bare_again(thread: &'static Thread, place: u16) -> bool {
    let slot = match place {
        0 => None,
        place => slot(thread, place.into()),
    };
    let Some(slot) = slot else { return false };
    slot.count.store(slot.count.load(Relaxed).wrapping_add(1), Release);
    thread.changes.store(thread.changes.load(Relaxed).wrapping_add(1), Release);
    true
}

/// Counts a hold that was not timed. One instruction, so that signal handlers may count to the same sample in between.
#[inline(always)]
pub(super) fn count_untimed(counted: &CountedSlot) {
    let count: *mut u64 = AtomicU64::as_ptr(&counted.count);
    // SAFETY: the counter is this thread's to write, and lives as long as the segment.
    unsafe { asm!("add qword ptr [{0}], 1", in(reg) count, options(nostack)) };
}

/// The sample of the holds that are not timed of a lock or class at this place. `None` if the thread has no room for another.
pub(super) fn untimed(segment: &'static Process, thread: &'static Thread, key: Key) -> Option<&'static CountedSlot> {
    let meta = Meta { comm: thread.comm.load(Relaxed), ..key.meta }.pack();
    let (_, slot) = find(thread, &key, meta).or_else(|| take(segment, thread, key))?;
    Some(slot.counted())
}

/// Counts a hold that was not timed, when there is no room for a sample of its site.
#[cold]
pub(super) fn count_without_site(segment: &'static Process, thread: &'static Thread, key: Key) {
    match folded(segment, thread, key) {
        Some(slot) => count_untimed(slot.counted()),
        None => shared_samples::count(segment, key.meta, key.lock as u32, 0),
    }
}

/// The sample without site and blocker that this key counts to, when there is no room for its own. Counts what is lost.
fn folded(segment: &'static Process, thread: &'static Thread, key: Key) -> Option<&'static Slot> {
    segment::lose(Lost::Site);
    let folded = Key {
        site: 0,
        blocker: 0,
        lock: key.lock & 0xffff_ffff,
        meta: Meta { comm: thread.comm.load(Relaxed), blocked: blocked::UNKNOWN, ..key.meta },
    };
    find_or_take(segment, thread, &folded).map(|(_, slot)| slot)
}

/// A new sample, if there is room.
#[cold]
#[inline(never)]
fn take(segment: &'static Process, thread: &'static Thread, key: Key) -> Option<(usize, &'static Slot)> {
    let key = Key { meta: Meta { comm: thread.comm.load(Relaxed), ..key.meta }, ..key };
    for site in [key.site, key.blocker] {
        if site != 0 && site & SITE_IS_STACK == 0 {
            names::see_module(segment, (site & !SITE_IS_RELEASE) as usize);
        }
    }
    let has_room = u32::from(thread.used.load(Relaxed)) < SLOTS_WITH_SITE;
    if has_room { find_or_take(segment, thread, &key) } else { None }
}

#[inline]
fn find(thread: &'static Thread, key: &Key, meta: u64) -> Option<(usize, &'static Slot)> {
    // Nothing is ever taken out, so a free sample, or a page that was not needed so far, ends the search.
    slots_of(key.hash(meta))
        .map_while(|place| Some((place, slot(thread, place).filter(|slot| slot.meta.load(Relaxed) != 0)?)))
        .find(|(_, slot)| slot.meta.load(Relaxed) == meta && key.is_in(slot))
}

fn find_or_take(segment: &'static Process, thread: &'static Thread, key: &Key) -> Option<(usize, &'static Slot)> {
    let meta = key.meta.pack();
    if let Some(found) = find(thread, key, meta) {
        return Some(found);
    }
    let (place, slot) = slots_of(key.hash(meta)).find_map(|place| {
        let slot: &Slot = pages::entry_or_take(segment, &thread.slots, place)?;
        (slot.meta.load(Relaxed) == 0).then_some((place, slot))
    })?;
    slot.site.store(key.site, Relaxed);
    slot.lock.store(key.lock, Relaxed);
    slot.blocker.store(key.blocker, Relaxed);
    slot.meta.store(meta, Release);
    thread.used.store(thread.used.load(Relaxed) + 1, Relaxed);
    Some((place, slot))
}

/// Of what is no hold that is not timed.
#[inline(always)]
fn add(header: &Process, thread: &'static Thread, slot: &'static Slot, ns: u64) {
    let epoch = u64::from(header.epoch.load(Relaxed));
    if slot.epoch.load(Relaxed) != epoch {
        slot.max_ns.store(0, Relaxed);
        slot.epoch.store(epoch, Relaxed);
    }
    if slot.max_ns.load(Relaxed) < ns {
        slot.max_ns.store(ns, Relaxed);
    }
    slot.total_ns.store(slot.total_ns.load(Relaxed).wrapping_add(ns), Relaxed);
    slot.count.store(slot.count.load(Relaxed).wrapping_add(1), Release);
    thread.changes.store(thread.changes.load(Relaxed).wrapping_add(1), Release);
}
