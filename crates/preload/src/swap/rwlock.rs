//! `pthread_rwlock_*` over our reader-writer semaphores. Which one, is settled when the functions are put in place.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{
    AtomicI32, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use core::time::Duration;

use libc::{CLOCK_REALTIME, EBUSY, EDEADLK, EINVAL, ETIMEDOUT, pthread_rwlock_t, timespec};

use super::arena::Slots;
use super::choice::{self, Swap};
use super::deadline::Deadline;
use super::ours::Shared;
use super::{keeping_errno, thread};
use crate::real::{is_known_clock, originals};

/// A swapped lock, or one that is left alone; else as glibc's.
#[repr(C)]
struct Object {
    /// Where our lock lies.
    slot: AtomicU32,
    rest: [AtomicU32; 6],
    /// Not 0: shared between processes.
    shared: AtomicI32,
    spare: AtomicU32,
    mark: AtomicU32,
    /// The thread that has it for writing, or 0. Only its own thread finds itself here.
    writer: AtomicUsize,
    /// Whether writers are preferred.
    flags: AtomicU32,
    padding: u32,
}

const _: () = assert!(size_of::<Object>() == size_of::<pthread_rwlock_t>());
const _: () = assert!(core::mem::offset_of!(Object, shared) == 28 && core::mem::offset_of!(Object, flags) == 48);

/// Of glibc's kinds the only one whose readers may not come twice.
const PREFER_WRITER_NONRECURSIVE: u32 = 2;

// Marks: in a word that glibc leaves zero, for it compares the others as a whole.
const UNDECIDED: u32 = 0;
const SWAPPED: u32 = 1;
const LEFT: u32 = 2;

/// What a lock turned out to be.
enum Is<L: 'static> {
    Swapped(&'static L),
    Left,
}

impl Object {
    /// # Safety
    /// A valid lock that lives as long as the reference is used.
    #[inline(always)]
    unsafe fn of<'a>(lock: *const pthread_rwlock_t) -> &'a Object {
        // SAFETY: of the same size; all of it are words that may be shared. The rest is the caller's obligation.
        unsafe { &*lock.cast() }
    }

    fn address(&self) -> usize {
        core::ptr::from_ref(self) as usize
    }

    /// Our lock, if it is swapped.
    #[inline(always)]
    fn swapped<L: Shared>(&self) -> Option<&'static L> {
        match self.mark.load(Acquire) {
            SWAPPED => L::arena().get(self.slot.load(Relaxed), self.address()),
            _ => None,
        }
    }

    /// What it is; decides it, if no thread has.
    #[cold]
    #[inline(never)]
    fn is<L: Shared>(&self) -> Is<L> {
        loop {
            match self.mark.load(Acquire) {
                LEFT => return Is::Left,
                mark => match self.swapped() {
                    Some(lock) => return Is::Swapped(lock),
                    // A swapped one that has no lock is a copy of another.
                    None => self.decide::<L>(mark),
                },
            }
        }
    }

    fn decide<L: Shared>(&self, mark: u32) {
        let why = if self.shared.load(Relaxed) != 0 {
            Some(Swap::LeftShared)
        } else if mark == UNDECIDED && self.is_used_by_glibc::<L>() {
            Some(Swap::LeftInUse)
        } else if choice::is_left_out(self.address()) {
            Some(Swap::LeftNotChosen)
        } else if !L::arena().assign(&self.slot, self.address()) {
            Some(Swap::LeftNoRoom)
        } else {
            None
        };
        let decided = if why.is_some() { LEFT } else { SWAPPED };
        // Behind the slot: a thread that sees the mark finds the slot.
        if self.mark.compare_exchange(mark, decided, Release, Relaxed).is_ok() {
            choice::count(why.unwrap_or(L::SWAP));
        }
    }

    /// Locked past the entries. Another thread may be assigning our lock here just now.
    fn is_used_by_glibc<L: Shared>(&self) -> bool {
        let slot = self.slot.load(Acquire);
        (slot != 0 && L::arena().get(slot, self.address()).is_none())
            || self.rest.iter().any(|word| word.load(Relaxed) != 0)
    }

    #[inline(always)]
    fn is_mine(&self) -> bool {
        self.writer.load(Relaxed) == thread::identity()
    }

    /// Whether a reader must not wait behind writers: it may be a reader already.
    fn may_read_again(&self) -> bool {
        self.flags.load(Relaxed) != PREFER_WRITER_NONRECURSIVE && thread::may_read()
    }

    fn read_slow<L: Shared>(&self, lock: &L, deadline: Option<Deadline>) -> c_int {
        if self.is_mine() {
            return EDEADLK;
        }
        let again = self.may_read_again();
        let acquired = keeping_errno(|| {
            // Who holds it already cannot fail here.
            (again && lock.try_lock_shared_recursive())
                || match deadline {
                    None => {
                        lock.lock_shared();
                        true
                    }
                    Some(deadline) => deadline.wait(|left: Duration| lock.try_lock_shared_for(left)),
                }
        });
        if !acquired {
            return ETIMEDOUT;
        }
        thread::reads_more();
        0
    }

    fn write_slow<L: Shared>(&self, lock: &L, deadline: Option<Deadline>) -> c_int {
        if self.is_mine() {
            return EDEADLK;
        }
        let acquired = keeping_errno(|| match deadline {
            None => {
                lock.lock_exclusive();
                true
            }
            Some(deadline) => deadline.wait(|left: Duration| lock.try_lock_exclusive_for(left)),
        });
        if !acquired {
            return ETIMEDOUT;
        }
        self.writer.store(thread::identity(), Relaxed);
        0
    }

    #[inline(always)]
    fn try_read<L: Shared>(&self, lock: &L) -> bool {
        let read = lock.try_lock_shared();
        if read {
            thread::reads_more();
        }
        read
    }

    #[inline(always)]
    fn try_write<L: Shared>(&self, lock: &L) -> bool {
        let written = lock.try_lock_exclusive();
        if written {
            self.writer.store(thread::identity(), Relaxed);
        }
        written
    }

    #[inline(always)]
    fn release<L: Shared>(&self, lock: &L) {
        // Once it is free its memory may be another's, and waking somebody there may fail.
        if self.is_mine() {
            self.writer.store(0, Relaxed);
            // SAFETY: this thread has it for writing.
            keeping_errno(|| unsafe { lock.unlock_exclusive() });
        } else {
            thread::reads_less();
            // SAFETY: the caller has it, as pthread demands, and not for writing.
            keeping_errno(|| unsafe { lock.unlock_shared() });
        }
    }
}

