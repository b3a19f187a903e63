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

/// This process's id.
pub(super) fn process_id() -> u32 {
    // SAFETY: takes nothing.
    (unsafe { syscall(libc::SYS_getpid, [0; 6]) }) as u32
}

/// Lets others run.
pub(super) fn give_way() {
    // SAFETY: takes nothing.
    unsafe { syscall(libc::SYS_sched_yield, [0; 6]) };
}

/// Sleeps for less than a second, or until a signal.
pub(super) fn sleep(ns: u64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: ns as libc::c_long };
    // SAFETY: reads the time, which is ours.
    unsafe { syscall(libc::SYS_nanosleep, [(&raw const time) as usize, 0, 0, 0, 0, 0]) };
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

/// Whether a thread of this process has this id.
pub(super) fn thread_lives(thread: u32) -> bool {
    // SAFETY: signal 0 is only a question.
    let answer = unsafe { syscall(libc::SYS_tgkill, [process_id() as usize, thread as usize, 0, 0, 0, 0]) };
    answer != -(libc::ESRCH as isize)
}

/// This thread's name, in two words.
pub(super) fn thread_name() -> [u64; 2] {
    let mut name = [0_u64; 2];
    // SAFETY: writes at most 16 bytes, which `name` has.
    unsafe { syscall(libc::SYS_prctl, [libc::PR_GET_NAME as usize, name.as_mut_ptr() as usize, 0, 0, 0, 0]) };
    name
}

/// Makes sure that these pages can be written to: a file system without room says so here, not with a SIGBUS later.
pub(super) fn populate(start: usize, length: usize) -> bool {
    const MADV_POPULATE_WRITE: usize = 23;
    const PAGE: usize = 4096;
    let first = start & !(PAGE - 1);
    let length = (start + length - first).next_multiple_of(PAGE);
    // SAFETY: faults pages in, and changes none.
    let result = unsafe { syscall(libc::SYS_madvise, [first, length, MADV_POPULATE_WRITE, 0, 0, 0]) };
    // Kernels before 5.14 do not know it; the risk is then taken.
    result == 0 || result == -(libc::EINVAL as isize)
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

/// Whether this process may do this (`R_OK` and so on) to a file; the path ends with a NUL.
pub(super) fn may_access(path: &[u8], how: i32) -> bool {
    if path.last() != Some(&0) {
        return false;
    }
    // SAFETY: the path is readable and ends with a NUL.
    let result = unsafe {
        syscall(libc::SYS_faccessat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, how as usize, 0, 0, 0])
    };
    result == 0
}

/// Writes all these bytes to this place in a file.
pub(super) fn write(descriptor: i32, bytes: &[u8], at: usize) -> bool {
    // SAFETY: reads `bytes.len()` bytes of `bytes`.
    let result =
        unsafe { syscall(libc::SYS_pwrite64, [descriptor as usize, bytes.as_ptr() as usize, bytes.len(), at, 0, 0]) };
    usize::try_from(result) == Ok(bytes.len())
}

/// Writes the path of the working directory, with its NUL; how many bytes that is, 0 if they are too few.
pub(super) fn working_directory(bytes: &mut [u8]) -> usize {
    // SAFETY: writes at most `bytes.len()` bytes to `bytes`.
    let result = unsafe { syscall(libc::SYS_getcwd, [bytes.as_mut_ptr() as usize, bytes.len(), 0, 0, 0, 0]) };
    usize::try_from(result).unwrap_or(0)
}

/// Removes a file; the path ends with a NUL.
pub(super) fn remove(path: &[u8]) {
    if path.last() == Some(&0) {
        // SAFETY: the path is readable and ends with a NUL.
        unsafe { syscall(libc::SYS_unlink, [path.as_ptr() as usize, 0, 0, 0, 0, 0]) };
    }
}

/// How large this process may make a file.
pub(super) fn largest_file() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: writes the limit, which is ours.
    unsafe { syscall(libc::SYS_getrlimit, [libc::RLIMIT_FSIZE as usize, (&raw mut limit) as usize, 0, 0, 0, 0]) };
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
/// would wait.
///
/// # Safety
/// The path ends with a NUL.
pub(super) unsafe fn open_regular(from: i32, path: *const libc::c_char, flags: i32) -> Option<i32> {
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
    i32::try_from(result).ok().filter(|descriptor| *descriptor >= 0)
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

/// Makes a file this long and maps it shared; `None` if either fails.
pub(super) fn map_new(descriptor: i32, bytes: usize) -> Option<usize> {
    // SAFETY: changes a file that the caller just made.
    let grown = unsafe { syscall(libc::SYS_ftruncate, [descriptor as usize, bytes, 0, 0, 0, 0]) };
    if grown != 0 {
        return None;
    }
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address =
        unsafe { syscall(libc::SYS_mmap, [0, bytes, protection, libc::MAP_SHARED as usize, descriptor as usize, 0]) };
    // Error numbers are the last page of addresses.
    (!(-4095..0).contains(&address)).then_some(address as usize)
}
