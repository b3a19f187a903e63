//! `lm_percpu_rwsem_t`.

use std::ffi::c_char;

use libc::c_int;
use lock_api::{RawRwLock, RawRwLockDowngrade, RawRwLockTimed};
use lockmeter_locks::rwsem::Standard;
use lockmeter_locks::{RawPercpuRwSem, RawRwSem};

use crate::hooks::{Hooks, Site, lm_hooks_t, lm_kind_t};
use crate::{busy_unless, duration, timed_out_unless};

type Inner = RawPercpuRwSem<RawRwSem<Standard, Hooks>>;

/// A reader-writer semaphore for much reading and little writing: readers share no cache line, a writer pays. Not a word of it
/// may be copied while it is used; destroy it when done.
#[repr(C)]
pub struct lm_percpu_rwsem_t {
    words: [u64; 18],
}

const _: () = assert!(
    size_of::<Inner>() <= size_of::<lm_percpu_rwsem_t>() && align_of::<Inner>() <= align_of::<lm_percpu_rwsem_t>()
);

/// The lock in its memory.
///
/// # Safety
///
/// `lock` points to one that was set up, by zeroes or `lm_percpu_rwsem_init`, and not destroyed.
unsafe fn inner<'a>(lock: *const lm_percpu_rwsem_t) -> &'a Inner {
    // SAFETY: large and aligned enough (checked above); all zeroes is a free lock.
    unsafe { &*lock.cast::<Inner>() }
}

/// Sets `lock` up as a free one with a name (NULL: none) and hooks (NULL: none), both of which must outlive it.
///
/// # Safety
///
/// `lock` points to memory for one, which nobody else uses yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_init(
    lock: *mut lm_percpu_rwsem_t,
    name: *const c_char,
    hooks: *const lm_hooks_t,
) {
    // SAFETY: the caller keeps both.
    let hooks = unsafe { Hooks::new(hooks, name, lock.cast_const().cast(), lm_kind_t::LM_PERCPU_RWSEM) };
    // SAFETY: the caller's memory, large and aligned enough.
    unsafe { lock.cast::<Inner>().write(RawPercpuRwSem::over(RawRwSem::with(hooks))) };
}

/// Gives back what a free `lock` has of memory elsewhere. Set it up again before any further use.
///
/// # Safety
///
/// `lock` was set up, and nobody holds, waits for or uses it any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_destroy(lock: *mut lm_percpu_rwsem_t) {
    // SAFETY: ours alone, as the caller promises.
    unsafe { lock.cast::<Inner>().drop_in_place() };
}

/// Locks it for reading.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_read_lock(lock: *const lm_percpu_rwsem_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.lock_shared();
}

/// Locks it for reading if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_read_trylock(lock: *const lm_percpu_rwsem_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_lock_shared())
}

/// Locks it for reading unless `timeout_ns` nanoseconds are over before; then ETIMEDOUT.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_read_timedlock(lock: *const lm_percpu_rwsem_t, timeout_ns: u64) -> c_int {
    // SAFETY: the caller set it up.
    timed_out_unless(unsafe { inner(lock) }.try_lock_shared_for(duration(timeout_ns)))
}

/// Gives up a read hold.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up a read hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_read_unlock(lock: *const lm_percpu_rwsem_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock_shared() };
}

/// Locks it for writing.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_write_lock(lock: *const lm_percpu_rwsem_t) {
    // SAFETY: the caller set it up.
    unsafe { inner(lock) }.lock_exclusive();
}

/// Locks it for writing if it can be had at once; else EBUSY.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_write_trylock(lock: *const lm_percpu_rwsem_t) -> c_int {
    // SAFETY: the caller set it up.
    busy_unless(unsafe { inner(lock) }.try_lock_exclusive())
}

/// Locks it for writing unless `timeout_ns` nanoseconds are over before; then ETIMEDOUT.
///
/// # Safety
///
/// `lock` was set up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_write_timedlock(lock: *const lm_percpu_rwsem_t, timeout_ns: u64) -> c_int {
    // SAFETY: the caller set it up.
    timed_out_unless(unsafe { inner(lock) }.try_lock_exclusive_for(duration(timeout_ns)))
}

/// Gives up the write hold.
///
/// # Safety
///
/// `lock` was set up, and the caller gives up the write hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_write_unlock(lock: *const lm_percpu_rwsem_t) {
    // SAFETY: the caller set it up, and gives its hold up.
    unsafe { inner(lock).unlock_exclusive() };
}

/// Turns the write hold into a read hold; no other writer gets in between.
///
/// # Safety
///
/// `lock` was set up, and the caller has its write hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_downgrade(lock: *const lm_percpu_rwsem_t) {
    // SAFETY: the caller set it up, and holds it.
    unsafe { inner(lock).downgrade() };
}

/// Locks it for reading, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_read_lock_at(lock: *const lm_percpu_rwsem_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_PERCPU_RWSEM) };
    inner.read_at(&site);
}

/// Locks it for writing, with hooks for this call (NULL: none) beside those of the lock.
///
/// # Safety
///
/// `lock` was set up; `site` is NULL, or stays what it is until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn lm_percpu_rwsem_write_lock_at(lock: *const lm_percpu_rwsem_t, site: *const lm_hooks_t) {
    // SAFETY: the caller set it up.
    let inner = unsafe { inner(lock) };
    // SAFETY: the caller keeps the hooks.
    let site = unsafe { Site::new(site, inner.instrument(), lock, lm_kind_t::LM_PERCPU_RWSEM) };
    inner.write_at(&site);
}
