//! `pthread_mutex_*` over our mutex.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use libc::{
    CLOCK_REALTIME, EAGAIN, EBUSY, EDEADLK, EINVAL, EPERM, ETIMEDOUT, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_NORMAL,
    PTHREAD_MUTEX_RECURSIVE, pthread_mutex_t, timespec,
};
use lockmeter_locks::RawMutex;

use super::arena::{Arena, Slots};
use super::choice::{self, Swap};
use super::deadline::Deadline;
use super::{keeping_errno, thread};
use crate::real::{is_known_clock, originals};

/// A swapped mutex, or one that is left alone; else as glibc's.
#[repr(C)]
struct Object {
    /// Of an owned mutex: who holds it, or 0. Only its own thread finds itself here.
    owner: AtomicUsize,
    /// How often that thread has it.
    count: AtomicU32,
    /// Threads that wait for a condition and will want it back.
    in_condition: AtomicU32,
    /// glibc's type and attributes, and a mark of ours.
    kind: AtomicU32,
    /// Where our lock lies.
    slot: AtomicU32,
    rest: [AtomicU32; 4],
}

const _: () = assert!(size_of::<Object>() == size_of::<pthread_mutex_t>());

/// Bits of `kind` that glibc uses: the type, and the attributes.
const TYPE: u32 = 0b11;
const ROBUST: u32 = 0x10;
const INHERITING: u32 = 0x20;
const PROTECTING: u32 = 0x40;
const SHARED: u32 = 0x80;

/// Swapped, and nobody asks who its owner is.
const PLAIN: u32 = 1 << 16;
/// Swapped, and recursive or error-checking.
const OWNED: u32 = 1 << 17;
/// Left alone.
const LEFT: u32 = 1 << 18;
/// glibc's destroy leaves a negative kind, with all of ours.
const DESTROYED: u32 = 1 << 31;
const MARKS: u32 = PLAIN | OWNED | LEFT | DESTROYED;

/// As many mutexes can be swapped at a time: 64 bytes of address space each.
const CAPACITY: usize = 1 << 20;
static ARENA: Arena<RawMutex, CAPACITY> = Arena::new();

/// What a mutex turned out to be.
enum Is<'a> {
    Plain(&'a RawMutex),
    Owned(&'a RawMutex),
    Left,
}

impl Object {
    /// # Safety
    /// A valid mutex that lives as long as the reference is used.
    #[inline(always)]
    unsafe fn of<'a>(mutex: *const pthread_mutex_t) -> &'a Object {
        // SAFETY: of the same size; all of it are words that may be shared. The rest is the caller's obligation.
        unsafe { &*mutex.cast() }
    }

    #[inline(always)]
    fn ours(&self) -> Option<&'static RawMutex> {
        ARENA.get(self.slot.load(Relaxed), core::ptr::from_ref(self) as usize)
    }

    /// Our lock, if it is swapped and nobody asks who its owner is.
    #[inline(always)]
    fn plain(&self) -> Option<&'static RawMutex> {
        if self.kind.load(Acquire) & MARKS == PLAIN { self.ours() } else { None }
    }

    /// What it is; decides it, if no thread has.
    #[cold]
    #[inline(never)]
    fn is(&self) -> Is<'static> {
        loop {
            let kind = self.kind.load(Acquire);
            let ours = match kind & MARKS {
                0 => None,
                PLAIN | OWNED => self.ours(),
                _ => return Is::Left,
            };
            match ours {
                Some(lock) if kind & PLAIN != 0 => return Is::Plain(lock),
                Some(lock) => return Is::Owned(lock),
                None => self.decide(kind),
            }
        }
    }

    /// Decides what becomes of it. `kind` has a mark only if the object is a copy of another, whose lock stays there.
    fn decide(&self, kind: u32) {
        let this = core::ptr::from_ref(self) as usize;
        let (mark, swap) = match self.reason_to_leave(kind) {
            Some(why) => (LEFT, why),
            None if !ARENA.assign(&self.slot, this) => (LEFT, Swap::LeftNoRoom),
            None if is_owned(kind) => (OWNED, Swap::Mutex),
            None => (PLAIN, Swap::Mutex),
        };
        // Behind the slot: a thread that sees the mark finds the slot.
        if self.kind.compare_exchange(kind, kind & !MARKS | mark, Release, Relaxed).is_ok() {
            choice::count(swap);
        }
    }

    fn reason_to_leave(&self, kind: u32) -> Option<Swap> {
        let reasons = [
            // First: glibc marks robust ones as shared, too.
            (ROBUST, Swap::LeftRobust),
            (SHARED, Swap::LeftShared),
            (INHERITING, Swap::LeftInheriting),
            (PROTECTING, Swap::LeftProtecting),
        ];
        let why = reasons.into_iter().find(|(bit, _)| kind & bit != 0).map(|(_, why)| why);
        // Held as glibc's own: taken past the entries.
        let is_used = kind & MARKS == 0 && (self.owner.load(Relaxed) != 0 || self.in_condition.load(Relaxed) != 0);
        why.or_else(|| is_used.then_some(Swap::LeftInUse))
            .or_else(|| choice::is_left_out(core::ptr::from_ref(self) as usize).then_some(Swap::LeftNotChosen))
    }
}

