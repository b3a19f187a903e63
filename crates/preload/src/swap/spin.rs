//! `pthread_spin_*` over our spin lock. The object is one word, which holds nothing but where our lock lies.

use core::ffi::c_int;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{EBUSY, PTHREAD_PROCESS_PRIVATE, pthread_spinlock_t};
use lockmeter_locks::RawSpin;

use super::arena::{Arena, Slots};
use super::choice::{self, Swap};
use super::keeping_errno;
use crate::real::originals;

/// glibc's words are 1 and what is below: these two bits tell ours from them.
const OURS: u32 = 0x4000_0000;
const BITS: u32 = 0xc000_0000;

/// As many spin locks can be swapped at a time: 64 bytes of address space each.
const CAPACITY: usize = 1 << 16;
static ARENA: Arena<RawSpin, CAPACITY> = Arena::new();

/// # Safety
/// A valid lock.
#[inline(always)]
unsafe fn word<'a>(lock: *mut pthread_spinlock_t) -> &'a AtomicU32 {
    // SAFETY: the object is one word; the rest is the caller's obligation.
    unsafe { &*lock.cast() }
}

/// Our lock, if it is swapped.
///
/// # Safety
/// A valid lock.
#[inline(always)]
unsafe fn ours(lock: *mut pthread_spinlock_t) -> Option<&'static RawSpin> {
    // SAFETY: the caller's obligation.
    let word = unsafe { word(lock) }.load(Relaxed);
    if word & BITS != OURS {
        return None;
    }
    ARENA.get(word & !BITS, lock as usize)
}

/// Gives our lock back, if there is one.
///
/// # Safety
/// A valid lock.
unsafe fn forget(lock: *mut pthread_spinlock_t) {
    // SAFETY: the caller's obligation. It may be uninitialised: then this is any number, which names no slot of this object.
    let word = unsafe { word(lock) }.load(Relaxed);
    if word & BITS == OURS {
        ARENA.give_back(word & !BITS, lock as usize);
    }
}

pub(super) unsafe extern "C-unwind" fn init(lock: *mut pthread_spinlock_t, shared: usize) -> c_int {
    // SAFETY: the caller's lock.
    unsafe { forget(lock) };
    let slot = AtomicU32::new(0);
    let why = if shared as c_int != PTHREAD_PROCESS_PRIVATE {
        Swap::LeftShared
    } else if choice::is_left_out(lock as usize) {
        Swap::LeftNotChosen
    } else if ARENA.assign(&slot, lock as usize) {
        // SAFETY: the caller's lock, which nobody uses yet.
        unsafe { word(lock) }.store(OURS | slot.load(Relaxed), Relaxed);
        choice::count(Swap::Spin);
        return 0;
    } else {
        Swap::LeftNoRoom
    };
    choice::count(why);
    // SAFETY: the caller's lock.
    unsafe { originals::pthread_spin_init(lock, shared) }
}

pub(super) unsafe extern "C-unwind" fn destroy(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's lock.
    unsafe { forget(lock) };
    // SAFETY: the caller's lock.
    unsafe { originals::pthread_spin_destroy(lock) }
}

pub(super) unsafe extern "C-unwind" fn lock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's lock.
    match unsafe { ours(lock) } {
        Some(ours) => {
            if !ours.try_lock() {
                keeping_errno(|| ours.lock());
            }
            0
        }
        // SAFETY: the caller's lock, which is glibc's.
        None => unsafe { originals::pthread_spin_lock(lock) },
    }
}

pub(super) unsafe extern "C-unwind" fn trylock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's lock.
    match unsafe { ours(lock) } {
        Some(ours) => {
            if ours.try_lock() {
                0
            } else {
                EBUSY
            }
        }
        // SAFETY: the caller's lock, which is glibc's.
        None => unsafe { originals::pthread_spin_trylock(lock) },
    }
}

pub(super) unsafe extern "C-unwind" fn unlock(lock: *mut pthread_spinlock_t) -> c_int {
    // SAFETY: the caller's lock.
    match unsafe { ours(lock) } {
        Some(ours) => {
            // SAFETY: the caller holds it, as pthread demands.
            keeping_errno(|| unsafe { ours.unlock() });
            0
        }
        // SAFETY: the caller's lock, which is glibc's.
        None => unsafe { originals::pthread_spin_unlock(lock) },
    }
}
