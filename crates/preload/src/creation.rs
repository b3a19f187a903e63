//! Where semaphores, condition variables and barriers are made: it is what those on the heap are named by.

use core::ffi::{c_int, c_void};

use libc::{pthread_barrier_t, pthread_cond_t, sem_t};
use lockmeter_meter::writer::{self, OFF, Registers, kind};

use crate::entry::interpose;
use crate::real;

interpose!(sem_init, 3, init_semaphore);
interpose!(sem_destroy, 1, destroy_semaphore);
interpose!(pthread_cond_init, 2, init_condition);
interpose!(pthread_cond_destroy, 1, destroy_condition);
interpose!(pthread_barrier_init, 3, init_barrier);
interpose!(pthread_barrier_destroy, 1, destroy_barrier);

/// Notes where a lock was made, if it was.
#[inline]
unsafe fn made(lock: usize, kind: u8, status: c_int, sp: *const usize, fp: usize) -> c_int {
    if status == 0 && writer::level() != OFF {
        // SAFETY: the caller's entry, which has not returned.
        writer::lock_created(lock, kind, unsafe { Registers::at_entry(sp, fp) });
    }
    status
}

fn destroyed(lock: usize, status: c_int) -> c_int {
    if status == 0 && writer::level() != OFF {
        writer::lock_destroyed(lock);
    }
    status
}

unsafe extern "C-unwind" fn init_semaphore(
    semaphore: *mut sem_t,
    shared: usize,
    value: usize,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's semaphore, and our own entry.
    unsafe { made(semaphore as usize, kind::SEMAPHORE, real::sem_init(semaphore, shared, value), sp, fp) }
}

unsafe extern "C-unwind" fn destroy_semaphore(semaphore: *mut sem_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's semaphore.
    destroyed(semaphore as usize, unsafe { real::sem_destroy(semaphore) })
}

pub(crate) unsafe extern "C-unwind" fn init_condition(
    condition: *mut pthread_cond_t,
    attributes: *const c_void,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's condition and attributes, and our own entry.
    unsafe { made(condition as usize, kind::CONDVAR, real::pthread_cond_init(condition, attributes), sp, fp) }
}

pub(crate) unsafe extern "C-unwind" fn destroy_condition(
    condition: *mut pthread_cond_t,
    _: *const usize,
    _: usize,
) -> c_int {
    // SAFETY: the caller's condition.
    destroyed(condition as usize, unsafe { real::pthread_cond_destroy(condition) })
}

unsafe extern "C-unwind" fn init_barrier(
    barrier: *mut pthread_barrier_t,
    attributes: *const c_void,
    count: usize,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's barrier and attributes, and our own entry.
    unsafe { made(barrier as usize, kind::BARRIER, real::pthread_barrier_init(barrier, attributes, count), sp, fp) }
}

unsafe extern "C-unwind" fn destroy_barrier(barrier: *mut pthread_barrier_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's barrier.
    destroyed(barrier as usize, unsafe { real::pthread_barrier_destroy(barrier) })
}
