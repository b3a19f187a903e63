//! A thread's samples: a small hash table that only this thread writes to.

use core::arch::asm;
use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, Release},
};

use super::{bucket, names, near, segment};
use crate::layout::{CountedSlot, Header, Lost, Meta, SITE_IS_STACK, SLOTS, Segment, Slot, Thread, blocked, happened};

/// How far from its own place a sample is looked for.
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
    fn place(&self, meta: u64) -> usize {
        let mix = |hash: u64, part: u64| (hash ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31);
        let hash = mix(mix(meta, self.lock), self.site ^ self.blocker.rotate_left(7));
        from_second((hash >> 8) as usize)
    }

    #[inline]
    fn is_in(&self, slot: &Slot) -> bool {
        slot.site.load(Relaxed) == self.site
            && slot.lock.load(Relaxed) == self.lock
            // Holds that are not timed have something else there.
            && (slot.blocker.load(Relaxed) == self.blocker || self.meta.happened == happened::UNTIMED)
    }
}

/// The first sample is never used: its number stands for none.
const fn from_second(number: usize) -> usize {
    1 + number % (SLOTS - 1)
}

/// Counts one event of this duration, and says to which sample if that has all of the key.
#[inline]
pub(super) fn count(segment: &'static Segment, thread: &'static Thread, key: Key, ns: u64) -> Option<u16> {
    let meta = Meta { comm: thread.comm.load(Relaxed) as u16, ..key.meta }.pack();
    let place = key.place(meta);
    let first = &thread.slots[place];
    if first.meta.load(Relaxed) == meta && key.is_in(first) {
        add(&segment.header, thread, first, ns);
        Some(place as u16)
    } else {
        count_elsewhere(segment, thread, key, meta, ns)
    }
}

/// As [`count`], if the sample that was counted to before (0: none, and the first sample is never one) is the one: it is known
/// to be of the same lock and site.
#[inline(always)]
pub(super) fn count_again(header: &Header, thread: &'static Thread, slot: u16, meta: Meta, ns: u64) -> bool {
    let Some(slot) = thread.slots.get(usize::from(slot)) else { return false };
    let meta = Meta { comm: thread.comm.load(Relaxed) as u16, ..meta }.pack();
    let is_it = slot.meta.load(Relaxed) == meta;
    if is_it {
        add(header, thread, slot, ns);
    }
    is_it
}

/// Counts a timed hold to the sample that the last one of the same lock and caller was counted to, if that is of such a duration;
/// `near` is that of their holds that are not timed, in which all else is the same.
#[inline(always)]
pub(super) fn count_timed_beside(header: &Header, thread: &'static Thread, near: &CountedSlot, ns: u64) -> bool {
    const OTHER: u64 = Meta::of(happened::UNTIMED).pack() ^ Meta::of(happened::HOLD).pack();
    let meta = (near.meta.load(Relaxed) ^ OTHER) | Meta { bucket: bucket(ns), ..Meta::of(0) }.pack();
    let slot = &thread.slots[usize::from(near.timed.load(Relaxed)) % SLOTS];
    let is_it = slot.meta.load(Relaxed) == meta;
    if is_it {
        add(header, thread, slot, ns);
    }
    is_it
}

