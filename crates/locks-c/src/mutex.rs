//! `lm_mutex_t`.

use std::ffi::c_char;

use libc::c_int;
use lockmeter_locks::RawMutex;

use crate::hooks::{Hooks, Site, lm_hooks_t, lm_kind_t};
use crate::{busy_unless, duration, timed_out_unless};

type Inner = RawMutex<Hooks>;

/// A mutex: waiters spin while the owner runs, then sleep, and are handed the lock when they have waited too long.
#[repr(C)]
pub struct lm_mutex_t {
    words: [u64; 10],
}

const _: () = assert!(size_of::<Inner>() <= size_of::<lm_mutex_t>() && align_of::<Inner>() <= align_of::<lm_mutex_t>());

/// The lock in its memory.
///
/// # Safety
///
/// `lock` points to one that was set up, by zeroes or `lm_mutex_init`, and not destroyed.
unsafe fn inner<'a>(lock: *const lm_mutex_t) -> &'a Inner {
    // SAFETY: large and aligned enough (checked above); all zeroes is a free lock.
    unsafe { &*lock.cast::<Inner>() }
}

/// Sets `lock` up as a free one with a name (NULL: none) and hooks (NULL: none), both of which must outlive it.
///
/// # Safety
///
/// `lock` points to memory for one, which nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_init(lock: *mut lm_mutex_t, name: *const c_char, hooks: *const lm_hooks_t) {
    // SAFETY: the caller keeps both.
    let hooks = unsafe { Hooks::new(hooks, name, lock.cast_const().cast(), lm_kind_t::LM_MUTEX) };
    // SAFETY: the caller's memory, large and aligned enough.
    unsafe { lock.cast::<Inner>().write(RawMutex::with(hooks)) };
}

/// Gives back what a free `lock` has of memory elsewhere. Set it up again before any further use.
///
/// # Safety
///
/// `lock` was set up, and nobody holds, waits for or uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_destroy(lock: *mut lm_mutex_t) {
    // SAFETY: ours alone, as the caller promises.
    unsafe { lock.cast::<Inner>().drop_in_place() };
}

/// Locks it.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_lock(lock: *const lm_mutex_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.lock();
}

/// Locks it if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_trylock(lock: *const lm_mutex_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_lock())
}

/// Locks it unless `timeout_ns` nanoseconds are over before; then ETIMEDOUT.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_timedlock(lock: *const lm_mutex_t, timeout_ns: u64) -> c_int {
    // SAFETY: the caller set it up.
    timed_out_unless(unsafe { inner(lock) }.lock_for(duration(timeout_ns)).is_ok())
}

/// Unlocks it.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up its hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_unlock(lock: *const lm_mutex_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock() };
}

/// Locks it, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_mutex_lock_at(lock: *const lm_mutex_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_MUTEX) };
    inner.lock_at(&site);
}
