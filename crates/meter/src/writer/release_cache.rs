//! Which sample the releases at one place in the program count to: found by the caller, and valid for the one lock or the row
//! of locks that it stands for. Saves the search by address through a table that all threads share.

use core::sync::atomic::Ordering::{Relaxed, Release};

use super::hash::CELL_MULTIPLIER;
use super::rows::{self, Span};
use crate::layout::{CountedSlot, LOCK_PLACES, Meta, RELEASE_CACHE, ROW_COUNT_SHIFT, Thread, kind, mode};

/// As the ABI aligns mutexes.
const MUTEX_ALIGNMENT: usize = 8;
/// As it aligns any lock.
const LEAST_ALIGNMENT: usize = 4;

/// The product of a return address and [`CELL_MULTIPLIER`], shifted by this, is its place.
pub const RELEASE_CACHE_SHIFT: u32 = u32::BITS - RELEASE_CACHE.ilog2();

/// Entries written in assembly do the same.
#[inline(always)]
fn home(mixed: u64) -> usize {
    ((mixed as u32).wrapping_mul(CELL_MULTIPLIER) >> RELEASE_CACHE_SHIFT) as usize % RELEASE_CACHE
}

#[inline(always)]
fn is(counted: &CountedSlot, mode: u8, site: u64, lock: usize) -> bool {
    // In this order, so that few registers are in use at a time.
    counted.site.load(Relaxed) == site
        && counted.changes.load(Relaxed) == rows::changes()
        && {
            let row = counted.row.load(Relaxed);
            let (base, inverse) = (counted.base.load(Relaxed) as usize, counted.inverse.load(Relaxed) as usize);
            Span { base, inverse, shift: row % (1 << ROW_COUNT_SHIFT), count: row >> ROW_COUNT_SHIFT }.has(lock)
        }
        // Locks without modes share no address with others.
        && (mode == mode::EXCLUSIVE || Meta::unpack(counted.meta.load(Relaxed)).mode == mode)
}

#[inline(always)]
fn at(thread: &'static Thread, place: usize) -> Option<&'static CountedSlot> {
    let distance = thread.release_cache[place].load(Relaxed);
    let address = core::ptr::from_ref(thread).cast::<CountedSlot>().wrapping_offset(distance as isize);
    // SAFETY: this thread wrote the distance of a sample of its own, which stays mapped.
    (distance != 0).then(|| unsafe { &*address })
}

/// Where the sample of a caller may be, the first place first: the caller's own, and for a function that releases many locks one
/// for each of them; beside both there is another, for callers that fall on one place.
#[inline(always)]
fn slots_of(site: u64, lock: usize) -> [usize; 4] {
    let (of_caller, of_both) = (home(site), home(site ^ lock as u64));
    [of_caller, of_both, of_caller ^ 1, of_both ^ 1]
}

/// A sample of this caller that is valid for this lock.
#[inline(always)]
pub(super) fn find(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static CountedSlot> {
    find_first(thread, lock, mode, site).or_else(|| find_elsewhere(thread, lock, mode, site))
}

/// As [`find`], in the first place alone.
#[inline(always)]
pub(super) fn find_first(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static CountedSlot> {
    at(thread, home(site)).filter(|first| is(first, mode, site, lock))
}

#[inline(never)]
fn find_elsewhere(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static CountedSlot> {
    let others = slots_of(site, lock).into_iter().skip(1);
    others.filter_map(|place| at(thread, place)).find(|counted| is(counted, mode, site, lock))
}

/// Has the sample of this caller found for this lock from now on, if an address is enough to tell.
/// `place` is that of the lock or of its class, `changes` what [`rows::changes`] said before it was found.
pub(super) fn learn(
    thread: &'static Thread,
    counted: &'static CountedSlot,
    lock: usize,
    place: u32,
    site: u64,
    changes: u32,
) {
    let is_class = place as usize > LOCK_PLACES;
    let span = if is_class { rows::of(place, lock) } else { Some(Span::single(lock)) };
    let Some(span) = span else { return };
    // Nothing must be taken for one of these addresses meanwhile, not in a signal handler either.
    counted.limit.store(0, Release);
    counted.row.store(0, Release);
    counted.base.store(span.base as u64, Release);
    counted.inverse.store(span.inverse as u64, Release);
    counted.changes.store(changes, Release);
    counted.row.store(span.count.min(u32::MAX >> ROW_COUNT_SHIFT) << ROW_COUNT_SHIFT | span.shift, Release);
    let is_mutex = Meta::unpack(counted.meta.load(Relaxed)).kind == kind::MUTEX;
    counted.limit.store(span.limit(if is_mutex { MUTEX_ALIGNMENT } else { LEAST_ALIGNMENT }), Release);
    let [of_caller, of_both, beside_caller, beside_both] = slots_of(site, lock);
    let is_free = |place: &usize| {
        at(thread, *place).is_none_or(|there| {
            core::ptr::eq(there, counted) || there.site.load(Relaxed) == 0 || there.changes.load(Relaxed) != changes
        })
    };
    // Rows stand for more: they give way to no single lock, and single locks to them, which is where releases look first.
    let is_single = |place: &usize| at(thread, *place).is_none_or(|there| there.addresses() <= 1);
    let place = if is_class {
        [of_caller, beside_caller].into_iter().find(|place| is_free(place) || is_single(place)).unwrap_or(beside_caller)
    } else {
        let order = [of_caller, of_both, beside_both];
        let free = order.into_iter().find(is_free);
        free.or_else(|| order[1..].iter().copied().find(is_single)).unwrap_or(of_both)
    };
    let distance = (core::ptr::from_ref(counted) as isize - core::ptr::from_ref(thread) as isize)
        / size_of::<CountedSlot>() as isize;
    thread.release_cache[place].store(distance as i32, Relaxed);
}

/// The table has a new owner or the owner a new name: its samples are others.
pub(super) fn forget(thread: &'static Thread) {
    for release_cache in &thread.release_cache {
        release_cache.store(0, Relaxed);
    }
}