/// Counts one more of what has no duration; `false` if there is no such sample.
#[inline(always)]
pub(super) fn count_bare_again(thread: &'static Thread, slot: u16) -> bool {
    let slot = match slot {
        0 => None,
        slot => thread.slots.get(usize::from(slot)),
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

/// The sample of the holds that are not timed of a lock or class at this place, and its number. `None` if the thread has no
/// room for another.
pub(super) fn untimed(
    segment: &'static Segment,
    thread: &'static Thread,
    key: Key,
) -> Option<(u16, &'static CountedSlot)> {
    let meta = Meta { comm: thread.comm.load(Relaxed) as u16, ..key.meta }.pack();
    let (place, slot) = find(thread, &key, meta).or_else(|| take(segment, thread, key).1)?;
    Some((place as u16, slot.counted()))
}

#[inline(never)]
fn count_elsewhere(segment: &'static Segment, thread: &'static Thread, key: Key, meta: u64, ns: u64) -> Option<u16> {
    if let Some((place, slot)) = find(thread, &key, meta) {
        add(&segment.header, thread, slot, ns);
        return Some(place as u16);
    }
    let (key, taken) = take(segment, thread, key);
    if let Some((place, slot)) = taken {
        add(&segment.header, thread, slot, ns);
        return Some(place as u16);
    }
    if let Some(slot) = folded(thread, key) {
        add(&segment.header, thread, slot, ns);
    }
    None
}

/// Counts a hold that was not timed, when there is no room for a sample of its site.
#[cold]
pub(super) fn count_without_site(thread: &'static Thread, key: Key) {
    if let Some(slot) = folded(thread, key) {
        count_untimed(slot.counted());
    }
}

/// The sample without site and blocker that this key counts to, when there is no room for its own. Says what is lost.
fn folded(thread: &'static Thread, key: Key) -> Option<&'static Slot> {
    let folded = Key {
        site: 0,
        blocker: 0,
        lock: key.lock & 0xffff_ffff,
        meta: Meta { comm: thread.comm.load(Relaxed) as u16, blocked: blocked::UNKNOWN, ..key.meta },
    };
    let found = find_or_take(thread, &folded);
    segment::lose(if found.is_some() { Lost::Site } else { Lost::Sample });
    found.map(|(_, slot)| slot)
}

/// A new sample, if there is room; the key comes back with the thread's present name.
fn take(segment: &'static Segment, thread: &'static Thread, key: Key) -> (Key, Option<(usize, &'static Slot)>) {
    let has_room = thread.used.load(Relaxed) < SLOTS_WITH_SITE;
    if has_room {
        // A new sample is rare: time to look whether the thread got another name.
        let comm = names::comm(segment);
        if thread.comm.swap(comm, Relaxed) != comm {
            near::forget(thread);
        }
    }
    let key = Key { meta: Meta { comm: thread.comm.load(Relaxed) as u16, ..key.meta }, ..key };
    for site in [key.site, key.blocker] {
        if site != 0 && site & SITE_IS_STACK == 0 {
            names::see_module(segment, site as usize);
        }
    }
    (key, if has_room { find_or_take(thread, &key) } else { None })
}

fn probes(thread: &'static Thread, key: &Key, meta: u64) -> impl Iterator<Item = (usize, &'static Slot)> {
    let first = key.place(meta);
    (0..PROBES).map(move |probe| from_second(first - 1 + probe)).map(|place| (place, &thread.slots[place]))
}

fn find(thread: &'static Thread, key: &Key, meta: u64) -> Option<(usize, &'static Slot)> {
    // Nothing is ever taken out, so a free slot ends the search.
    probes(thread, key, meta)
        .take_while(|(_, slot)| slot.meta.load(Relaxed) != 0)
        .find(|(_, slot)| slot.meta.load(Relaxed) == meta && key.is_in(slot))
}

fn find_or_take(thread: &'static Thread, key: &Key) -> Option<(usize, &'static Slot)> {
    let meta = key.meta.pack();
    if let Some(found) = find(thread, key, meta) {
        return Some(found);
    }
    let (place, slot) = probes(thread, key, meta).find(|(_, slot)| slot.meta.load(Relaxed) == 0)?;
    slot.site.store(key.site, Relaxed);
    slot.lock.store(key.lock, Relaxed);
    slot.blocker.store(key.blocker, Relaxed);
    slot.meta.store(meta, Release);
    thread.used.store(thread.used.load(Relaxed) + 1, Relaxed);
    Some((place, slot))
}

/// Of what is no hold that is not timed.
#[inline(always)]
fn add(header: &Header, thread: &'static Thread, slot: &'static Slot, ns: u64) {
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
