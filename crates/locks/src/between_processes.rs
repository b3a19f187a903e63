//! Locks that lie in memory shared by several processes: a `MAP_SHARED` mapping made before they were forked.
//!
//! ```no_run
//! use lockmeter_locks::{RawMutex, between_processes};
//!
//! # fn shared_memory() -> *mut RawMutex { unimplemented!() }
//! between_processes::share_with_children()?;
//! let place: *mut RawMutex = shared_memory();
//! // SAFETY: the mapping is large enough, aligned to pages, and nobody uses it yet.
//! let mutex = unsafe {
//!     place.write(RawMutex::new());
//!     &*place
//! };
//! // From here on children may be forked, and lock it as this process does.
//! # std::io::Result::Ok(())
//! ```
//!
//! What sharing takes: futexes that other processes can sleep on; one table of threads' records for all of them, so
//! that an owner's number and a place in a queue mean the same everywhere; a number of its own for each forked child; and each thread's
//! rseq area in the shared memory, so that others can tell whether an owner runs (`rseq_area.rs`).
//!
//! Each number comes with a robust mutex that its thread holds for as long as it has the number. When the thread ends in whatever way, the
//! kernel says so there, and another thread can have the number: no child leaves anything behind that stays taken. One exception:
//! a thread that was killed while it was in a queue of spinners is still linked there, so its number is never given out again.
//!
//! Not robust are the locks themselves: if a thread is killed while it holds or waits for one, the others may wait for ever. Only
//! [`Mutex`](crate::Mutex), [`RwLock`](crate::RwLock) and [`SpinMutex`](crate::SpinMutex) work between processes:
//! [`PercpuRwLock`](crate::PercpuRwLock) counts readers in memory of its process alone.

use std::io;
use std::time::{Duration, Instant};

use crate::shared_numbers::SharedNumbers;
use crate::thread_number::ThreadNumber;
use crate::{current_thread, generation, sync};

/// From now on locks in memory that this process shares with children work between it and those that it forks from here on, and theirs.
/// Does nothing if that is so already.
///
/// Every lock of the process waits on futexes that are not private from here on, so that the kernel looks up the page of each; what does
/// not wait costs the same. Children must be forked by `fork`: a bare system call does not give the child a number of its own. A
/// lock must be released by the process that took it.
///
/// # Errors
///
/// [`Unsupported`](io::ErrorKind::Unsupported) with the feature `lockdep`, whose orders are each process's own, in a preloaded library
/// that has given out numbers, and where pages are larger than 4096 bytes. [`ResourceBusy`](io::ErrorKind::ResourceBusy) if the process has more
/// than one thread. Or the kernel's, if it refuses the memory.
pub fn share_with_children() -> io::Result<()> {
    if cfg!(feature = "lockdep") {
        let why = "locks whose order is checked cannot be shared between processes: build without the feature lockdep";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    if !is_alone()? {
        let why = "locks are shared with children before a process starts threads, and this process has more than one";
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
    }
    share_numbers()?;
    generation::keep_in_children();
    sync::let_others_wait();
    Ok(())
}

/// This thread's number among all that share locks; it gets one if it has none. `None` if all are taken: then it waits without
/// queueing, and is not known as an owner.
pub fn own_number() -> Option<u32> {
    current_thread::own_number().map(ThreadNumber::get)
}

fn share_numbers() -> io::Result<()> {
    if current_thread::is_prepared_for_preload() {
        let why = "a preloaded library numbers the threads of each process for itself: its locks cannot be shared";
        return Err(io::Error::new(io::ErrorKind::Unsupported, why));
    }
    // Miri has no other processes.
    if cfg!(miri) || SharedNumbers::get().is_some() {
        return Ok(());
    }
    // Each child would have to find out for itself.
    sync::usable_cpus();
    let shared = SharedNumbers::new()?;
    // SAFETY: the functions are there for as long as the program, and do nothing until numbers are shared.
    let refused =
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child)) };
    if refused != 0 {
        return Err(io::Error::from_raw_os_error(refused));
    }
    shared.begin(current_thread::registered_number())
}

/// A child inherits its parent's rseq area: the kernel would write both their CPUs there.
extern "C" fn before_fork() {
    if let (Some(shared), Some(own)) = (SharedNumbers::get(), current_thread::registered_number()) {
        shared.withdraw_cpu(own);
    }
}

extern "C" fn after_fork_in_parent() {
    if let (Some(shared), Some(own)) = (SharedNumbers::get(), current_thread::registered_number()) {
        shared.publish_cpu(own);
    }
}

/// The number that the thread had is its parent's.
extern "C" fn after_fork_in_child() {
    if SharedNumbers::get().is_some() {
        current_thread::forget_number();
    }
}

/// Whether this process has a single thread. One that was joined may still be on its last instructions.
fn is_alone() -> io::Result<bool> {
    const PATIENCE: Duration = Duration::from_millis(500);
    let begin = Instant::now();
    loop {
        if std::fs::read_dir("/proc/self/task")?.count() == 1 {
            return Ok(true);
        }
        if begin.elapsed() > PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