const fn is_owned(kind: u32) -> bool {
    !matches!((kind & TYPE) as c_int, PTHREAD_MUTEX_NORMAL | PTHREAD_MUTEX_ADAPTIVE_NP)
}

/// Whether somebody waits for a swapped mutex; `None` if it is not swapped.
pub(crate) fn is_contended(mutex: *const pthread_mutex_t) -> Option<bool> {
    // SAFETY: the caller's mutex, which it holds.
    let object = unsafe { Object::of(mutex) };
    // Which threads sleep is ours to know: those who were woken from a condition say so when they come back.
    (object.kind.load(Relaxed) & (PLAIN | OWNED | LEFT) & !LEFT != 0 && object.kind.load(Relaxed) & DESTROYED == 0)
        .then_some(true)
}

pub(super) unsafe extern "C-unwind" fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    if let Some(lock) = unsafe { Object::of(mutex) }.plain() {
        if !lock.try_lock() {
            keeping_errno(|| lock.lock());
        }
        return 0;
    }
    // SAFETY: the caller's mutex.
    unsafe { lock_other(mutex) }
}

#[cold]
unsafe fn lock_other(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let object = unsafe { Object::of(mutex) };
    match object.is() {
        Is::Plain(lock) => {
            keeping_errno(|| lock.lock());
            0
        }
        Is::Owned(lock) => object.lock_owned(|| {
            keeping_errno(|| lock.lock());
            0
        }),
        // SAFETY: the caller's mutex, which is glibc's.
        Is::Left => unsafe { originals::pthread_mutex_lock(mutex) },
    }
}

impl Object {
    fn is_mine(&self) -> bool {
        self.owner.load(Relaxed) == thread::id()
    }

    fn is_recursive(&self) -> bool {
        (self.kind.load(Relaxed) & TYPE) as c_int == PTHREAD_MUTEX_RECURSIVE
    }

    /// Takes a recursive one once more.
    fn lock_again(&self) -> c_int {
        match self.count.load(Relaxed).checked_add(1) {
            Some(count) => {
                self.count.store(count, Relaxed);
                0
            }
            None => EAGAIN,
        }
    }

    fn lock_owned(&self, wait: impl FnOnce() -> c_int) -> c_int {
        if self.is_mine() {
            return if self.is_recursive() { self.lock_again() } else { EDEADLK };
        }
        let status = wait();
        if status == 0 {
            self.own();
        }
        status
    }

    fn own(&self) {
        self.owner.store(thread::id(), Relaxed);
        self.count.store(1, Relaxed);
    }

    /// Gives it back once; `None` if that was not the last time, or not ours to do: with the status.
    fn disown(&self) -> Result<(), c_int> {
        if !self.is_mine() {
            return Err(EPERM);
        }
        let count = self.count.load(Relaxed).saturating_sub(1);
        self.count.store(count, Relaxed);
        if count > 0 {
            return Err(0);
        }
        self.owner.store(0, Relaxed);
        Ok(())
    }
}

pub(super) unsafe extern "C-unwind" fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    if let Some(lock) = unsafe { Object::of(mutex) }.plain() {
        return if lock.try_lock() { 0 } else { EBUSY };
    }
    // SAFETY: the caller's mutex.
    unsafe { trylock_other(mutex) }
}

#[cold]
unsafe fn trylock_other(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let object = unsafe { Object::of(mutex) };
    match object.is() {
        Is::Plain(lock) => {
            if lock.try_lock() {
                0
            } else {
                EBUSY
            }
        }
        Is::Owned(_) if object.is_mine() => {
            if object.is_recursive() {
                object.lock_again()
            } else {
                EBUSY
            }
        }
        Is::Owned(lock) => {
            if lock.try_lock() {
                object.own();
                0
            } else {
                EBUSY
            }
        }
        // SAFETY: the caller's mutex, which is glibc's.
        Is::Left => unsafe { originals::pthread_mutex_trylock(mutex) },
    }
}

pub(super) unsafe extern "C-unwind" fn timedlock(mutex: *mut pthread_mutex_t, until: *const timespec) -> c_int {
    // SAFETY: the caller's mutex and time.
    unsafe { lock_until(mutex, CLOCK_REALTIME as usize, until, || originals::pthread_mutex_timedlock(mutex, until)) }
}

pub(super) unsafe extern "C-unwind" fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: usize,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's mutex and time.
    unsafe { lock_until(mutex, clock, until, || originals::pthread_mutex_clocklock(mutex, clock, until)) }
}

