//! `pthread_cond_*` with swapped mutexes.
//!
//! glibc's wait gives the mutex back and takes it again by glibc's own means, which know nothing of ours. So a waiter brings
//! glibc a mutex that it knows: one of a few, chosen by the condition's address. It is held from before ours is given back
//! until glibc has the waiter in its queue, and the one that signals takes it too, so that no signal comes between.

use core::cell::UnsafeCell;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use libc::{CLOCK_REALTIME, EINVAL, pthread_cond_t, pthread_mutex_t, timespec};

use lockmeter_locks::preloaded::Generation;

use super::deadline::Deadline;
use super::mutex;
use crate::real::{is_known_clock, originals};

/// The mutex that glibc is given.
#[repr(align(128))]
struct StandIn {
    mutex: UnsafeCell<pthread_mutex_t>,
    /// Threads that wait, or are about to, for a condition of this one with a swapped mutex.
    waiters: AtomicU32,
    /// The process of those threads.
    generation: Generation,
}

// SAFETY: the mutex is used through glibc's functions alone.
unsafe impl Sync for StandIn {}

/// Enough that two conditions seldom share one, which would only make them wait for each other's signals for a moment.
const STAND_INS: usize = 256;

static STAND_IN: [StandIn; STAND_INS] = [const {
    StandIn {
        mutex: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
        waiters: AtomicU32::new(0),
        generation: Generation::first(),
    }
}; STAND_INS];

fn stand_in(condition: *const pthread_cond_t) -> &'static StandIn {
    // Conditions are 48 bytes long.
    let hash = (condition as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let stand_in = &STAND_IN[(hash >> 32) as usize % STAND_INS];
    // In a forked child those who waited, and the one that held it, are not there.
    stand_in.generation.enter(|| stand_in.forget());
    stand_in
}

impl StandIn {
    fn lock(&self) {
        // SAFETY: a static mutex, which no one else locks twice: this thread is in no wait.
        unsafe { originals::pthread_mutex_lock(self.mutex.get()) };
    }

    fn unlock(&self) {
        // SAFETY: locked by this thread.
        unsafe { originals::pthread_mutex_unlock(self.mutex.get()) };
    }

    fn forget(&self) {
        self.waiters.store(0, Relaxed);
        // SAFETY: no thread of this process has come to use it.
        unsafe { self.mutex.get().write(libc::PTHREAD_MUTEX_INITIALIZER) };
    }
}

/// What is put right when a wait ends, or the thread is cancelled in it.
#[repr(C)]
struct Waiting {
    mutex: *mut pthread_mutex_t,
    stand_in: &'static StandIn,
}

unsafe extern "C-unwind" fn wait_ends(waiting: *mut c_void) {
    // SAFETY: the wait's own, which lives until it has ended.
    let waiting = unsafe { &*waiting.cast::<Waiting>() };
    waiting.stand_in.unlock();
    waiting.stand_in.waiters.fetch_sub(1, Relaxed);
    // SAFETY: the caller's mutex, which it gave back when the wait began.
    unsafe { mutex::lock(waiting.mutex) };
    mutex::in_condition(waiting.mutex, |count| {
        count.fetch_sub(1, Relaxed);
    });
}

/// glibc's `struct _pthread_cleanup_buffer`.
type CleanupBuffer = MaybeUninit<[usize; 4]>;

unsafe extern "C-unwind" {
    /// What C's `pthread_cleanup_push` was before unwinding: the only way in which a frame without a destructor, and without
    /// `setjmp`, can clean up after a thread that is cancelled.
    fn _pthread_cleanup_push(
        buffer: *mut CleanupBuffer,
        routine: unsafe extern "C-unwind" fn(*mut c_void),
        argument: *mut c_void,
    );
    fn _pthread_cleanup_pop(buffer: *mut CleanupBuffer, execute: c_int);
}

