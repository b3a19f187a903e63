//! `pthread_mutex_*`.

use core::ffi::{c_int, c_void};
use core::mem::offset_of;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use libc::{EBUSY, EOWNERDEAD, pthread_mutex_t, timespec};
use lockmeter_meter::layout::Thread;
use lockmeter_meter::writer::{self, OFF, Registers, WAIT, Wanted, kind, mode};

use crate::entry::{interpose, interpose_mutex_lock, interpose_mutex_unlock};
use crate::outcome::outcome;
use crate::{glibc_mutex, real, swap};

interpose!(pthread_mutex_init, 2, init);
interpose!(pthread_mutex_destroy, 1, destroy);
interpose_mutex_lock!(pthread_mutex_lock, slow: lock, real: real::slots::pthread_mutex_lock);
interpose_mutex_lock!(pthread_mutex_trylock, slow: trylock, real: real::slots::pthread_mutex_trylock);
interpose!(pthread_mutex_timedlock, 2, timedlock);
interpose!(pthread_mutex_clocklock, 3, clocklock);
interpose_mutex_unlock!(
    pthread_mutex_unlock,
    slow: unlock,
    real: real::slots::pthread_mutex_unlock,
    timed: unlock_timed,
);

pub(crate) fn wanted(mutex: *const pthread_mutex_t) -> Wanted {
    Wanted { lock: mutex as usize, kind: kind::MUTEX, mode: mode::EXCLUSIVE }
}

/// Whether the caller has the mutex now. The owner of a robust one may have died.
const fn has_it(status: c_int) -> bool {
    status == 0 || status == EOWNERDEAD
}

/// The begin of glibc's mutex, as static initialisers in every program have it.
#[repr(C)]
pub(crate) struct Layout {
    pub(crate) word: AtomicU32,
    count: AtomicU32,
    pub(crate) owner: AtomicU32,
    pub(crate) users: AtomicU32,
    pub(crate) kind: AtomicU32,
}

impl Layout {
    /// In their order.
    pub(crate) fn fields(&self) -> [u32; 5] {
        [&self.word, &self.count, &self.owner, &self.users, &self.kind].map(|field| field.load(Relaxed))
    }
}

pub(crate) const OWNER_AT: usize = offset_of!(Layout, owner);
pub(crate) const USERS_AT: usize = offset_of!(Layout, users);
pub(crate) const KIND_AT: usize = offset_of!(Layout, kind);

/// The lower bits of [`Layout::kind`].
const KIND: u32 = 3;
const RECURSIVE: u32 = 1;
/// Bits of [`Layout::kind`]: robust, priority-inheriting, priority-protecting.
const SPECIAL: u32 = 0x70;
const ROBUST: u32 = 0x10;
const PROTECTING: u32 = 0x40;
/// Bit of [`Layout::kind`]: processes may share it. All robust ones have it.
pub(crate) const SHARED: u32 = 0x80;
/// The entries leave a mutex with one of these bits to [`lock`]: the adaptive kind, where they do not take it themselves, too.
pub(crate) const LEFT_TO_SLOW_PATH: u32 = RECURSIVE | SPECIAL | SHARED;

/// Whether processes may share this mutex.
///
/// # Safety
/// The mutex is valid.
unsafe fn is_shared(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: a valid mutex begins like this.
    unsafe { &(*mutex.cast::<Layout>()).kind }.load(Relaxed) & SHARED != 0
}

/// Whether the mutex is robust, priority-inheriting or priority-protecting. Such mutexes are never tried first: glibc's
/// `pthread_mutex_trylock` leaves an unrecoverable robust mutex locked, and fails once on a protecting one where a second try
/// succeeds.
///
/// # Safety
/// The mutex is valid.
unsafe fn is_special(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: a valid mutex begins like this.
    unsafe { &(*mutex.cast::<Layout>()).kind }.load(Relaxed) & SPECIAL != 0
}

