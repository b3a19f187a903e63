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

use crate::{generation, sync, threads};

#[cfg(not(any(feature = "preload", miri)))]
mod places;
#[cfg(any(feature = "preload", miri))]
mod without_numbers;

#[cfg(not(any(feature = "preload", miri)))]
pub(crate) use places::Places;
#[cfg(all(miri, not(feature = "preload")))]
pub(crate) use without_numbers::Places;

#[cfg(not(any(feature = "preload", miri)))]
use places::share_numbers;
#[cfg(any(feature = "preload", miri))]
use without_numbers::share_numbers;

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
    threads::own_slot().map(threads::Slot::number)
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
