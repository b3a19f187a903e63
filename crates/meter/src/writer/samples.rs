//! A thread's samples: a small hash table that only this thread writes to.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::{names, recent, segment};
use crate::layout::{Lost, Meta, SITE_IS_STACK, SLOTS, Segment, Slot, Thread};

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
        (hash >> 8) as usize % SLOTS
    }

    #[inline]
    fn is_in(&self, slot: &Slot) -> bool {
        slot.site.load(Relaxed) == self.site
            && slot.lock.load(Relaxed) == self.lock
            && slot.blocker.load(Relaxed) == self.blocker
    }
}

/// Counts one event of this duration, and says to which sample if that has all of the key.
#[inline]
pub(super) fn count(segment: &'static Segment, thread: &'static Thread, key: Key, ns: u64) -> Option<u16> {
    let meta = Meta { comm: thread.comm.load(Relaxed) as u16, ..key.meta }.pack();
    let place = key.place(meta);
    let first = &thread.slots[place];
    if first.meta.load(Relaxed) == meta && key.is_in(first) {
        add(segment, thread, first, ns);
        Some(place as u16)
    } else {
        count_elsewhere(segment, thread, key, meta, ns)
    }
}

/// As [`count`], if the sample that was counted to before (`SLOTS`: none) is the one: it is known to be of the same lock and
/// site.
#[inline]
pub(super) fn count_again(segment: &'static Segment, thread: &'static Thread, slot: u16, meta: Meta, ns: u64) -> bool {
    let Some(slot) = thread.slots.get(usize::from(slot)) else { return false };
    let meta = Meta { comm: thread.comm.load(Relaxed) as u16, ..meta }.pack();
    let is_it = slot.meta.load(Relaxed) == meta;
    if is_it {
        add(segment, thread, slot, ns);
    }
    is_it
}

/// Counts one more of what has no duration; `false` if there is no such sample.
#[inline]
pub(super) fn count_bare_again(thread: &'static Thread, slot: u16) -> bool {
    let Some(slot) = thread.slots.get(usize::from(slot)) else { return false };
    slot.count.store(slot.count.load(Relaxed).wrapping_add(1), Release);
    thread.changes.store(thread.changes.load(Relaxed).wrapping_add(1), Release);
    true
}

#[inline(never)]
fn count_elsewhere(segment: &'static Segment, thread: &'static Thread, key: Key, meta: u64, ns: u64) -> Option<u16> {
    if let Some((place, slot)) = find(thread, &key, meta) {
        add(segment, thread, slot, ns);
        return Some(place as u16);
    }
    if thread.used.load(Relaxed) < SLOTS_WITH_SITE {
        // A new sample is rare: time to look whether the thread got another name.
        let comm = names::comm(segment);
        if thread.comm.swap(comm, Relaxed) != comm {
            recent::forget(thread);
        }
    }
    let key = Key { meta: Meta { comm: thread.comm.load(Relaxed) as u16, ..key.meta }, ..key };
    for site in [key.site, key.blocker] {
        if site != 0 && site & SITE_IS_STACK == 0 {
            names::see_module(segment, site as usize);
        }
    }
    if thread.used.load(Relaxed) < SLOTS_WITH_SITE
        && let Some((place, slot)) = find_or_take(thread, &key)
    {
        add(segment, thread, slot, ns);
        return Some(place as u16);
    }
    let folded = Key {
        site: 0,
        blocker: 0,
        lock: key.lock & 0xffff_ffff,
        meta: Meta { blocked: crate::layout::blocked::UNKNOWN, ..key.meta },
    };
    match find_or_take(thread, &folded) {
        Some((_, slot)) => {
            segment::lose(Lost::Site);
            add(segment, thread, slot, ns);
        }
        None => segment::lose(Lost::Sample),
    }
    None
}

fn probes(thread: &'static Thread, key: &Key, meta: u64) -> impl Iterator<Item = (usize, &'static Slot)> {
    let first = key.place(meta);
    (0..PROBES).map(move |probe| (first + probe) % SLOTS).map(|place| (place, &thread.slots[place]))
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

#[inline]
fn add(segment: &'static Segment, thread: &'static Thread, slot: &'static Slot, ns: u64) {
    let epoch = u64::from(segment.header.epoch.load(Relaxed));
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
