//! `mtx_*` and `cnd_*` of C11's `<threads.h>`.
//!
//! glibc's are its own pthread functions with other statuses, and call them by inner names, past every library that takes the
//! place of the outer ones. Here they are the same functions again.

use core::ffi::c_int;
use core::sync::atomic::AtomicPtr;

use libc::{EBUSY, ENOMEM, ETIMEDOUT, pthread_cond_t, pthread_mutex_t, timespec};
use lockmeter_meter::layout::Thread;
use lockmeter_meter::writer::{self, OFF, Registers, kind};

use crate::entry::{interpose, interpose_mutex_lock, interpose_mutex_unlock};
use crate::{condition, creation, mutex, real};

interpose!(mtx_init, 2, init);
interpose!(mtx_destroy, 1, destroy);
interpose_mutex_lock!(mtx_lock, slow: lock, real: LOCK);
interpose!(mtx_trylock, 1, trylock);
interpose!(mtx_timedlock, 2, timedlock);
interpose_mutex_unlock!(mtx_unlock, slow: unlock, real: UNLOCK, timed: unlock_timed);
interpose!(cnd_init, 1, init_condition);
interpose!(cnd_destroy, 1, destroy_condition);
interpose!(cnd_wait, 2, wait);
interpose!(cnd_timedwait, 3, timedwait);
interpose!(cnd_signal, 1, signal);
interpose!(cnd_broadcast, 1, broadcast);

/// What `<threads.h>` calls the outcomes.
mod thrd {
    use core::ffi::c_int;

    pub(super) const SUCCESS: c_int = 0;
    pub(super) const BUSY: c_int = 1;
    pub(super) const ERROR: c_int = 2;
    pub(super) const NOMEM: c_int = 3;
    pub(super) const TIMEDOUT: c_int = 4;
}

/// An error number as glibc translates it.
const fn outcome(status: c_int) -> c_int {
    match status {
        0 => thrd::SUCCESS,
        EBUSY => thrd::BUSY,
        ENOMEM => thrd::NOMEM,
        ETIMEDOUT => thrd::TIMEDOUT,
        _ => thrd::ERROR,
    }
}

/// What the entries call while metering is off. Not glibc's own, which would not know of swapped mutexes.
static LOCK: AtomicPtr<()> = AtomicPtr::new(lock_unmetered as *mut ());
/// What the entries call to release a mutex that they do not release themselves.
static UNLOCK: AtomicPtr<()> = AtomicPtr::new(unlock_unmetered as *mut ());

unsafe extern "C-unwind" fn lock_unmetered(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    outcome(unsafe { real::pthread_mutex_lock(mutex) })
}

unsafe extern "C-unwind" fn unlock_unmetered(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    outcome(unsafe { real::pthread_mutex_unlock(mutex) })
}

/// As pthread's: the entry found that this mutex is the one that the thread acquired last, and that it times the hold.
unsafe extern "C-unwind" fn unlock_timed(
    mutex: *mut pthread_mutex_t,
    sp: *const usize,
    fp: usize,
    table: &'static Thread,
    waiters: u64,
) -> c_int {
    // SAFETY: the caller's mutex, and its entry, which has looked at the table.
    outcome(unsafe { mutex::unlock_timed(mutex, sp, fp, table, waiters) })
}

/// `$name` is pthread's `$inner` with C11's outcomes.
macro_rules! translated {
    ($($name:ident($($argument:ident: $type:ty),*) = $inner:path;)+) => {
        $(
            unsafe extern "C-unwind" fn $name($($argument: $type,)* sp: *const usize, fp: usize) -> c_int {
                // SAFETY: the caller's arguments, and its entry, which has not returned. A `mtx_t` is a `pthread_mutex_t`,
                // and a `cnd_t` a `pthread_cond_t`: glibc's take them for that, too.
                outcome(unsafe { $inner($($argument,)* sp, fp) })
            }
        )+
    };
}

translated! {
    lock(mutex: *mut pthread_mutex_t) = mutex::lock;
    trylock(mutex: *mut pthread_mutex_t) = mutex::trylock;
    timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) = mutex::timedlock;
    unlock(mutex: *mut pthread_mutex_t) = mutex::unlock;
    wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) = condition::wait;
    timedwait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t, until: *const timespec) = condition::timedwait;
    signal(condition: *mut pthread_cond_t) = condition::signal;
    broadcast(condition: *mut pthread_cond_t) = condition::broadcast;
}

unsafe extern "C-unwind" fn init(mutex: *mut pthread_mutex_t, kind: usize, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let outcome = unsafe { real::mtx_init(mutex, kind) };
    if outcome == thrd::SUCCESS && writer::level() != OFF {
        // SAFETY: our own entry, which has not returned.
        writer::lock_created(mutex as usize, kind::MUTEX, unsafe { Registers::at_entry(sp, fp) });
    }
    outcome
}

unsafe extern "C-unwind" fn destroy(mutex: *mut pthread_mutex_t, sp: *const usize, fp: usize) {
    // SAFETY: the caller's mutex, and our own entry. It says nothing of errors.
    unsafe { mutex::destroy(mutex, sp, fp) };
}

unsafe extern "C-unwind" fn init_condition(condition: *mut pthread_cond_t, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's condition, and our own entry.
    outcome(unsafe { creation::init_condition(condition, core::ptr::null(), sp, fp) })
}

unsafe extern "C-unwind" fn destroy_condition(condition: *mut pthread_cond_t, sp: *const usize, fp: usize) {
    // SAFETY: the caller's condition, and our own entry.
    unsafe { creation::destroy_condition(condition, sp, fp) };
}
