//! Which samples the releases at one place in the program count to: found by the caller, and valid for the one lock or the row
//! of locks that it released last. Saves the search by address through a table that all threads share.

use core::sync::atomic::Ordering::Relaxed;

use super::recent::{self, NO_SLOT};
use super::rows::{self, Span};
use crate::layout::{LOCK_PLACES, NEAR, Near, Thread};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn home(mixed: u64) -> usize {
    (mixed.wrapping_mul(GOLDEN) >> (u64::BITS - NEAR.ilog2())) as usize % NEAR
}

#[inline(always)]
fn is(near: &Near, caller: u64, lock: usize) -> bool {
    // In this order, so that few registers are in use at a time.
    near.caller.load(Relaxed) == caller && near.changes.load(Relaxed) == rows::changes() && {
        let shift = near.shift.load(Relaxed);
        let (base, inverse) = (near.base.load(Relaxed) as usize, near.inverse.load(Relaxed) as usize);
        Span { base, inverse, shift, count: near.count.load(Relaxed) }.has(lock)
    }
}

/// The entry of this caller, if it is valid for this lock: the two places where [`find`] looks first.
#[inline(always)]
pub(super) fn find_first(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static Near> {
    let caller = recent::caller(mode, site);
    let near = &thread.near[home(caller)];
    if is(near, caller, lock) {
        return Some(near);
    }
    let near = &thread.near[home(caller ^ lock as u64)];
    is(near, caller, lock).then_some(near)
}

/// Where the entry of a caller may be, the first place first: the caller's own, and for a function that releases many locks one
/// for each of them; beside both there is another, for callers that fall on one place.
fn places(caller: u64, lock: usize) -> [usize; 4] {
    let (of_caller, of_both) = (home(caller), home(caller ^ lock as u64));
    [of_caller, of_both, of_caller ^ 1, of_both ^ 1]
}

/// An entry of this caller that is valid for this lock.
#[inline]
pub(super) fn find(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static Near> {
    let caller = recent::caller(mode, site);
    places(caller, lock).into_iter().map(|place| &thread.near[place]).find(|near| is(near, caller, lock))
}

/// Makes an entry for this lock, whose samples are at this place (its own or that of its class), if an address is enough to tell.
/// `changes` is what [`rows::changes`] said before that place was found.
pub(super) fn learn(
    thread: &'static Thread,
    lock: usize,
    place: u32,
    mode: u8,
    site: u64,
    changes: u32,
) -> Option<&'static Near> {
    let is_class = place as usize > LOCK_PLACES;
    let span = if is_class { rows::of(place, lock)? } else { Span::single(lock) };
    let caller = recent::caller(mode, site);
    let [of_caller, of_both, beside_caller, beside_both] = places(caller, lock).map(|place| &thread.near[place]);
    // A row is not where only one of its locks would be looked for.
    let order = if is_class { [of_caller, beside_caller, of_caller] } else { [of_caller, of_both, beside_both] };
    let is_free = |near: &&Near| near.caller.load(Relaxed) == 0 || near.changes.load(Relaxed) != changes;
    // Rows give way to no single lock: they stand for more.
    let is_single = |near: &&Near| near.count.load(Relaxed) == 1;
    let free = order.into_iter().find(is_free);
    let near = free.or_else(|| order[1..].iter().copied().find(is_single)).unwrap_or(order[1]);
    near.base.store(span.base as u64, Relaxed);
    near.inverse.store(span.inverse as u64, Relaxed);
    near.shift.store(span.shift, Relaxed);
    near.count.store(span.count, Relaxed);
    near.place.store(place, Relaxed);
    near.changes.store(changes, Relaxed);
    near.caller.store(caller, Relaxed);
    near.untimed.store(NO_SLOT, Relaxed);
    near.timed.store(NO_SLOT, Relaxed);
    near.watched.store(NO_SLOT, Relaxed);
    Some(near)
}

/// Whether it is still what it was found or made as.
#[inline(always)]
pub(super) fn still_is(near: &Near, place: u32, mode: u8, site: u64) -> bool {
    near.place.load(Relaxed) == place && near.caller.load(Relaxed) == recent::caller(mode, site)
}
