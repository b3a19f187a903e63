//! The functions that ours take the place of.
//!
//! Each is a pointer that first leads to a function that looks the real one up, so that locks taken before this library's
//! constructor ran (in the constructors of others) work, too. The call of `dlsym` must not be a tail call: it tells "next"
//! by the address it would return to.
//!
//! There are two tables: `originals` holds what was looked up, `slots` what is called, which is the same unless the program's
//! locks are swapped (see [`swap`](crate::swap)).

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::mem::transmute;
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The next definition of a function; ends the process if there is none, for then there is nothing to call.
#[cold]
#[inline(never)]
fn next(name: &CStr, version: Option<&CStr>) -> *mut () {
    let found = match version {
        // SAFETY: both end with a NUL.
        Some(version) => unsafe { libc::dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) },
        None => core::ptr::null_mut(),
    };
    let found = if found.is_null() {
        // SAFETY: ends with a NUL.
        unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
    } else {
        found
    };
    black_box(found).cast()
}

/// `$name` calls the real function of the same name.
macro_rules! real {
    ($($name:ident $(@ $version:literal)? ($($argument:ident: $type:ty),*);)+) => {
        $(
            #[inline]
            pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                // SAFETY: the slot holds a function of this type.
                let function = unsafe { transmute::<*mut (), Function>(slots::$name.load(Relaxed)) };
                // SAFETY: the caller keeps to the function's contract.
                unsafe { function($($argument),*) }
            }
        )+

        #[allow(non_upper_case_globals)]
        pub(crate) mod slots {
            use super::*;
            $(
                pub(crate) static $name: AtomicPtr<()> = AtomicPtr::new(first::$name as *mut ());
            )+
        }

        /// What is called for a lock that is not swapped although others are.
        #[allow(dead_code, reason = "what has no swap has no use for its original")]
        pub(crate) mod originals {
            use super::*;
            $(
                #[inline]
                pub(crate) unsafe fn $name($($argument: $type),*) -> c_int {
                    type Function = unsafe extern "C-unwind" fn($($type),*) -> c_int;
                    let mut function = original_slots::$name.load(Relaxed);
                    if function.is_null() {
                        if !resolve::$name() {
                            return libc::ENOSYS;
                        }
                        function = original_slots::$name.load(Relaxed);
                    }
                    // SAFETY: the slot holds a function of this type.
                    let function = unsafe { transmute::<*mut (), Function>(function) };
                    // SAFETY: the caller keeps to the function's contract.
                    unsafe { function($($argument),*) }
                }
            )+
        }

        #[allow(non_upper_case_globals)]
        mod original_slots {
            use super::*;
            $(
                // With what else is written when the library is loaded.
                #[unsafe(link_section = ".data.lockmeter_start")]
                pub(super) static $name: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
            )+
        }

        /// What the slots hold at first.
        mod first {
            use super::*;
            $(
                pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                    if resolve::$name() {
                        // SAFETY: the slot now holds the real function; the caller keeps to its contract.
                        unsafe { super::$name($($argument),*) }
                    } else {
                        libc::ENOSYS
                    }
                }
            )+
        }

        mod resolve {
            use super::*;
            $(
                pub(super) fn $name() -> bool {
                    #[allow(unused_mut, unused_assignments)]
                    let mut version: Option<&CStr> = None;
                    $( version = Some($version); )?
                    // SAFETY: the literal ends with the NUL that `concat!` gives it.
                    let name = unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) };
                    let found = next(name, version);
                    if !found.is_null() {
                        original_slots::$name.store(found, Relaxed);
                        slots::$name.store(crate::swap::in_place_of(stringify!($name)).unwrap_or(found), Relaxed);
                    }
                    !found.is_null()
                }
            )+
        }

        /// Looks all functions up. One that this libc lacks keeps saying ENOSYS.
        pub(crate) fn resolve_all() {
            $( resolve::$name(); )+
        }
    };
}

/// Whether pthread knows a clock. It comes as a whole register, of which the lower half counts.
pub(crate) const fn is_known_clock(clock: usize) -> bool {
    matches!(clock as c_int, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC)
}

type Mutex = *mut libc::pthread_mutex_t;
type Rwlock = *mut libc::pthread_rwlock_t;
type Spin = *mut libc::pthread_spinlock_t;
type Condition = *mut libc::pthread_cond_t;
type Barrier = *mut libc::pthread_barrier_t;
type Semaphore = *mut libc::sem_t;
type Time = *const libc::timespec;
type Clock = usize;
type Text = *const c_char;
type Texts = *const *const c_char;