/// Whether another thread holds this mutex, which [`is_special`].
///
/// # Safety
/// The mutex is valid.
unsafe fn is_held_by_another(mutex: *const pthread_mutex_t) -> bool {
    /// Below the bits for waiters and a dead owner; below those for the ceiling.
    const OWNER: u32 = 0x3fff_ffff;
    const PROTECTED: u32 = 0x0007_ffff;
    // SAFETY: a valid mutex begins like this.
    let layout = unsafe { &*mutex.cast::<Layout>() };
    let is_protecting = layout.kind.load(Relaxed) & PROTECTING != 0;
    let held_bits = if is_protecting { PROTECTED } else { OWNER };
    let is_held = layout.word.load(Relaxed) & held_bits != 0;
    is_held && layout.owner.load(Relaxed) != writer::thread_id()
}

/// Whether glibc's state word says that a thread sleeps for the mutex.
///
/// # Safety
/// The mutex is valid.
pub(crate) unsafe fn is_contended(mutex: *const pthread_mutex_t) -> bool {
    const HELD_WITH_WAITERS: u32 = 2;
    /// A bit of robust and priority-inheriting ones.
    const WAITERS: u32 = 0x8000_0000;
    if let Some(is_contended) = swap::is_mutex_contended(mutex) {
        return is_contended;
    }
    // SAFETY: a valid mutex begins like this.
    let word = unsafe { &(*mutex.cast::<Layout>()).word }.load(Relaxed);
    let has_waiters_bit = word & WAITERS != 0;
    word == HELD_WITH_WAITERS || has_waiters_bit
}

/// The thread that holds the mutex; 0: none, or a swapped one, which does not tell.
///
/// # Safety
/// The mutex is valid.
unsafe fn holder_of(mutex: *const pthread_mutex_t) -> u32 {
    if swap::is_mutex_contended(mutex).is_some() {
        return 0;
    }
    // SAFETY: a valid mutex begins like this.
    unsafe { &(*mutex.cast::<Layout>()).owner }.load(Relaxed)
}

/// Whether a thread may acquire the mutex again while it holds it.
///
/// # Safety
/// The mutex is valid.
pub(crate) unsafe fn nests(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: a valid mutex begins like this.
    let layout = unsafe { &*mutex.cast::<Layout>() };
    layout.kind.load(Relaxed) & KIND == RECURSIVE
}

/// Whether the thread that has the mutex has acquired it more than once.
///
/// # Safety
/// The mutex is valid.
unsafe fn is_held_twice(mutex: *const pthread_mutex_t) -> bool {
    // SAFETY: the caller's mutex, which begins like this unless it is swapped.
    unsafe {
        nests(mutex) && swap::is_mutex_contended(mutex).is_none() && (*mutex.cast::<Layout>()).count.load(Relaxed) > 1
    }
}

/// Tries first; waits with `wait` if that fails.
#[inline(always)]
unsafe fn acquire(mutex: *mut pthread_mutex_t, sp: *const usize, fp: usize, wait: impl FnOnce() -> c_int) -> c_int {
    let level = writer::level();
    if level == OFF {
        return wait();
    }
    // SAFETY: the caller's mutex.
    if unsafe { is_shared(mutex) } {
        // SAFETY: the entry's return address.
        writer::may_be_shared(wanted(mutex), unsafe { *sp } as u64);
    }
    // SAFETY: the caller's mutex.
    let tried = match unsafe { is_special(mutex) } {
        // SAFETY: the caller's mutex.
        false => unsafe { real::pthread_mutex_trylock(mutex) },
        // SAFETY: the caller's mutex.
        true if unsafe { is_held_by_another(mutex) } => EBUSY,
        // It is free, or the thread's own.
        true => return acquired(level, mutex, sp, wait()),
    };
    let status = match tried {
        0 => 0,
        // SAFETY: the entry's registers, whose function has not returned.
        _ => contended(mutex, tried, unsafe { Registers::at_entry(sp, fp) }, wait),
    };
    acquired(level, mutex, sp, status)
}

