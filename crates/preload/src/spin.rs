//! `pthread_spin_*`.

use core::ffi::c_int;

use libc::{EBUSY, pthread_spinlock_t};
use lockmeter_meter::writer::{self, OFF, Registers, WAIT, Wanted, kind, mode};

use crate::entry::{interpose, interpose_acquire, interpose_release};
use crate::outcome::outcome;
use crate::real;

interpose!(pthread_spin_init, 2, init);
interpose!(pthread_spin_destroy, 1, destroy);
interpose_acquire!(
    pthread_spin_lock,
    kind: kind::SPIN,
    mode: mode::EXCLUSIVE,
    slow: lock,
    try_it: real::slots::pthread_spin_trylock,
    real: real::slots::pthread_spin_lock,
    timed: acquired_timed,
    // No spin lock is special.
    special_byte: 0,
    special_bits: 0,
);
interpose!(pthread_spin_trylock, 1, trylock);
interpose_release!(
    pthread_spin_unlock,
    kind: kind::SPIN,
    slow: unlock,
    real: real::slots::pthread_spin_unlock,
    count: count_untimed,
    timed: unlock,
);

fn wanted(lock: *mut pthread_spinlock_t) -> Wanted {
    Wanted { lock: lock as usize, kind: kind::SPIN, mode: mode::EXCLUSIVE }
}

/// The entry's own try had the lock, and its hold is to be timed.
extern "C" fn acquired_timed(lock: *mut pthread_spinlock_t, site: u64) -> c_int {
    writer::acquired_timed(wanted(lock), site);
    0
}

/// The entry released the lock, whose hold the thread does not time.
extern "C" fn count_untimed(lock: *mut pthread_spinlock_t, site: u64) -> c_int {
    writer::count_untimed(wanted(lock), site);
    0
}

unsafe extern "C-unwind" fn lock(lock: *mut pthread_spinlock_t, sp: *const usize, fp: usize) -> c_int {
    let level = writer::level();
    if level == OFF {
        // SAFETY: the caller's lock.
        return unsafe { real::pthread_spin_lock(lock) };
    }
    // SAFETY: the caller's lock.
    let mut status = unsafe { real::pthread_spin_trylock(lock) };
    if status == EBUSY {
        // SAFETY: our own entry, which has not returned.
        let mut waiting = writer::begin_wait(wanted(lock), &unsafe { Registers::at_entry(sp, fp) });
        // SAFETY: the caller's lock, of four bytes. What they say is the C library's business, but that they change with each release.
        let word = || unsafe { lock.cast::<u32>().read_volatile() };
        // SAFETY: the caller's lock.
        let try_it = || unsafe { real::pthread_spin_trylock(lock) } == 0;
        status = match writer::spin(&mut waiting, word, try_it) {
            true => 0,
            // SAFETY: the caller's lock.
            false => unsafe { real::pthread_spin_lock(lock) },
        };
        writer::end_wait(waiting, outcome(status == 0, status, || 0));
    }
    if level != WAIT && status == 0 {
        // SAFETY: the entry's return address.
        writer::acquired(wanted(lock), false, unsafe { *sp } as u64);
    }
    status
}

unsafe extern "C-unwind" fn trylock(lock: *mut pthread_spinlock_t, sp: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_spin_trylock(lock) };
    if writer::level() > WAIT && status == 0 {
        // SAFETY: the entry's return address.
        writer::acquired(wanted(lock), false, unsafe { *sp } as u64);
    }
    status
}

unsafe extern "C-unwind" fn unlock(lock: *mut pthread_spinlock_t, sp: *const usize, fp: usize) -> c_int {
    let level = writer::level();
    if level == OFF {
        // SAFETY: the caller's lock.
        return unsafe { real::pthread_spin_unlock(lock) };
    }
    // SAFETY: our own entry, which has not returned.
    let registers = unsafe { Registers::at_entry(sp, fp) };
    let ended = writer::begin_release(level, wanted(lock), &registers, || false);
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_spin_unlock(lock) };
    if let Some(ended) = ended {
        writer::released(&ended, status == 0);
    }
    status
}

unsafe extern "C-unwind" fn init(lock: *mut pthread_spinlock_t, shared: usize, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_spin_init(lock, shared) };
    if status == 0 && writer::level() != OFF {
        // SAFETY: our own entry, which has not returned.
        writer::lock_created(lock as usize, kind::SPIN, unsafe { Registers::at_entry(sp, fp) });
    }
    status
}

unsafe extern "C-unwind" fn destroy(lock: *mut pthread_spinlock_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's lock.
    let status = unsafe { real::pthread_spin_destroy(lock) };
    if status == 0 && writer::level() != OFF {
        writer::lock_destroyed(lock as usize);
    }
    status
}
