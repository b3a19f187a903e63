//! Locks that are released by a thread that does not hold them.

/// Whether such a thread ends its process. In other builds nothing happens, to the lock neither.
pub(crate) const IS_CHECKED: bool = cfg!(any(debug_assertions, feature = "lockdep"));

/// A thread releases what it does not hold.
#[cold]
#[inline(never)]
pub(crate) fn not_held(lock: &str) {
    if !IS_CHECKED {
        return;
    }
    #[cfg(not(any(loom, shuttle, miri)))]
    // SAFETY: writes text; ends the process.
    unsafe {
        for part in ["lockmeter-locks: a thread released a ", lock, " that it does not hold\n"] {
            libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len());
        }
        libc::abort();
    }
    #[cfg(any(loom, shuttle, miri))]
    panic!("a thread released a {lock} that it does not hold");
}
