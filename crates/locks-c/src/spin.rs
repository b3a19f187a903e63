//! `lm_spin_t`.

use std::ffi::c_char;

use libc::c_int;
use lockmeter_locks::RawSpin;

use crate::busy_unless;
use crate::hooks::{Hooks, Site, lm_hooks_t, lm_kind_t};

type Inner = RawSpin<Hooks>;

/// A spinlock: waiters queue and spin until they have it. For sections of less than a microsecond, and no more threads than CPUs.
#[repr(C)]
pub struct lm_spin_t {
    words: [u64; 10],
}

const _: () = assert!(size_of::<Inner>() <= size_of::<lm_spin_t>() && align_of::<Inner>() <= align_of::<lm_spin_t>());

/// The lock in its memory.
///
/// # Safety
///
/// `lock` points to one that was set up, by zeroes or `lm_spin_init`, and not destroyed.
unsafe fn inner<'a>(lock: *const lm_spin_t) -> &'a Inner {
    // SAFETY: large and aligned enough (checked above); all zeroes is a free lock.
    unsafe { &*lock.cast::<Inner>() }
}

/// Sets `lock` up as a free one with a name (NULL: none) and hooks (NULL: none), both of which must outlive it.
///
/// # Safety
///
/// `lock` points to memory for one, which nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_init(lock: *mut lm_spin_t, name: *const c_char, hooks: *const lm_hooks_t) {
    // SAFETY: the caller keeps both.
    let hooks = unsafe { Hooks::new(hooks, name, lock.cast_const().cast(), lm_kind_t::LM_SPIN) };
    // SAFETY: the caller's memory, large and aligned enough.
    unsafe { lock.cast::<Inner>().write(RawSpin::with(hooks)) };
}

/// Gives back what a free `lock` has of memory elsewhere. Set it up again before any further use.
///
/// # Safety
///
/// `lock` was set up, and nobody holds, waits for or uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_destroy(lock: *mut lm_spin_t) {
    // SAFETY: ours alone, as the caller promises.
    unsafe { lock.cast::<Inner>().drop_in_place() };
}

/// Locks it.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_lock(lock: *const lm_spin_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.lock();
}

/// Locks it if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_trylock(lock: *const lm_spin_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_lock())
}

/// Unlocks it.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up its hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_unlock(lock: *const lm_spin_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock() };
}

/// Locks it, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_spin_lock_at(lock: *const lm_spin_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_SPIN) };
    inner.lock_at(&site);
}
