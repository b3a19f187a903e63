//! `sem_*`.
//!
//! A semaphore is never tried first: a failed `sem_trywait` sets `errno`, and a successful one would skip a cancellation
//! point. Its value tells whether the caller will have to wait.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{sem_t, timespec};
use lockmeter_meter::writer::{self, OFF, Registers, Wanted, kind, mode};

use crate::entry::interpose;
use crate::outcome::outcome;
use crate::real;

interpose!(sem_wait, 1, wait);
interpose!(sem_timedwait, 2, timedwait);
interpose!(sem_clockwait, 3, clockwait);
interpose!(sem_trywait, 1, trywait);
interpose!(sem_post, 1, post);

fn wanted(semaphore: *const sem_t) -> Wanted {
    Wanted { lock: semaphore as usize, kind: kind::SEMAPHORE, mode: mode::EXCLUSIVE }
}

/// Whether processes may share the semaphore.
///
/// # Safety
/// The semaphore is valid.
unsafe fn is_shared(semaphore: *const sem_t) -> bool {
    /// Offset of what says so in glibc's semaphore, which has been there since 2.1.
    const SHARED: usize = 8;
    // SAFETY: lies in the semaphore, and is aligned as that is.
    unsafe { &*semaphore.byte_add(SHARED).cast::<AtomicU32>() }.load(Relaxed) != 0
}

#[inline(always)]
unsafe fn acquire(semaphore: *mut sem_t, sp: *const usize, fp: usize, wait: impl FnOnce() -> c_int) -> c_int {
    if writer::level() == OFF {
        return wait();
    }
    let mut value = 1;
    // SAFETY: the caller's semaphore; the function only reads it.
    unsafe { libc::sem_getvalue(semaphore, &raw mut value) };
    if value > 0 {
        let status = wait();
        if status == 0 {
            writer::semaphore_taken(semaphore as usize);
        }
        return status;
    }
    // SAFETY: the caller's semaphore.
    if unsafe { is_shared(semaphore) } {
        // SAFETY: the entry's return address.
        writer::may_be_shared(wanted(semaphore), unsafe { *sp } as u64);
    }
    // SAFETY: our own entry, which has not returned.
    let waiting = writer::begin_wait(wanted(semaphore), &unsafe { Registers::at_entry(sp, fp) });
    let status = wait();
    // SAFETY: the thread's own.
    let error = unsafe { *libc::__errno_location() };
    let is_for_work = writer::end_wait(waiting, outcome(status == 0, error, || 0));
    if is_for_work {
        writer::semaphore_gave_work(semaphore as usize);
    } else if status == 0 {
        writer::semaphore_taken(semaphore as usize);
    }
    status
}

unsafe extern "C-unwind" fn wait(semaphore: *mut sem_t, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's semaphore and our own entry.
    unsafe { acquire(semaphore, sp, fp, || real::sem_wait(semaphore)) }
}

unsafe extern "C-unwind" fn timedwait(
    semaphore: *mut sem_t,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's semaphore and time, and our own entry.
    unsafe { acquire(semaphore, sp, fp, || real::sem_timedwait(semaphore, until)) }
}

unsafe extern "C-unwind" fn clockwait(
    semaphore: *mut sem_t,
    clock: usize,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's semaphore and time, and our own entry.
    unsafe { acquire(semaphore, sp, fp, || real::sem_clockwait(semaphore, clock, until)) }
}

unsafe extern "C-unwind" fn trywait(semaphore: *mut sem_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's semaphore.
    let status = unsafe { real::sem_trywait(semaphore) };
    if status == 0 && writer::level() != OFF {
        writer::semaphore_taken(semaphore as usize);
    }
    status
}

unsafe extern "C-unwind" fn post(semaphore: *mut sem_t, sp: *const usize, fp: usize) -> c_int {
    if writer::level() != OFF {
        // SAFETY: our own entry, which has not returned.
        let registers = unsafe { Registers::at_entry(sp, fp) };
        // SAFETY: the caller's semaphore.
        if unsafe { is_shared(semaphore) } {
            // SAFETY: the entry's return address.
            writer::may_be_shared(wanted(semaphore), unsafe { *sp } as u64);
        }
        writer::posting(wanted(semaphore), &registers);
    }
    // SAFETY: the caller's semaphore.
    unsafe { real::sem_post(semaphore) }
}
