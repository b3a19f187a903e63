//! `pthread_rwlock_*`.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{EBUSY, pthread_rwlock_t, timespec};
use lockmeter_meter::writer::{self, OFF, Registers, WAIT, Wanted, kind, mode};

use crate::entry::{interpose, interpose_acquire, interpose_release_with_mode};
use crate::outcome::outcome;
use crate::{real, swap};

interpose!(pthread_rwlock_init, 2, init);
interpose!(pthread_rwlock_destroy, 1, destroy);
interpose_acquire!(
    pthread_rwlock_rdlock,
    kind: kind::RWLOCK,
    mode: mode::READ,
    slow: rdlock,
    try_it: real::slots::pthread_rwlock_tryrdlock,
    real: real::slots::pthread_rwlock_rdlock,
    timed: read_timed,
    special_byte: SHARED_AT,
    special_bits: u8::MAX,
);
interpose_acquire!(
    pthread_rwlock_wrlock,
    kind: kind::RWLOCK,
    mode: mode::WRITE,
    slow: wrlock,
    try_it: real::slots::pthread_rwlock_trywrlock,
    real: real::slots::pthread_rwlock_wrlock,
    timed: write_timed,
    special_byte: SHARED_AT,
    special_bits: u8::MAX,
);
interpose!(pthread_rwlock_tryrdlock, 1, tryrdlock);
interpose!(pthread_rwlock_trywrlock, 1, trywrlock);
interpose!(pthread_rwlock_timedrdlock, 2, timedrdlock);
interpose!(pthread_rwlock_timedwrlock, 2, timedwrlock);
interpose!(pthread_rwlock_clockrdlock, 3, clockrdlock);
interpose!(pthread_rwlock_clockwrlock, 3, clockwrlock);
interpose_release_with_mode!(
    pthread_rwlock_unlock,
    slow: unlock,
    real: real::slots::pthread_rwlock_unlock,
    special_byte: SHARED_AT,
    special_bits: u8::MAX,
);

/// Offset in glibc's lock, part of its ABI: not zero where processes may share the lock.
pub(crate) const SHARED_AT: usize = 28;

fn wanted(lock: *const pthread_rwlock_t, mode: u8) -> Wanted {
    Wanted { lock: lock as usize, kind: kind::RWLOCK, mode }
}

/// The thread that holds the lock for writing; 0: none, or a swapped lock, which does not tell.
///
/// # Safety
/// The lock is valid.
unsafe fn writer_of(lock: *const pthread_rwlock_t) -> u32 {
    /// Offset of the writer's thread id in glibc's lock, part of its ABI.
    const WRITER: usize = 24;
    if swap::is_rwlock_written(lock).is_some() {
        return 0;
    }
    // SAFETY: lies in the lock, and is aligned as that is.
    unsafe { &*lock.byte_add(WRITER).cast::<AtomicU32>() }.load(Relaxed)
}

/// Whether processes may share the lock: [`interpose_acquire`] and [`interpose_release_with_mode`] leave such locks to the functions here.
///
/// # Safety
/// The lock is valid.
unsafe fn is_shared(lock: *const pthread_rwlock_t) -> bool {
    // SAFETY: lies in the lock, and is aligned as that is.
    unsafe { &*lock.byte_add(SHARED_AT).cast::<AtomicU32>() }.load(Relaxed) != 0
}

/// Whether a thread holds the lock for writing.
///
/// # Safety
/// The lock is valid.
unsafe fn is_written(lock: *const pthread_rwlock_t) -> bool {
    // SAFETY: the caller's lock.
    swap::is_rwlock_written(lock).unwrap_or_else(|| unsafe { writer_of(lock) } != 0)
}

/// Whether glibc accepts this time of a clock. For reader-writer locks it checks that before it looks at the lock.
///
/// # Safety
/// `until` is readable or null.
unsafe fn is_valid(clock: usize, until: *const timespec) -> bool {
    const NS_PER_S: i64 = 1_000_000_000;
    real::is_known_clock(clock)
        // SAFETY: the caller's obligation.
        && (until.is_null() || (0..NS_PER_S).contains(&unsafe { (*until).tv_nsec }))
}

/// Tries first; waits with `wait` if that fails.
#[inline(always)]
unsafe fn acquire(
    lock: *mut pthread_rwlock_t,
    mode: u8,
    is_valid: bool,
    sp: *const usize,
    fp: usize,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    let level = writer::level();
    if level == OFF || !is_valid {
        return wait();
    }
    // SAFETY: the caller's lock.
    if unsafe { is_shared(lock) } {
        // SAFETY: the entry's return address.
        writer::may_be_shared(wanted(lock, mode), unsafe { *sp } as u64);
    }
    let tried = match mode {
        // SAFETY: the caller's lock.
        mode::READ => unsafe { real::pthread_rwlock_tryrdlock(lock) },
        // SAFETY: the caller's lock.
        _ => unsafe { real::pthread_rwlock_trywrlock(lock) },
    };
    let status = match tried {
        0 => 0,
        EBUSY => {
            // SAFETY: the caller's lock, and our own entry, which has not returned.
            unsafe { contended(lock, mode, Registers::at_entry(sp, fp), wait) }
        }
        // What is wrong is for the real function to say.
        _ => wait(),
    };
    if level != WAIT && status == 0 {
        // SAFETY: the entry's return address.
        writer::acquired(wanted(lock, mode), false, unsafe { *sp } as u64);
    }
    status
}

