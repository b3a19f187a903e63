//! Locks that can be metered, checked and swapped.
//!
//! * [`Mutex`]: one atomic instruction to lock and one to unlock; waiters spin in a queue while the owner runs, then sleep, and
//!   are handed the lock when they have waited too long.
//! * [`RwLock`], over [`RawRwSem`]: the same for readers and writers; its [policies](rwsem::Policy) are type parameters.
//! * [`SpinMutex`], over [`RawSpin`]: naps for a moment when whoever it waits for does not run.
//! * [`PercpuRwLock`], over [`RawPercpuRwSem`]: readers count themselves per CPU and share no cache line; a writer pays.
//!
//! The first three work between processes, too (module `between_processes`), if asked.
//!
//! The guards are those of [`lock_api`]. Every lock takes an [`Instrument`]: hooks that run only when the lock is contended, and
//! that compile to nothing by default.
//!
//! Linux only. Without the feature `std` nothing but the system calls of libc is used; threads then have no numbers (see
//! `threads`), so that owners are unknown, and waiters spin without a queue and for a bounded time.

#![cfg_attr(not(any(feature = "std", loom, shuttle)), no_std)]

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub mod between_processes;
mod front;
mod generation;
#[cfg(not(any(loom, shuttle)))]
mod glibc_rseq;
pub mod instrument;
#[cfg(not(any(loom, shuttle)))]
mod lock_api_traits;
pub mod lockdep;
mod misuse;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod mutex;
mod percpu_rwsem;
#[cfg(all(feature = "preload", not(any(loom, shuttle))))]
pub mod preloaded;
mod rests;
#[cfg(all(feature = "std", not(feature = "preload"), not(any(loom, shuttle))))]
mod rseq_area;
pub mod rwsem;
mod spin;
mod spin_queue;
mod spinning;
mod sync;
mod threads;

/// How [`Mutex`] spins before it sleeps, for models of it.
pub mod spinning_times {
    pub use crate::spinning::{BEFORE_LOOKING_NS, FIRST_BACKOFF_NS, LONGEST_BACKOFF_NS, SPIN_NS, WATCHING_NS};
}

pub use instrument::{Instrument, Unmetered};
#[cfg(not(any(loom, shuttle)))]
pub use lock_api_traits::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, SpinMutex, SpinMutexGuard};
pub use mutex::{NotAcquired, RawMutex};
#[cfg(not(any(loom, shuttle)))]
pub use percpu_rwsem::{PercpuRwLock, RawPercpuRwSem};
pub use rwsem::RawRwSem;
pub use spin::RawSpin;