#[inline(always)]
fn acquired(level: u32, mutex: *mut pthread_mutex_t, sp: *const usize, status: c_int) -> c_int {
    let counts_holds = level > WAIT;
    if counts_holds && has_it(status) {
        // SAFETY: the caller's mutex, which it holds, and the entry's return address.
        unsafe { note_acquired(mutex, *sp as u64) };
    }
    status
}

/// # Safety
/// The caller's mutex, which it holds.
#[inline]
unsafe fn note_acquired(mutex: *const pthread_mutex_t, site: u64) {
    // SAFETY: the caller's obligation.
    writer::acquired(wanted(mutex), unsafe { nests(mutex) }, site);
    // SAFETY: a valid mutex begins like this.
    if unsafe { &(*mutex.cast::<Layout>()).kind }.load(Relaxed) & ROBUST != 0 {
        writer::ends_with_owner(mutex as usize);
    }
}

/// The entry's own try had the mutex, and its hold is to be timed.
pub(crate) extern "C" fn acquired_timed(mutex: *mut pthread_mutex_t, site: u64) -> c_int {
    writer::acquired_timed(wanted(mutex), site);
    0
}

/// The entry found that this mutex is the one that the thread acquired last, and that it times the hold. The table is the thread's own.
pub(crate) unsafe extern "C-unwind" fn unlock_timed(
    mutex: *mut pthread_mutex_t,
    sp: *const usize,
    fp: usize,
    table: &'static Thread,
    waiters: u64,
) -> c_int {
    // SAFETY: the caller's mutex, and our own entry, which has looked at the table.
    if unsafe { release_timed(mutex, table, waiters) } {
        return 0;
    }
    // SAFETY: as above.
    unsafe { unlock(mutex, sp, fp) }
}

/// Releases a mutex, the one that the thread acquired last and of which it times the hold, with few instructions; `false` and nothing
/// done if it takes more.
///
/// # Safety
/// As for [`unlock`]; the table is this thread's.
#[inline(always)]
pub(crate) unsafe fn release_timed(mutex: *mut pthread_mutex_t, table: &'static Thread, waiters: u64) -> bool {
    // SAFETY: a valid mutex begins like this.
    let layout = unsafe { &*mutex.cast::<Layout>() };
    glibc_mutex::is_plain(layout)
        && writer::end_newest_hold(table, wanted(mutex), waiters, || glibc_mutex::release_plain(layout))
}

/// The entry released the mutex, whose hold the thread does not time.
pub(crate) extern "C" fn count_untimed(mutex: *mut pthread_mutex_t, site: u64) -> c_int {
    writer::count_untimed(wanted(mutex), site);
    0
}

#[cold]
#[inline(never)]
fn contended(mutex: *mut pthread_mutex_t, tried: c_int, registers: Registers, wait: impl FnOnce() -> c_int) -> c_int {
    match tried {
        EBUSY => {
            // SAFETY: the caller's mutex.
            let holder = unsafe { holder_of(mutex) };
            let waiting = writer::begin_wait_for(wanted(mutex), holder, &registers);
            let status = wait();
            // SAFETY: the caller's mutex.
            writer::end_wait(waiting, outcome(has_it(status), status, || unsafe { holder_of(mutex) }));
            status
        }
        // What is wrong is for the real function to say.
        _ => wait(),
    }
}

pub(crate) unsafe extern "C-unwind" fn lock(mutex: *mut pthread_mutex_t, sp: *const usize, fp: usize) -> c_int {
    // SAFETY: the caller's mutex and our own entry.
    unsafe { acquire(mutex, sp, fp, || real::pthread_mutex_lock(mutex)) }
}

pub(crate) unsafe extern "C-unwind" fn timedlock(
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // SAFETY: the caller's mutex and time, and our own entry.
    unsafe { acquire(mutex, sp, fp, || real::pthread_mutex_timedlock(mutex, until)) }
}

unsafe extern "C-unwind" fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: usize,
    until: *const timespec,
    sp: *const usize,
    fp: usize,
) -> c_int {
    // Glibc looks at the clock before it tries to take the mutex.
    if !real::is_known_clock(clock) {
        // SAFETY: the caller's mutex and time.
        return unsafe { real::pthread_mutex_clocklock(mutex, clock, until) };
    }
    // SAFETY: the caller's mutex and time, and our own entry.
    unsafe { acquire(mutex, sp, fp, || real::pthread_mutex_clocklock(mutex, clock, until)) }
}

