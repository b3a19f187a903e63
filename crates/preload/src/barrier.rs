//! `pthread_barrier_wait`.

use core::ffi::c_int;

use libc::{PTHREAD_BARRIER_SERIAL_THREAD, pthread_barrier_t};
use lockmeter_meter::writer::{self, OFF, Registers, Wanted, kind, mode};

use crate::entry::interpose;
use crate::outcome::outcome;
use crate::real;

interpose!(pthread_barrier_wait, 1, wait);

unsafe extern "C-unwind" fn wait(barrier: *mut pthread_barrier_t, sp: *const usize, fp: usize) -> c_int {
    if writer::level() == OFF {
        // SAFETY: the caller's barrier.
        return unsafe { real::pthread_barrier_wait(barrier) };
    }
    let wanted = Wanted { lock: barrier as usize, kind: kind::BARRIER, mode: mode::EXCLUSIVE };
    // SAFETY: our own entry, which has not returned.
    let waiting = writer::begin_wait(wanted, &unsafe { Registers::at_entry(sp, fp) });
    // SAFETY: the caller's barrier.
    let status = unsafe { real::pthread_barrier_wait(barrier) };
    let is_over = matches!(status, 0 | PTHREAD_BARRIER_SERIAL_THREAD);
    writer::end_wait(waiting, outcome(is_over, status, || 0));
    status
}
