//! The kernel's own accounting: threads that inherit hardware breakpoints are created and joined, as
//! `perf bench breakpoint thread` does it.

use std::ffi::c_void;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicIsize, AtomicU32, Ordering};
use std::time::Instant;

use super::{Shape, Timing};

/// Why the kernel's part cannot run here.
#[derive(Debug)]
pub enum NotHere {
    /// The kernel or the machine has no hardware breakpoints.
    NoBreakpoints(io::Error),
    /// There are, but fewer than asked for.
    TooFew {
        /// As many as could be had.
        had: usize,
        /// Asked for.
        wanted: usize,
    },
    /// `kernel.perf_event_paranoid`, or a filter of system calls.
    Forbidden(io::Error),
    /// No more threads.
    Threads(io::Error),
}

impl std::fmt::Display for NotHere {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoBreakpoints(error) => write!(f, "this machine has no hardware breakpoints ({error})"),
            Self::TooFew { had, wanted } => {
                write!(f, "this machine has {had} free hardware breakpoints, not {wanted}; give -b {had} or fewer")
            }
            Self::Forbidden(error) => {
                write!(
                    f,
                    "hardware breakpoints are not allowed ({error}); run as root, or lower kernel.perf_event_paranoid"
                )
            }
            Self::Threads(error) => write!(f, "cannot create so many threads ({error}); give a smaller -p or -t"),
        }
    }
}

/// The beginning of the kernel's `struct perf_event_attr`, up to its first published size.
#[repr(C)]
#[derive(Default)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
    breakpoint_length: u64,
}

const TYPE_BREAKPOINT: u32 = 5;
const FLAG_INHERIT: u64 = 1 << 1;
const FLAG_EXCLUDE_KERNEL: u64 = 1 << 5;
const FLAG_EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const READ_OR_WRITE: u32 = 3;
const ONE_BYTE: u64 = 1;

/// What the breakpoints watch, and nobody touches.
static WATCHED: [AtomicU32; 64] = [const { AtomicU32::new(0) }; 64];

fn open_breakpoint(watched: &AtomicU32) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: TYPE_BREAKPOINT,
        size: u32::try_from(size_of::<EventAttributes>()).unwrap_or(0),
        flags: FLAG_INHERIT | FLAG_EXCLUDE_KERNEL | FLAG_EXCLUDE_HYPERVISOR,
        breakpoint_type: READ_OR_WRITE,
        breakpoint_address: ptr::from_ref(watched).addr() as u64,
        breakpoint_length: ONE_BYTE,
        ..EventAttributes::default()
    };
    // SAFETY: the attributes live across the call and tell their own size; the other arguments are numbers: this thread, any
    // CPU, no group, no flags.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, &raw const attributes, 0, -1, -1, 0) };
    match i32::try_from(fd) {
        // SAFETY: a descriptor just opened, owned by nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The most breakpoints that can be asked for.
pub const MOST_BREAKPOINTS: usize = WATCHED.len();

/// Runs once.
pub fn run(shape: Shape) -> Result<Timing, NotHere> {
    let mut breakpoints = Vec::new();
    for watched in WATCHED.iter().take(shape.breakpoints) {
        breakpoints.push(open_breakpoint(watched).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC) => NotHere::TooFew { had: breakpoints.len(), wanted: shape.breakpoints },
            Some(libc::EACCES | libc::EPERM) => NotHere::Forbidden(error),
            _ => NotHere::NoBreakpoints(error),
        })?);
    }
    let batches = Batches { left: AtomicIsize::new(shape.repeat.cast_signed()), threads: shape.threads };
    let begin = Instant::now();
    let parallel: Vec<_> =
        (0..shape.parallelism).map(|_| create(work, ptr::from_ref(&batches).cast_mut().cast())).collect();
    let failures = parallel.into_iter().filter_map(|thread| thread.and_then(join).err());
    let failure = failures.last();
    let total_ns = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    match failure {
        Some(error) => Err(NotHere::Threads(error)),
        None => Ok(Timing { shape, total_ns }),
    }
}

struct Batches {
    left: AtomicIsize,
    threads: usize,
}

/// A thread of the system's own making: one of Rust's would add the cost of its own names and handles to each operation.
fn create(body: extern "C" fn(*mut c_void) -> *mut c_void, argument: *mut c_void) -> io::Result<libc::pthread_t> {
    let mut thread = 0;
    // SAFETY: `thread` is ours; the argument outlives the thread, which its creator joins.
    match unsafe { libc::pthread_create(&raw mut thread, ptr::null(), body, argument) } {
        0 => Ok(thread),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Joins a thread; a result that is not null is an error number.
fn join(thread: libc::pthread_t) -> io::Result<()> {
    let mut result = ptr::null_mut();
    // SAFETY: a thread that was created here and is joined once.
    match unsafe { libc::pthread_join(thread, &raw mut result) } {
        0 if result.is_null() => Ok(()),
        0 => Err(io::Error::from_raw_os_error(i32::try_from(result.addr()).unwrap_or(libc::EAGAIN))),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Creates and joins batches until none is left. Returns null, or the number of the error that stopped it.
extern "C" fn work(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `run` passes its batches, and joins this thread before they end.
    let batches = unsafe { &*argument.cast::<Batches>() };
    let mut threads = Vec::with_capacity(batches.threads);
    while batches.left.fetch_sub(1, Ordering::Relaxed) > 0 {
        let done = AtomicU32::new(0);
        let mut failure = None;
        for _ in 0..batches.threads {
            match create(sleep_until_done, ptr::from_ref(&done).cast_mut().cast()) {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        done.store(1, Ordering::Relaxed);
        futex(&done, libc::FUTEX_WAKE, i32::MAX.cast_unsigned());
        for thread in threads.drain(..) {
            failure = join(thread).err().or(failure);
        }
        if let Some(error) = failure {
            let number = usize::try_from(error.raw_os_error().unwrap_or(libc::EAGAIN)).unwrap_or(1);
            return ptr::without_provenance_mut(number);
        }
    }
    ptr::null_mut()
}

/// Sleeps until its batch is complete.
extern "C" fn sleep_until_done(argument: *mut c_void) -> *mut c_void {
    // SAFETY: `work` passes a word that lives until it has joined this thread.
    let done = unsafe { &*argument.cast::<AtomicU32>() };
    while done.load(Ordering::Relaxed) == 0 {
        futex(done, libc::FUTEX_WAIT, 0);
    }
    ptr::null_mut()
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32) {
    let no_timeout = ptr::null::<libc::timespec>();
    // SAFETY: a word that lives across the call, and no time limit. The one that waits looks at the word again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, no_timeout) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_attributes_have_the_size_that_the_kernel_published() {
        assert_eq!(size_of::<EventAttributes>(), 72);
        assert_eq!(std::mem::offset_of!(EventAttributes, breakpoint_address), 56);
    }

    #[test]
    fn threads_are_created_and_joined_without_breakpoints_on_any_machine() {
        let shape = Shape { breakpoints: 0, parallelism: 3, threads: 5, repeat: 4 };
        assert!(run(shape).unwrap().total_ns > 0);
    }
}
