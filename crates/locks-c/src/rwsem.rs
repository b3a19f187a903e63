//! `lm_rwsem_t`.

use std::ffi::c_char;

use libc::c_int;
use lockmeter_locks::RawRwSem;
use lockmeter_locks::rwsem::Standard;

use crate::hooks::{Hooks, Site, lm_hooks_t, lm_kind_t};
use crate::{busy_unless, duration, timed_out_unless};

type Inner = RawRwSem<Standard, Hooks>;

/// A reader-writer semaphore: many readers, or one writer.
#[repr(C)]
pub struct lm_rwsem_t {
    words: [u64; 12],
}

const _: () = assert!(size_of::<Inner>() <= size_of::<lm_rwsem_t>() && align_of::<Inner>() <= align_of::<lm_rwsem_t>());

/// The lock in its memory.
///
/// # Safety
///
/// `lock` points to one that was set up, by zeroes or `lm_rwsem_init`, and not destroyed.
unsafe fn inner<'a>(lock: *const lm_rwsem_t) -> &'a Inner {
    // SAFETY: large and aligned enough (checked above); all zeroes is a free lock.
    unsafe { &*lock.cast::<Inner>() }
}

/// Sets `lock` up as a free one with a name (NULL: none) and hooks (NULL: none), both of which must outlive it.
///
/// # Safety
///
/// `lock` points to memory for one, which nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_init(lock: *mut lm_rwsem_t, name: *const c_char, hooks: *const lm_hooks_t) {
    // SAFETY: the caller keeps both.
    let hooks = unsafe { Hooks::new(hooks, name, lock.cast_const().cast(), lm_kind_t::LM_RWSEM) };
    // SAFETY: the caller's memory, large and aligned enough.
    unsafe { lock.cast::<Inner>().write(RawRwSem::with(hooks)) };
}

/// Gives back what a free `lock` has of memory elsewhere. Set it up again before any further use.
///
/// # Safety
///
/// `lock` was set up, and nobody holds, waits for or uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_destroy(lock: *mut lm_rwsem_t) {
    // SAFETY: ours alone, as the caller promises.
    unsafe { lock.cast::<Inner>().drop_in_place() };
}

/// Locks it for reading.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_read_lock(lock: *const lm_rwsem_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.read();
}

/// Locks it for reading if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_read_trylock(lock: *const lm_rwsem_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_read())
}

/// Locks it for reading unless `timeout_ns` nanoseconds are over before; then ETIMEDOUT.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_read_timedlock(lock: *const lm_rwsem_t, timeout_ns: u64) -> c_int {
    // SAFETY: the caller set it up.
    timed_out_unless(unsafe { inner(lock) }.read_for(duration(timeout_ns)).is_ok())
}

/// Gives up a read hold.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up a read hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_read_unlock(lock: *const lm_rwsem_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock_read() };
}

/// Locks it for writing.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_write_lock(lock: *const lm_rwsem_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.write();
}

/// Locks it for writing if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_write_trylock(lock: *const lm_rwsem_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_write())
}

/// Locks it for writing unless `timeout_ns` nanoseconds are over before; then ETIMEDOUT.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_write_timedlock(lock: *const lm_rwsem_t, timeout_ns: u64) -> c_int {
    // SAFETY: the caller set it up.
    timed_out_unless(unsafe { inner(lock) }.write_for(duration(timeout_ns)).is_ok())
}

/// Gives up the write hold.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up the write hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_write_unlock(lock: *const lm_rwsem_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock_write() };
}

/// Turns the write hold into a read hold; no other writer gets in between.
///
/// # Safety
///
/// `lock` was set up, and the caller has its write hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_downgrade(lock: *const lm_rwsem_t) {
    // SAFETY: the caller set it up, and holds it.
    unsafe { inner(lock).downgrade() };
}

/// Locks it for reading, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_read_lock_at(lock: *const lm_rwsem_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_RWSEM) };
    inner.read_at(&site);
}

/// Locks it for writing, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_rwsem_write_lock_at(lock: *const lm_rwsem_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_RWSEM) };
    inner.write_at(&site);
}
