//! Which samples the releases at one place in the program count to: found by the caller, and valid for the one lock or the row
//! of locks that it released last. Saves the search by address through a table that all threads share.

use core::sync::atomic::Ordering::Relaxed;

use super::recent::{self, NO_SLOT};
use super::rows::{self, Span};
use crate::layout::{LOCK_PLACES, NEAR, Near, Thread};

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn at(thread: &'static Thread, mixed: u64) -> &'static Near {
    &thread.near[(mixed.wrapping_mul(GOLDEN) >> (u64::BITS - NEAR.ilog2())) as usize % NEAR]
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

/// The entry of this caller, if it is valid for this lock: where [`find`] looks first.
#[inline(always)]
pub(super) fn find_first(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static Near> {
    let caller = recent::caller(mode, site);
    let near = at(thread, caller);
    is(near, caller, lock).then_some(near)
}

/// An entry of this caller that is valid for this lock: a function that releases many locks has one for each.
#[inline]
pub(super) fn find(thread: &'static Thread, lock: usize, mode: u8, site: u64) -> Option<&'static Near> {
    find_first(thread, lock, mode, site).or_else(|| {
        let caller = recent::caller(mode, site);
        let near = at(thread, caller ^ lock as u64);
        is(near, caller, lock).then_some(near)
    })
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
    let first = at(thread, caller);
    let is_taken = first.caller.load(Relaxed) == caller && first.changes.load(Relaxed) == changes;
    let near = if is_taken && !is_class { at(thread, caller ^ lock as u64) } else { first };
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