pub(crate) unsafe extern "C-unwind" fn trylock(mutex: *mut pthread_mutex_t, sp: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let status = unsafe { real::pthread_mutex_trylock(mutex) };
    let counts_holds = writer::level() > WAIT;
    if counts_holds && has_it(status) {
        // SAFETY: the caller's mutex.
        if unsafe { is_shared(mutex) } {
            // SAFETY: the entry's return address.
            writer::may_be_shared(wanted(mutex), unsafe { *sp } as u64);
        }
        // SAFETY: the caller's mutex, which it holds, and the entry's return address.
        unsafe { note_acquired(mutex, *sp as u64) };
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn unlock(mutex: *mut pthread_mutex_t, sp: *const usize, fp: usize) -> c_int {
    let level = writer::level();
    if level == OFF {
        // SAFETY: the caller's mutex.
        return unsafe { real::pthread_mutex_unlock(mutex) };
    }
    // SAFETY: our own entry, which has not returned.
    let registers = unsafe { Registers::at_entry(sp, fp) };
    // SAFETY: the caller's mutex, which it holds.
    let is_contended = || unsafe { is_contended(mutex) };
    // SAFETY: as above.
    let ended = match unsafe { is_held_twice(mutex) } {
        true => writer::begin_inner_release(level, wanted(mutex), &registers),
        false => writer::begin_release(level, wanted(mutex), &registers, is_contended),
    };
    let Some(ended) = ended else {
        // SAFETY: the caller's mutex.
        return unsafe { real::pthread_mutex_unlock(mutex) };
    };
    // SAFETY: a valid mutex begins like this.
    let layout = unsafe { &*mutex.cast::<Layout>() };
    let status = if glibc_mutex::is_plain(layout) {
        glibc_mutex::release_plain(layout);
        0
    } else {
        // SAFETY: the caller's mutex.
        unsafe { real::pthread_mutex_unlock(mutex) }
    };
    writer::released(&ended, status == 0);
    status
}

pub(crate) unsafe extern "C-unwind" fn init(
    mutex: *mut pthread_mutex_t,
    attributes: *const c_void,
    sp: *const usize,
    fp: usize,
) -> c_int {
    if !attributes.is_null() {
        // SAFETY: the caller's mutex and attributes; our own entry, which has not returned.
        return unsafe { init_with_attributes(mutex, attributes, Registers::at_entry(sp, fp)) };
    }
    // It is private, and to make it never fails: noted first, nothing has to be kept over the call.
    if writer::level() != OFF {
        // SAFETY: our own entry, which has not returned.
        writer::lock_created(mutex as usize, kind::MUTEX, unsafe { Registers::at_entry(sp, fp) });
    }
    // SAFETY: the caller's mutex.
    unsafe { real::pthread_mutex_init(mutex, attributes) }
}

#[cold]
#[inline(never)]
unsafe fn init_with_attributes(mutex: *mut pthread_mutex_t, attributes: *const c_void, registers: Registers) -> c_int {
    // SAFETY: the caller's mutex and attributes.
    let status = unsafe { real::pthread_mutex_init(mutex, attributes) };
    let is_new = status == 0;
    if is_new && writer::level() != OFF {
        // SAFETY: the caller's mutex.
        if unsafe { is_shared(mutex) } {
            writer::shared_lock_created(wanted(mutex), &registers);
        } else {
            writer::lock_created(mutex as usize, kind::MUTEX, registers);
        }
    }
    status
}

pub(crate) unsafe extern "C-unwind" fn destroy(mutex: *mut pthread_mutex_t, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's mutex.
    let status = unsafe { real::pthread_mutex_destroy(mutex) };
    let is_gone = status == 0;
    if is_gone && writer::level() != OFF {
        writer::lock_destroyed(mutex as usize);
    }
    status
}
