//! A program that limits its own address space, or locks it in memory, is to have that for itself: most of what lockmeter has mapped there is
//! given back before.

use core::ffi::{c_int, c_void};

use lockmeter_meter::writer;

use crate::real;

/// Exports functions that limit the current process.
macro_rules! interpose_limiting {
    ($($name:ident)+) => {
        $(
            /// Takes the place of the function of this name; see the manual page of that.
            ///
            /// # Safety
            /// As the function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(resource: usize, limit: *const c_void) -> c_int {
                // SAFETY: the caller's limit.
                unsafe { look_at(resource, limit) };
                // SAFETY: as above.
                unsafe { real::$name(resource, limit) }
            }
        )+
    };
}

/// Exports functions that limit any process.
macro_rules! interpose_limiting_any {
    ($($name:ident)+) => {
        $(
            /// Takes the place of the function of this name; see the manual page of that.
            ///
            /// # Safety
            /// As the function of this name.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                pid: c_int,
                resource: usize,
                limit: *const c_void,
                old: *mut c_void,
            ) -> c_int {
                if writer::is_own_process(pid) {
                    // SAFETY: the caller's limit.
                    unsafe { look_at(resource, limit) };
                }
                // SAFETY: as above.
                unsafe { real::$name(pid, resource, limit, old) }
            }
        )+
    };
}

interpose_limiting!(setrlimit setrlimit64);
interpose_limiting_any!(prlimit prlimit64);

/// Takes the place of the function of this name; see the manual page of that.
///
/// # Safety
/// As the function of this name.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn mlockall(flags: c_int) -> c_int {
    // Without privileges the kernel refuses if all that is mapped is more than may be locked.
    if flags & libc::MCL_CURRENT != 0 {
        writer::addresses_locked();
    }
    // SAFETY: takes a number.
    unsafe { real::mlockall(flags) }
}

/// # Safety
/// The limit is null, or one of the kernel's.
unsafe fn look_at(resource: usize, limit: *const c_void) {
    // An address where nothing is, is for the kernel to refuse.
    if resource as u32 == libc::RLIMIT_AS && writer::is_readable(limit) {
        // SAFETY: the caller's limit; the kernel has read there.
        writer::addresses_limited(unsafe { limit.cast::<libc::rlimit>().read_unaligned() }.rlim_cur);
    }
}
