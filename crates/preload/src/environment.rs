//! What the environment tells the library.

use core::ffi::{CStr, c_char};

unsafe extern "C" {
    static environ: *const *const c_char;
}

/// Whether libc knows the environment already. It does not while the program's `.preinit_array` runs, which is before any library is initialised.
pub(crate) fn is_known() -> bool {
    // SAFETY: a pointer, which libc sets once before it initialises the first library.
    unsafe { !(&raw const environ).read().is_null() }
}

/// A variable, whose name has `BYTES` bytes with its NUL.
pub(crate) fn variable<const BYTES: usize>(name: &str) -> Option<&'static CStr> {
    let mut with_nul = [0_u8; BYTES];
    for (to, from) in with_nul.iter_mut().zip(name.bytes()) {
        *to = from;
    }
    // SAFETY: the name ends with a NUL; nobody changes the environment while libraries are loaded.
    let value = unsafe { libc::getenv(with_nul.as_ptr().cast()) };
    // SAFETY: the environment's text ends with a NUL, and stays where it is until somebody changes it.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}
