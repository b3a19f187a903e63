//! What locks that are not pthread's tell us: those of the crate `lockmeter-locks` look these functions up when they find this
//! library loaded.
//!
//! All take the lock's address and its kind and mode as [`lockmeter_meter::layout`] numbers them.

use core::mem::{align_of, size_of};

use lockmeter_meter::writer::{self, OFF, Outcome, Registers, Waiting, Wanted};

use crate::entry::interpose;

/// Room for a wait that has begun; the caller's, and none of its business.
const WAIT_WORDS: usize = 8;

const _: () =
    assert!(size_of::<Waiting>() <= WAIT_WORDS * size_of::<u64>() && align_of::<Waiting>() <= align_of::<u64>());

interpose!(lockmeter_lock_contended_begin, 4, contended_begin);
interpose!(lockmeter_lock_released, 3, released);

/// A lock could not be had at once. Writes eight words to `wait` and returns 1, or returns 0 where nothing is metered.
unsafe extern "C-unwind" fn contended_begin(
    lock: usize,
    kind: usize,
    mode: usize,
    wait: *mut Waiting,
    sp: *const usize,
    fp: usize,
) -> usize {
    if writer::level() == OFF {
        return 0;
    }
    let wanted = Wanted { lock, kind: kind as u8, mode: mode as u8 };
    // SAFETY: our own entry, which has not returned; the caller has room for eight words.
    unsafe { wait.write(writer::begin_wait(wanted, &Registers::at_entry(sp, fp))) };
    1
}

/// A wait for which `lockmeter_lock_contended_begin` has returned 1 is over, with the lock or without.
///
/// # Safety
///
/// `wait` is what that call wrote, and is given here once.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn lockmeter_lock_contended_end(wait: *const Waiting, acquired: usize) {
    // It may have been interrupted as well, which is rare.
    let outcome = if acquired == 0 { Outcome::TimedOut(0) } else { Outcome::Acquired };
    // SAFETY: the caller's obligation.
    writer::end_wait(unsafe { wait.read() }, outcome);
}

/// A lock is about to be released: leaves word of who does it, if somebody waits.
unsafe extern "C-unwind" fn released(lock: usize, kind: usize, mode: usize, sp: *const usize, fp: usize) {
    if writer::level() == OFF {
        return;
    }
    let held = Wanted { lock, kind: kind as u8, mode: mode as u8 };
    // SAFETY: our own entry, which has not returned.
    writer::releasing(held, 0, &unsafe { Registers::at_entry(sp, fp) }, || false);
}
