//! Where glibc (2.35 or newer) keeps the rseq area that it registers for each thread.

/// From the thread pointer, the same in every thread. `None`: it registers none.
pub(crate) fn offset() -> Option<isize> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: the names are C strings; glibc defines the symbols with these types.
    unsafe {
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        let size = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_size".as_ptr()).cast::<u32>();
        if offset.is_null() || size.is_null() || *size == 0 { None } else { Some(*offset) }
    }
}