real! {
    pthread_mutex_init(mutex: Mutex, attributes: *const c_void);
    pthread_mutex_destroy(mutex: Mutex);
    pthread_mutex_lock(mutex: Mutex);
    pthread_mutex_trylock(mutex: Mutex);
    pthread_mutex_timedlock(mutex: Mutex, until: Time);
    pthread_mutex_clocklock(mutex: Mutex, clock: Clock, until: Time);
    pthread_mutex_unlock(mutex: Mutex);

    pthread_rwlock_init(lock: Rwlock, attributes: *const c_void);
    pthread_rwlock_destroy(lock: Rwlock);
    pthread_rwlock_rdlock(lock: Rwlock);
    pthread_rwlock_wrlock(lock: Rwlock);
    pthread_rwlock_tryrdlock(lock: Rwlock);
    pthread_rwlock_trywrlock(lock: Rwlock);
    pthread_rwlock_timedrdlock(lock: Rwlock, until: Time);
    pthread_rwlock_timedwrlock(lock: Rwlock, until: Time);
    pthread_rwlock_clockrdlock(lock: Rwlock, clock: Clock, until: Time);
    pthread_rwlock_clockwrlock(lock: Rwlock, clock: Clock, until: Time);
    pthread_rwlock_unlock(lock: Rwlock);

    pthread_spin_init(lock: Spin, shared: usize);
    pthread_spin_destroy(lock: Spin);
    pthread_spin_lock(lock: Spin);
    pthread_spin_trylock(lock: Spin);
    pthread_spin_unlock(lock: Spin);

    pthread_cond_wait @ c"GLIBC_2.3.2" (condition: Condition, mutex: Mutex);
    pthread_cond_timedwait @ c"GLIBC_2.3.2" (condition: Condition, mutex: Mutex, until: Time);
    pthread_cond_clockwait(condition: Condition, mutex: Mutex, clock: Clock, until: Time);
    pthread_cond_signal @ c"GLIBC_2.3.2" (condition: Condition);
    pthread_cond_broadcast @ c"GLIBC_2.3.2" (condition: Condition);

    pthread_cond_init @ c"GLIBC_2.3.2" (condition: Condition, attributes: *const c_void);
    pthread_cond_destroy @ c"GLIBC_2.3.2" (condition: Condition);

    pthread_barrier_init(barrier: Barrier, attributes: *const c_void, count: usize);
    pthread_barrier_destroy(barrier: Barrier);
    pthread_barrier_wait(barrier: Barrier);

    sem_init(semaphore: Semaphore, shared: usize, value: usize);
    sem_destroy(semaphore: Semaphore);
    sem_wait(semaphore: Semaphore);
    sem_timedwait(semaphore: Semaphore, until: Time);
    sem_clockwait(semaphore: Semaphore, clock: Clock, until: Time);
    sem_trywait(semaphore: Semaphore);
    sem_post(semaphore: Semaphore);

    mtx_init(mutex: Mutex, kind: usize);

    dlclose(handle: *mut c_void);

    setrlimit(resource: usize, limit: *const c_void);
    setrlimit64(resource: usize, limit: *const c_void);
    prlimit(pid: c_int, resource: usize, limit: *const c_void, old: *mut c_void);
    prlimit64(pid: c_int, resource: usize, limit: *const c_void, old: *mut c_void);

    mlockall(flags: c_int);

    prctl(option: c_int, a: usize, b: usize, c: usize, d: usize);
    pthread_setname_np(thread: libc::pthread_t, name: Text);

    execve(path: Text, arguments: Texts, environment: Texts);
    execvpe(file: Text, arguments: Texts, environment: Texts);
    execveat(folder: usize, path: Text, arguments: Texts, environment: Texts, flags: usize);
    fexecve(file: usize, arguments: Texts, environment: Texts);
    posix_spawn @ c"GLIBC_2.15" (pid: *mut libc::pid_t, path: Text, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts);
    posix_spawnp @ c"GLIBC_2.15" (pid: *mut libc::pid_t, file: Text, actions: *const c_void, attributes: *const c_void, arguments: Texts, environment: Texts);
}