/// Whether a swapped lock, which the caller holds, is held for writing; `None` if it is not swapped.
pub(crate) fn is_written(lock: *const pthread_rwlock_t) -> Option<bool> {
    if choice::chosen() & choice::RWLOCK == 0 {
        return None;
    }
    // SAFETY: the caller's lock, which it holds.
    let object = unsafe { Object::of(lock) };
    (object.mark.load(Relaxed) == SWAPPED).then(|| object.is_mine())
}

pub(super) unsafe extern "C-unwind" fn rdlock<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    if let Some(ours) = object.swapped::<L>()
        && object.try_read(ours)
    {
        return 0;
    }
    match object.is::<L>() {
        Is::Swapped(ours) => object.read_slow(ours, None),
        // SAFETY: the caller's lock, which is glibc's.
        Is::Left => unsafe { originals::pthread_rwlock_rdlock(lock) },
    }
}

pub(super) unsafe extern "C-unwind" fn wrlock<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    if let Some(ours) = object.swapped::<L>()
        && object.try_write(ours)
    {
        return 0;
    }
    match object.is::<L>() {
        Is::Swapped(ours) => object.write_slow(ours, None),
        // SAFETY: the caller's lock, which is glibc's.
        Is::Left => unsafe { originals::pthread_rwlock_wrlock(lock) },
    }
}

pub(super) unsafe extern "C-unwind" fn tryrdlock<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    let Some(ours) = object.swapped::<L>().or_else(|| object.is().ours()) else {
        // SAFETY: the caller's lock, which is glibc's.
        return unsafe { originals::pthread_rwlock_tryrdlock(lock) };
    };
    if object.try_read(ours) { 0 } else { EBUSY }
}

pub(super) unsafe extern "C-unwind" fn trywrlock<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    let Some(ours) = object.swapped::<L>().or_else(|| object.is().ours()) else {
        // SAFETY: the caller's lock, which is glibc's.
        return unsafe { originals::pthread_rwlock_trywrlock(lock) };
    };
    if object.try_write(ours) { 0 } else { EBUSY }
}

impl<L> Is<L> {
    fn ours(self) -> Option<&'static L> {
        match self {
            Self::Swapped(lock) => Some(lock),
            Self::Left => None,
        }
    }
}

