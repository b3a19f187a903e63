//! A thread's own variables where nothing faster is known, and in models.

use core::cell::Cell;

use crate::thread_number::UNKNOWN;

// Without destructors, so that they can be read to the thread's very end.
#[cfg(not(any(loom, shuttle)))]
std::thread_local! {
    static WORD: Cell<u64> = const { Cell::new(0) };
    static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
    static SAMPLING_STATE: Cell<u32> = const { Cell::new(0) };
}
#[cfg(loom)]
loom::thread_local! {
    static WORD: Cell<u64> = Cell::new(0);
    static NUMBER: Cell<u32> = Cell::new(UNKNOWN);
}
#[cfg(shuttle)]
shuttle::thread_local! {
    static WORD: Cell<u64> = Cell::new(0);
    static NUMBER: Cell<u32> = Cell::new(UNKNOWN);
}

/// The owner word; 0 before the thread has one.
#[inline(always)]
pub(super) fn word() -> u64 {
    WORD.with(Cell::get)
}

pub(super) fn set_word(word: u64) {
    WORD.with(|cell| cell.set(word));
}

/// The thread's number while it has one.
pub(super) fn number() -> u32 {
    NUMBER.with(Cell::get)
}

pub(super) fn set_number(number: u32) {
    NUMBER.with(|cell| cell.set(number));
}

/// For [`read_samples`](crate::read_samples).
#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub(crate) fn sampling_state() -> u32 {
    SAMPLING_STATE.with(Cell::get)
}

#[cfg(not(any(loom, shuttle)))]
#[inline(always)]
pub(crate) fn set_sampling_state(reads: u32) {
    SAMPLING_STATE.with(|cell| cell.set(reads));
}
