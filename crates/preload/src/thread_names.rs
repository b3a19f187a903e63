//! What threads say of themselves to the kernel: their names, so that no call is needed to know them, and that the clock is forbidden to
//! them.

use core::ffi::{c_char, c_int};

use lockmeter_meter::writer;

use crate::real;

/// Takes the place of the function of this name; see the manual page of that. It is given as many arguments as the kernel takes.
///
/// # Safety
/// As the function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
    let is_strict = option == libc::PR_SET_SECCOMP && a == libc::SECCOMP_MODE_STRICT as usize;
    if is_strict {
        writer::forbid_clock(true);
    }
    // SAFETY: the caller's arguments.
    let status = unsafe { real::prctl(option, a, b, c, d) };
    if is_strict && status != 0 {
        writer::forbid_clock(false);
    }
    if option == libc::PR_SET_NAME && status == 0 {
        // SAFETY: the kernel has just read a name there.
        writer::thread_renamed(unsafe { name_at(a as *const c_char) });
    }
    status
}

/// Takes the place of the function of this name; see the manual page of that.
///
/// # Safety
/// As the function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_setname_np(thread: libc::pthread_t, name: *const c_char) -> c_int {
    // SAFETY: the caller's thread and name.
    let status = unsafe { real::pthread_setname_np(thread, name) };
    if status == 0 {
        // SAFETY: a name that glibc has just taken.
        let name = unsafe { name_at(name) };
        // SAFETY: asks which thread this is.
        if thread == unsafe { libc::pthread_self() } {
            writer::thread_renamed(name);
        } else {
            // SAFETY: glibc's number of a thread is where its descriptor is; the caller names one that lives.
            unsafe { writer::other_thread_renamed(thread as usize, name) };
        }
    }
    status
}

/// # Safety
/// A text that ends with a NUL, or has fifteen bytes at least.
unsafe fn name_at<'a>(name: *const c_char) -> &'a [u8] {
    const LONGEST: usize = 15;
    // SAFETY: no byte behind the NUL is read, nor any behind the longest.
    let length = (0..LONGEST).take_while(|at| unsafe { *name.add(*at) } != 0).count();
    // SAFETY: this many were just read.
    unsafe { core::slice::from_raw_parts(name.cast(), length) }
}