/// # Safety
/// The lock is valid, the time readable.
unsafe fn until<L: Shared>(
    lock: *mut pthread_rwlock_t,
    clock: usize,
    until: *const timespec,
    attempt: impl FnOnce(&Object, &L, Deadline) -> c_int,
    left: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's obligation.
    let object = unsafe { Object::of(lock) };
    let Is::Swapped(ours) = object.is::<L>() else { return left() };
    if !is_known_clock(clock) {
        return EINVAL;
    }
    // SAFETY: the caller's obligation.
    let Some(deadline) = (unsafe { Deadline::read(clock, until) }) else { return EINVAL };
    attempt(object, ours, deadline)
}

fn read_until<L: Shared>(object: &Object, lock: &L, deadline: Deadline) -> c_int {
    if object.try_read(lock) { 0 } else { object.read_slow(lock, Some(deadline)) }
}

fn write_until<L: Shared>(object: &Object, lock: &L, deadline: Deadline) -> c_int {
    if object.try_write(lock) { 0 } else { object.write_slow(lock, Some(deadline)) }
}

pub(super) unsafe extern "C-unwind" fn timedrdlock<L: Shared>(
    lock: *mut pthread_rwlock_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's lock and time, with a lock that is glibc's.
    let left = || unsafe { originals::pthread_rwlock_timedrdlock(lock, time) };
    // SAFETY: the caller's lock and time.
    unsafe { until::<L>(lock, CLOCK_REALTIME as usize, time, read_until, left) }
}

pub(super) unsafe extern "C-unwind" fn timedwrlock<L: Shared>(
    lock: *mut pthread_rwlock_t,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's lock and time, with a lock that is glibc's.
    let left = || unsafe { originals::pthread_rwlock_timedwrlock(lock, time) };
    // SAFETY: the caller's lock and time.
    unsafe { until::<L>(lock, CLOCK_REALTIME as usize, time, write_until, left) }
}

pub(super) unsafe extern "C-unwind" fn clockrdlock<L: Shared>(
    lock: *mut pthread_rwlock_t,
    clock: usize,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's lock and time, with a lock that is glibc's.
    let left = || unsafe { originals::pthread_rwlock_clockrdlock(lock, clock, time) };
    // SAFETY: the caller's lock and time.
    unsafe { until::<L>(lock, clock, time, read_until, left) }
}

pub(super) unsafe extern "C-unwind" fn clockwrlock<L: Shared>(
    lock: *mut pthread_rwlock_t,
    clock: usize,
    time: *const timespec,
) -> c_int {
    // SAFETY: the caller's lock and time, with a lock that is glibc's.
    let left = || unsafe { originals::pthread_rwlock_clockwrlock(lock, clock, time) };
    // SAFETY: the caller's lock and time.
    unsafe { until::<L>(lock, clock, time, write_until, left) }
}

pub(super) unsafe extern "C-unwind" fn unlock<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    if let Some(ours) = object.swapped::<L>() {
        object.release(ours);
        return 0;
    }
    // SAFETY: the caller's lock. It is glibc's, or nobody has it: then glibc says what is to be said.
    unsafe { originals::pthread_rwlock_unlock(lock) }
}

/// Gives our lock back, if the object has one.
fn forget<L: Shared>(object: &Object) {
    L::arena().give_back(object.slot.load(Relaxed), object.address());
}

pub(super) unsafe extern "C-unwind" fn init<L: Shared>(
    lock: *mut pthread_rwlock_t,
    attributes: *const c_void,
) -> c_int {
    // glibc's initialisation leaves nothing of what was there.
    // SAFETY: the caller's lock. It may be uninitialised: then these are any numbers, which name no slot of this object.
    forget::<L>(unsafe { Object::of(lock) });
    // SAFETY: the caller's lock and attributes.
    let status = unsafe { originals::pthread_rwlock_init(lock, attributes) };
    if status == 0 && choice::is_selective() {
        // Now, while its maker can be seen.
        // SAFETY: the caller's lock, which was initialised.
        unsafe { Object::of(lock) }.is::<L>();
    }
    status
}

pub(super) unsafe extern "C-unwind" fn destroy<L: Shared>(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: the caller's lock.
    let object = unsafe { Object::of(lock) };
    if object.mark.load(Acquire) == SWAPPED {
        // glibc's does nothing at all, so the object stays usable: as if it was never used.
        forget::<L>(object);
        object.slot.store(0, Relaxed);
        object.writer.store(0, Relaxed);
        object.mark.store(UNDECIDED, Release);
    }
    // SAFETY: the caller's lock, which is as free as glibc's.
    unsafe { originals::pthread_rwlock_destroy(lock) }
}