/// # Safety
/// The lock is valid.
#[cold]
#[inline(never)]
unsafe fn contended(
    lock: *const pthread_rwlock_t,
    mode: u8,
    registers: Registers,
    wait: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's lock.
    let writer = || unsafe { writer_of(lock) };
    let waiting = writer::begin_wait_for(wanted(lock, mode), writer(), &registers);
    let status = wait();
    writer::end_wait(waiting, outcome(status == 0, status, writer));
    status
}

/// The entry's own try had the lock for reading, and this hold is to be timed.
pub(crate) extern "C" fn read_timed(lock: *mut pthread_rwlock_t, site: u64) -> c_int {
    writer::acquired_timed(wanted(lock, mode::READ), site);
    0
}

/// As [`read_timed`], for writing.
pub(crate) extern "C" fn write_timed(lock: *mut pthread_rwlock_t, site: u64) -> c_int {
    writer::acquired_timed(wanted(lock, mode::WRITE), site);
    0
}

/// The six functions that wait.
macro_rules! waiting {
    ($($name:ident, $mode:expr, $real:ident($($argument:ident: $type:ty),*), $is_valid:expr;)+) => {
        $(
            pub(crate) unsafe extern "C-unwind" fn $name(
                lock: *mut pthread_rwlock_t,
                $($argument: $type,)*
                sp: *const usize,
                fp: usize,
            ) -> c_int {
                // SAFETY: the caller's lock and time, and our own entry.
                unsafe { acquire(lock, $mode, $is_valid, sp, fp, || real::$real(lock, $($argument),*)) }
            }
        )+
    };
}

waiting! {
    rdlock, mode::READ, pthread_rwlock_rdlock(), true;
    wrlock, mode::WRITE, pthread_rwlock_wrlock(), true;
    timedrdlock, mode::READ, pthread_rwlock_timedrdlock(until: *const timespec), is_valid(REALTIME, until);
    timedwrlock, mode::WRITE, pthread_rwlock_timedwrlock(until: *const timespec), is_valid(REALTIME, until);
    clockrdlock, mode::READ, pthread_rwlock_clockrdlock(clock: usize, until: *const timespec), is_valid(clock, until);
    clockwrlock, mode::WRITE, pthread_rwlock_clockwrlock(clock: usize, until: *const timespec), is_valid(clock, until);
}

/// The clock of the functions without one.
const REALTIME: usize = libc::CLOCK_REALTIME as usize;

pub(crate) unsafe extern "C-unwind" fn tryrdlock(lock: *mut pthread_rwlock_t, sp: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_rwlock_tryrdlock(lock) };
    tried(lock, mode::READ, sp, status)
}

pub(crate) unsafe extern "C-unwind" fn trywrlock(lock: *mut pthread_rwlock_t, sp: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_rwlock_trywrlock(lock) };
    tried(lock, mode::WRITE, sp, status)
}

fn tried(lock: *mut pthread_rwlock_t, mode: u8, sp: *const usize, status: c_int) -> c_int {
    if writer::level() > WAIT && status == 0 {
        // SAFETY: the caller's lock.
        if unsafe { is_shared(lock) } {
            // SAFETY: the entry's return address.
            writer::may_be_shared(wanted(lock, mode), unsafe { *sp } as u64);
        }
        // SAFETY: the entry's return address.
        writer::acquired(wanted(lock, mode), false, unsafe { *sp } as u64);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn unlock(lock: *mut pthread_rwlock_t, sp: *const usize, fp: usize) -> c_int {
    let level = writer::level();
    if level == OFF {
        // SAFETY: the caller's lock.
        return unsafe { real::pthread_rwlock_unlock(lock) };
    }
    // SAFETY: our own entry, which has not returned.
    let registers = unsafe { Registers::at_entry(sp, fp) };
    // SAFETY: the caller's lock, which it holds.
    let mode = if unsafe { is_written(lock) } { mode::WRITE } else { mode::READ };
    let ended = writer::begin_release(level, wanted(lock, mode), &registers, || false);
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_rwlock_unlock(lock) };
    if let Some(ended) = ended {
        writer::released(&ended, status == 0);
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn init(
    lock: *mut pthread_rwlock_t,
    attributes: *const c_void,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's lock and attributes.
    let status = unsafe { real::pthread_rwlock_init(lock, attributes) };
    if status == 0 && writer::level() != OFF {
        // SAFETY: our own entry, which has not returned.
        let registers = unsafe { Registers::at_entry(sp, fp) };
        // SAFETY: the caller's lock.
        if unsafe { is_shared(lock) } {
            writer::shared_lock_created(wanted(lock, mode::WRITE), &registers);
        } else {
            writer::lock_created(lock as usize, kind::RWLOCK, registers);
        }
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn destroy(lock: *mut pthread_rwlock_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_rwlock_destroy(lock) };
    if status == 0 && writer::level() != OFF {
        writer::lock_destroyed(lock as usize);
    }
    status
}
