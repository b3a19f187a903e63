//! What the environment tells the library.

use core::ffi::CStr;

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
