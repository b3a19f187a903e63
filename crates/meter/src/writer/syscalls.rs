//! System calls made directly: they leave `errno` alone and reach no interposed function.

use core::arch::asm;
use core::sync::atomic::AtomicU32;

/// Makes a system call; errors come back as negative numbers.
///
/// # Safety
/// The arguments must be right for the call.
#[inline]
pub(super) unsafe fn syscall(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the kernel clobbers rcx and r11 only; what the call does is the caller's obligation.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// This thread's id.
pub(super) fn thread_id() -> u32 {
    // SAFETY: takes nothing.
    (unsafe { syscall(libc::SYS_gettid, [0; 6]) }) as u32
}

/// Wakes one of those of this process that sleep until this word changes.
pub(super) fn wake_one(word: *const AtomicU32) {
    // Three arguments, and no more registers than that: this is in the middle of what is to be fast.
    // SAFETY: only the address counts; the word itself may be gone.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") libc::SYS_futex => _,
            in("rdi") word,
            in("rsi") libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            in("rdx") 1,
            out("rcx") _,
            out("r11") _,
            options(nostack)
        );
    }
}

/// Opens a file; the path ends with a NUL.
pub(super) fn open(path: &[u8], flags: i32, mode: u32) -> Option<i32> {
    if path.last() != Some(&0) {
        return None;
    }
    // SAFETY: the path is readable and ends with a NUL.
    let result = unsafe {
        syscall(
            libc::SYS_openat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags as usize, mode as usize, 0, 0],
        )
    };
    i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0)
}

/// Whether a program that this process executes may do this (`R_OK` and so on) to a file; the path ends with a NUL. By the call that
/// the loader makes itself: a filter of system calls may allow no other.
pub(super) fn may_access(path: &[u8], how: i32) -> bool {
    if path.last() != Some(&0) {
        return false;
    }
    // SAFETY: the path is readable and ends with a NUL.
    let result = unsafe { syscall(libc::SYS_access, [path.as_ptr() as usize, how as usize, 0, 0, 0, 0]) };
    result == 0
}

/// Whether text may begin at this address, as far as it can be told without touching it: the kernel tries to read it as a path.
pub(super) fn is_readable(text: *const libc::c_char) -> bool {
    // SAFETY: the kernel checks the address.
    let result = unsafe { syscall(libc::SYS_access, [text.addr(), libc::F_OK as usize, 0, 0, 0, 0]) };
    result != -(libc::EFAULT as isize)
}

/// How much of this resource the process may use.
pub(super) fn own_limit(resource: libc::__rlimit_resource_t) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    let at = (&raw mut limit) as usize;
    // The call that glibc makes itself when a program begins.
    // SAFETY: writes the limit, which is ours, and sets none.
    unsafe { syscall(libc::SYS_prlimit64, [0, resource as usize, 0, at, 0, 0]) };
    limit.rlim_cur
}

/// Reads from the begin of a file; how many bytes came.
pub(super) fn read(descriptor: i32, bytes: &mut [u8]) -> usize {
    // SAFETY: writes at most `bytes.len()` bytes to `bytes`.
    let result =
        unsafe { syscall(libc::SYS_read, [descriptor as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0]) };
    usize::try_from(result).unwrap_or(0)
}

/// Reads from a place in a file; how many bytes came.
pub(super) fn read_at(descriptor: i32, bytes: &mut [u8], at: u64) -> usize {
    // SAFETY: writes at most `bytes.len()` bytes to `bytes`.
    let result = unsafe {
        syscall(libc::SYS_pread64, [descriptor as usize, bytes.as_mut_ptr() as usize, bytes.len(), at as usize, 0, 0])
    };
    usize::try_from(result).unwrap_or(0)
}

/// Opens a regular file to read from it, with `AT_` flags; the path is from the folder `from`. Nothing but a regular file is opened: a FIFO
/// would wait. `None` if there is none; one that must not be read gives no descriptor.
///
/// # Safety
/// The path ends with a NUL.
pub(super) unsafe fn open_regular(from: i32, path: *const libc::c_char, flags: i32) -> Option<Option<i32>> {
    // SAFETY: all-zero is a valid status.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    let flags = flags & (libc::AT_EMPTY_PATH | libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: the caller's path; the status is ours.
    let failed = unsafe {
        let status = (&raw mut status) as usize;
        syscall(libc::SYS_newfstatat, [from as usize, path as usize, status, flags as usize, 0, 0])
    };
    if failed != 0 || status.st_mode & libc::S_IFMT != libc::S_IFREG {
        return None;
    }
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    // SAFETY: the caller's path.
    let result = unsafe { syscall(libc::SYS_openat, [from as usize, path as usize, flags as usize, 0, 0, 0]) };
    Some(i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0))
}

/// Closes a descriptor.
pub(super) fn close(descriptor: i32) {
    // SAFETY: the caller owns the descriptor.
    unsafe { syscall(libc::SYS_close, [descriptor as usize, 0, 0, 0, 0, 0]) };
}

/// Reads where a link leads; how many bytes that is.
pub(super) fn read_link(path: &[u8], bytes: &mut [u8]) -> usize {
    if path.last() != Some(&0) {
        return 0;
    }
    // SAFETY: the path ends with a NUL; at most `bytes.len()` bytes are written to `bytes`.
    let result = unsafe {
        syscall(
            libc::SYS_readlinkat,
            [libc::AT_FDCWD as usize, path.as_ptr() as usize, bytes.as_mut_ptr() as usize, bytes.len(), 0, 0],
        )
    };
    usize::try_from(result).unwrap_or(0)
}

/// Gives a part of a mapping back.
///
/// # Safety
/// Nobody uses it any more.
pub(super) unsafe fn unmap(address: usize, bytes: usize) {
    // SAFETY: the caller's obligation.
    unsafe { syscall(libc::SYS_munmap, [address, bytes, 0, 0, 0, 0]) };
}

/// Maps this many bytes of a file, shared, from its begin: at an address if nothing is there, else at another. `None` if that fails. The
/// file may be shorter.
pub(super) fn map(descriptor: i32, bytes: usize, wanted: usize) -> Option<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a new mapping where none is.
    let address = unsafe {
        syscall(libc::SYS_mmap, [wanted, bytes, protection, libc::MAP_SHARED as usize, descriptor as usize, 0])
    };
    // Error numbers are the last page of addresses.
    (!(-4095..0).contains(&address)).then_some(address as usize)
}
