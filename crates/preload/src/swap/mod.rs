//! The program's own pthread locks replaced by ours, each in place.
//!
//! A layer between the entries and libc: where [`choice`] says so, the slots of [`real`](crate::real) hold the functions of
//! this module, which look at the lock they are given. A lock is looked at once, when it is first used ([`choice`]): from then
//! on it is one of ours, or it is left alone and libc's functions are called as without this module. Metering, which lies
//! above, does not know the difference.
//!
//! ```text
//! pthread_mutex_t    0        8      12      16     20                       40
//!                    | owner  | count | users | kind | ours, if it fits       |      kind: glibc's, and a mark of ours
//! pthread_rwlock_t   0                                24  28       32  36     40       48      52
//!                    | ours, if it fits                |   | shared |   | mark | writer | flags |
//! pthread_spinlock_t 0   4
//!                    | mark and slot |
//! ```
//!
//! A lock of ours that does not fit lies in an [`arena`], and the object holds its slot there. What static initialisers
//! leave zero is a free lock of ours, and nothing that glibc's initialisers set is changed.

mod arena;
mod choice;
mod condition;
mod deadline;
mod mutex;
mod ours;
mod rwlock;
mod spin;
mod thread;

pub(crate) use mutex::is_contended as is_mutex_contended;
pub(crate) use rwlock::is_written as is_rwlock_written;

use choice::{MUTEX, PERCPU_RWSEM, RWLOCK, SPIN};
use ours::{PercpuRwSem, RwSem};

/// Called once, when the library is loaded. Where no lock is swapped, none of ours is ever used, and nothing is spent on them.
pub(crate) fn prepare() {
    if choice::is_any() {
        lockmeter_locks::preloaded::prepare();
    }
}

/// To be called in a forked child, before anything else runs there.
pub(crate) fn after_fork_in_child() {
    if choice::is_any() {
        lockmeter_locks::preloaded::after_fork_in_child();
    }
}

/// Waits and wakes-ups of ours make system calls, and pthread's functions leave `errno` alone.
#[inline]
fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: this thread's own, which lives as long as the thread.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { errno.read() };
    let result = call();
    // SAFETY: as above.
    unsafe { errno.write(before) };
    result
}

/// The function that is called in the place of libc's of this name; `None` if its locks are not swapped.
pub(crate) fn in_place_of(name: &str) -> Option<*mut ()> {
    let chosen = choice::chosen();
    macro_rules! rwlock_function {
        ($function:ident) => {
            if chosen & PERCPU_RWSEM != 0 {
                rwlock::$function::<PercpuRwSem> as *mut ()
            } else {
                rwlock::$function::<RwSem> as *mut ()
            }
        };
    }
    let (kind, function): (u32, *mut ()) = match name {
        "pthread_mutex_destroy" => (MUTEX, mutex::destroy as *mut ()),
        "pthread_mutex_lock" => (MUTEX, mutex::lock as *mut ()),
        "pthread_mutex_trylock" => (MUTEX, mutex::trylock as *mut ()),
        "pthread_mutex_timedlock" => (MUTEX, mutex::timedlock as *mut ()),
        "pthread_mutex_clocklock" => (MUTEX, mutex::clocklock as *mut ()),
        "pthread_mutex_unlock" => (MUTEX, mutex::unlock as *mut ()),
        "pthread_mutex_init" => (MUTEX, mutex::init as *mut ()),
        "mtx_init" => (MUTEX, mutex::init_c11 as *mut ()),
        "pthread_cond_wait" => (MUTEX, condition::wait as *mut ()),
        "pthread_cond_timedwait" => (MUTEX, condition::timedwait as *mut ()),
        "pthread_cond_clockwait" => (MUTEX, condition::clockwait as *mut ()),
        "pthread_cond_signal" => (MUTEX, condition::signal as *mut ()),
        "pthread_cond_broadcast" => (MUTEX, condition::broadcast as *mut ()),
        "pthread_rwlock_init" => (RWLOCK, rwlock_function!(init)),
        "pthread_rwlock_destroy" => (RWLOCK, rwlock_function!(destroy)),
        "pthread_rwlock_rdlock" => (RWLOCK, rwlock_function!(rdlock)),
        "pthread_rwlock_wrlock" => (RWLOCK, rwlock_function!(wrlock)),
        "pthread_rwlock_tryrdlock" => (RWLOCK, rwlock_function!(tryrdlock)),
        "pthread_rwlock_trywrlock" => (RWLOCK, rwlock_function!(trywrlock)),
        "pthread_rwlock_timedrdlock" => (RWLOCK, rwlock_function!(timedrdlock)),
        "pthread_rwlock_timedwrlock" => (RWLOCK, rwlock_function!(timedwrlock)),
        "pthread_rwlock_clockrdlock" => (RWLOCK, rwlock_function!(clockrdlock)),
        "pthread_rwlock_clockwrlock" => (RWLOCK, rwlock_function!(clockwrlock)),
        "pthread_rwlock_unlock" => (RWLOCK, rwlock_function!(unlock)),
        "pthread_spin_init" => (SPIN, spin::init as *mut ()),
        "pthread_spin_destroy" => (SPIN, spin::destroy as *mut ()),
        "pthread_spin_lock" => (SPIN, spin::lock as *mut ()),
        "pthread_spin_trylock" => (SPIN, spin::trylock as *mut ()),
        "pthread_spin_unlock" => (SPIN, spin::unlock as *mut ()),
        _ => return None,
    };
    (chosen & kind != 0).then_some(function)
}