/// Waits with `real`, which is given the mutex to wait with; with `left` if the mutex is left alone.
#[inline(never)]
unsafe fn wait_with(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    left: impl FnOnce() -> c_int,
    real: impl FnOnce(*mut pthread_mutex_t) -> c_int,
) -> c_int {
    let begun = mutex::in_condition(mutex, |count| {
        count.fetch_add(1, Relaxed);
    });
    if begun.is_none() {
        return left();
    }
    let mut waiting = Waiting { mutex, stand_in: stand_in(condition) };
    // Before the mutex is given back: the one that changes what is waited for, under the mutex, then sees that somebody waits.
    waiting.stand_in.waiters.fetch_add(1, AcqRel);
    waiting.stand_in.lock();
    // SAFETY: the caller's mutex, which it holds.
    let status = unsafe { mutex::unlock(mutex) };
    if status != 0 {
        // Not its owner: nothing was given back.
        waiting.stand_in.unlock();
        waiting.stand_in.waiters.fetch_sub(1, Relaxed);
        mutex::in_condition(mutex, |count| {
            count.fetch_sub(1, Relaxed);
        });
        return status;
    }
    let mut buffer = CleanupBuffer::uninit();
    // SAFETY: both live in this frame until they are popped, or until the thread has unwound through it.
    unsafe { _pthread_cleanup_push(&raw mut buffer, wait_ends, (&raw mut waiting).cast()) };
    let status = real(waiting.stand_in.mutex.get());
    // SAFETY: the buffer that was pushed last.
    unsafe { _pthread_cleanup_pop(&raw mut buffer, 1) };
    status
}

pub(super) unsafe extern "C-unwind" fn wait(condition: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: the caller's condition and mutex.
    unsafe {
        wait_with(
            condition,
            mutex,
            || originals::pthread_cond_wait(condition, mutex),
            |stand_in| originals::pthread_cond_wait(condition, stand_in),
        )
    }
}

pub(super) unsafe extern "C-unwind" fn timedwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's time.
    if unsafe { Deadline::read(CLOCK_REALTIME as usize, until) }.is_none() {
        return EINVAL;
    }
    // SAFETY: the caller's condition, mutex and time.
    unsafe {
        wait_with(
            condition,
            mutex,
            || originals::pthread_cond_timedwait(condition, mutex, until),
            |stand_in| originals::pthread_cond_timedwait(condition, stand_in, until),
        )
    }
}

pub(super) unsafe extern "C-unwind" fn clockwait(
    condition: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    clock: usize,
    until: *const timespec,
) -> c_int {
    // SAFETY: the caller's time.
    if !is_known_clock(clock) || unsafe { Deadline::read(clock, until) }.is_none() {
        return EINVAL;
    }
    // SAFETY: the caller's condition, mutex and time.
    unsafe {
        wait_with(
            condition,
            mutex,
            || originals::pthread_cond_clockwait(condition, mutex, clock, until),
            |stand_in| originals::pthread_cond_clockwait(condition, stand_in, clock, until),
        )
    }
}

/// Signals while no waiter is between giving its mutex back and glibc's queue. Where nobody waits with a swapped mutex there
/// is none: a waiter is counted before it gives the mutex back under which what it waits for was changed.
fn undisturbed(condition: *mut pthread_cond_t, signal: impl FnOnce() -> c_int) -> c_int {
    let stand_in = stand_in(condition);
    if stand_in.waiters.load(Acquire) == 0 {
        return signal();
    }
    stand_in.lock();
    let status = signal();
    stand_in.unlock();
    status
}

pub(super) unsafe extern "C-unwind" fn signal(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition.
    undisturbed(condition, || unsafe { originals::pthread_cond_signal(condition) })
}

pub(super) unsafe extern "C-unwind" fn broadcast(condition: *mut pthread_cond_t) -> c_int {
    // SAFETY: the caller's condition.
    undisturbed(condition, || unsafe { originals::pthread_cond_broadcast(condition) })
}