/// # Safety
/// The mutex is valid, the time readable.
unsafe fn lock_until(
    mutex: *mut pthread_mutex_t,
    clock: usize,
    until: *const timespec,
    left: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's obligation.
    let object = unsafe { Object::of(mutex) };
    let is = object.is();
    if !matches!(is, Is::Left) && !is_known_clock(clock) {
        return EINVAL;
    }
    let wait = |lock: &RawMutex| {
        if lock.try_lock() {
            return 0;
        }
        // A free mutex is had whatever the time is.
        // SAFETY: the caller's obligation.
        let Some(deadline) = (unsafe { Deadline::read(clock, until) }) else { return EINVAL };
        let acquired = keeping_errno(|| deadline.wait(|left| lock.lock_for(left).is_ok()));
        if acquired { 0 } else { ETIMEDOUT }
    };
    match is {
        Is::Plain(lock) => wait(lock),
        Is::Owned(lock) => object.lock_owned(|| wait(lock)),
        Is::Left => left(),
    }
}

pub(super) unsafe extern "C-unwind" fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    if let Some(lock) = unsafe { Object::of(mutex) }.plain() {
        // SAFETY: the caller holds it, as pthread demands.
        unsafe { release(lock) };
        return 0;
    }
    // SAFETY: the caller's mutex.
    unsafe { unlock_other(mutex) }
}

/// # Safety
/// The caller holds it.
#[inline(always)]
unsafe fn release(lock: &RawMutex) {
    // In the owner's name: programs get away with unlocking in another thread than they lock, and pthread lets them. Once it is
    // free its memory may be another's, and waking somebody there may fail.
    // SAFETY: the caller's obligation.
    keeping_errno(|| unsafe { lock.unlock_for_owner() });
}

#[cold]
unsafe fn unlock_other(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let object = unsafe { Object::of(mutex) };
    match object.is() {
        Is::Plain(lock) if !lock.is_locked() => 0,
        Is::Plain(lock) => {
            // SAFETY: the caller holds it, as pthread demands.
            unsafe { release(lock) };
            0
        }
        Is::Owned(lock) => match object.disown() {
            Ok(()) => {
                // SAFETY: this thread held it.
                unsafe { release(lock) };
                0
            }
            Err(status) => status,
        },
        // SAFETY: the caller's mutex, which is glibc's.
        Is::Left => unsafe { originals::pthread_mutex_unlock(mutex) },
    }
}

/// A wait for a condition begins and ends: until then nobody may destroy the mutex. `None` if it is left alone.
pub(super) fn in_condition(mutex: *const pthread_mutex_t, change: impl FnOnce(&AtomicU32)) -> Option<()> {
    // SAFETY: the caller's mutex.
    let object = unsafe { Object::of(mutex) };
    match object.is() {
        Is::Left => None,
        Is::Plain(_) | Is::Owned(_) => {
            change(&object.in_condition);
            Some(())
        }
    }
}

/// glibc's initialisation leaves nothing of what was there, so a lock of ours would stay behind.
fn forget(mutex: *const pthread_mutex_t) {
    // SAFETY: the caller's mutex. It may be uninitialised: then these are any numbers, which name no slot of this object.
    let object = unsafe { Object::of(mutex) };
    ARENA.give_back(object.slot.load(Relaxed), mutex as usize);
}

/// Looks at a new mutex now, while its maker can be seen, if that counts.
fn made(mutex: *const pthread_mutex_t, status: c_int) -> c_int {
    if status == 0 && choice::is_selective() {
        // SAFETY: the caller's mutex, which was initialised.
        unsafe { Object::of(mutex) }.is();
    }
    status
}

pub(super) unsafe extern "C-unwind" fn init(mutex: *mut pthread_mutex_t, attributes: *const c_void) -> c_int {
    forget(mutex);
    // SAFETY: the caller's mutex and attributes.
    let status = unsafe { originals::pthread_mutex_init(mutex, attributes) };
    made(mutex, status)
}

pub(super) unsafe extern "C-unwind" fn init_c11(mutex: *mut pthread_mutex_t, kind: usize) -> c_int {
    forget(mutex);
    // SAFETY: the caller's mutex.
    let outcome = unsafe { originals::mtx_init(mutex, kind) };
    made(mutex, outcome)
}

pub(super) unsafe extern "C-unwind" fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's mutex.
    let object = unsafe { Object::of(mutex) };
    match object.is() {
        Is::Plain(lock) | Is::Owned(lock) => {
            if lock.is_locked() || object.in_condition.load(Relaxed) != 0 {
                return EBUSY;
            }
            ARENA.give_back(object.slot.swap(0, Relaxed), mutex as usize);
            object.owner.store(0, Relaxed);
            object.count.store(0, Relaxed);
        }
        Is::Left => {}
    }
    // SAFETY: the caller's mutex, which is as free as glibc's.
    unsafe { originals::pthread_mutex_destroy(mutex) }
}
