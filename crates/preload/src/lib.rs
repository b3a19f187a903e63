//! The pthread interface over lockmeter's in-process meter.
//!
//! Each exported function is a few instructions that note where the caller's stack stood and jump on; behind it, the lock is
//! tried first, and only a failed try starts a clock. Whatever happens, the real function's semantics are kept: the same
//! return codes, the same `errno`, cancellation points stay cancellation points.
//!
//! Functions here are `extern "C-unwind"` and hold nothing with a destructor, for a cancelled thread unwinds through them.

#![cfg(all(target_os = "linux", target_arch = "x86_64", target_pointer_width = "64"))]

mod barrier;
mod c11;
mod condition;
mod creation;
mod entry;
mod environment;
mod execute;
mod glibc_mutex;
mod limits;
mod locks;
mod mutex;
mod old_versions;
mod outcome;
mod real;
mod reserved_names;
mod rwlock;
mod semaphore;
mod spin;
mod swap;
mod thread_names;
mod unwinder;

use core::ffi::{c_int, c_void};

use entry::interpose;
use environment::variable;
use lockmeter_meter::layout::{DIRECTORY_VARIABLE, SESSION_VARIABLE};
use lockmeter_meter::writer;

/// Runs when the library is loaded, before `main` and after libc is ready.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    real::resolve_all();
    glibc_mutex::find_thread_id();
    old_versions::resolve_all();
    glibc_mutex::look();
    swap::prepare();
    // SAFETY: functions that run in the child before anything else of it, and in the parent next to the fork.
    unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(forked)) };
    const DIRECTORY_BYTES: usize = DIRECTORY_VARIABLE.len() + 1;
    const SESSION_BYTES: usize = SESSION_VARIABLE.len() + 1;
    let directory = variable::<DIRECTORY_BYTES>(DIRECTORY_VARIABLE);
    if let (Some(directory), Some(session)) = (directory, variable::<SESSION_BYTES>(SESSION_VARIABLE)) {
        writer::start(directory.to_bytes(), session.to_bytes());
    }
}

unsafe extern "C" fn before_fork() {
    writer::before_fork();
}

unsafe extern "C" fn after_fork() {
    writer::after_fork_in_parent();
}

unsafe extern "C" fn forked() {
    writer::after_fork_in_child();
    swap::after_fork_in_child();
}

interpose!(dlclose, 1, close_library);

unsafe extern "C-unwind" fn close_library(handle: *mut c_void, _: *const usize, _: usize) -> c_int {
    // SAFETY: the caller's handle, passed on.
    let status = unsafe { real::dlclose(handle) };
    writer::library_unloaded();
    status
}
