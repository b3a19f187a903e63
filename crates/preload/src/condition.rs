//! `pthread_cond_*`: a wait gives the mutex back, which ends its hold, and takes it again, which may be a wait for it.

use core::ffi::c_int;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};
use lockmeter_meter::writer::{self, OFF, Registers, Wanted, kind, mode};

use crate::entry::interpose;
use crate::{mutex, real};

interpose!(pthread_cond_wait, 2, wait);
interpose!(pthread_cond_timedwait, 3, timedwait);
interpose!(pthread_cond_clockwait, 4, clockwait);
interpose!(pthread_cond_signal, 1, signal);
interpose!(pthread_cond_broadcast, 1, broadcast);

#[inline(always)]
unsafe fn metered(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    sp: *const usize,
    fp: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let level = writer::level();
    if level == OFF {
        return wait();
    }
    // SAFETY: our own entry, which has not returned.
    let registers = unsafe { Registers::at_entry(sp, fp) };
    // SAFETY: the caller's mutex, which it holds.
    let is_contended = || unsafe { mutex::is_contended(mutex) };
    let ended = writer::begin_release(level, mutex::wanted(mutex), &registers, is_contended);
    let waiting = writer::begin_condition(condition as usize, mutex as usize, &registers);
    let status = wait();
    writer::end_condition(waiting, status == libc::ETIMEDOUT);
    if let Some(ended) = ended {
        writer::released(&ended, true);
        // SAFETY: the caller's mutex, which it holds again, and the entry's return address.
        unsafe { writer::acquired(mutex::wanted(mutex), mutex::nests(mutex), *sp as u64) };
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn wait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's condition and mutex, and our own entry.
    unsafe { metered(condition, mutex, sp, fp, || real::pthread_cond_wait(condition, mutex)) }
}

pub(crate) unsafe extern "C-unwind" fn timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's condition, mutex and time, and our own entry.
    unsafe { metered(condition, mutex, sp, fp, || real::pthread_cond_timedwait(condition, mutex, until)) }
}

unsafe extern "C-unwind" fn clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: usize,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // Four arguments and two of ours: the most that registers hold.
    // SAFETY: the caller's condition, mutex and time, and our own entry.
    unsafe { metered(condition, mutex, sp, fp, || real::pthread_cond_clockwait(condition, mutex, clock, until)) }
}

pub(crate) unsafe extern "C-unwind" fn signal(condition: *mut pthread_cond_t, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: our own entry.
    unsafe { signalled(condition, sp, fp) };
    // SAFETY: the caller's condition.
    unsafe { real::pthread_cond_signal(condition) }
}

pub(crate) unsafe extern "C-unwind" fn broadcast(condition: *mut pthread_cond_t, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: our own entry.
    unsafe { signalled(condition, sp, fp) };
    // SAFETY: the caller's condition.
    unsafe { real::pthread_cond_broadcast(condition) }
}

#[inline]
unsafe fn signalled(condition: *mut pthread_cond_t, sp: *const usize, fp: usize) {
    if writer::level() != OFF {
        // SAFETY: the entry has not returned.
        let registers = unsafe { Registers::at_entry(sp, fp) };
        let held = Wanted { lock: condition as usize, kind: kind::CONDVAR, mode: mode::EXCLUSIVE };
        writer::releasing(held, 0, &registers, || false);
    }
}
