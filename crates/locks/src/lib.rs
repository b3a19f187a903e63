//! Locks that can be metered, checked and swapped.
//!
//! * [`Mutex`]: one atomic instruction to lock and one to unlock; waiters spin in a queue while the owner runs, then sleep, and
//!   are handed the lock when they have waited too long.
//! * [`RwLock`], over [`RawRwSem`]: the same for readers and writers; its [policies](rwsem::Policy) are type parameters.
//! * [`SpinMutex`], over [`RawSpin`]: waiters spin until they have it.
//! * [`PercpuRwLock`], over [`RawPercpuRwSem`]: readers count themselves per CPU and share no cache line; a writer pays.
//!
//! The first three work between processes, too (module `between_processes`), if asked.
//!
//! The guards are those of [`lock_api`]. Every lock takes an [`Instrument`]: hooks that run only when the lock is contended, and
//! that compile to nothing by default.
//!
//! Linux only. Without the feature `std` nothing but the system calls of libc is used; threads then have no numbers (see
//! `current_thread`), so that owners are unknown and spinners cannot queue: waiters of locks that sleep do so at once.
//!
//! The modules from the leaves up: `thread_number`; `queue_node`, `thread_record` (what is known of each thread); `current_thread`;
//! `spin_queue`, `spin_wait`, `handoff` (how a thread waits); the locks.

#![cfg_attr(not(any(feature = "std", loom, shuttle)), no_std)]

#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub mod between_processes;
mod current_thread;
mod generation;
#[cfg(not(any(loom, shuttle)))]
mod glibc_rseq;
mod handoff;
pub mod instrument;
#[cfg(not(any(loom, shuttle)))]
mod lock_api_traits;
mod lock_methods;
pub mod lockdep;
mod misuse;
#[cfg(all(test, any(loom, shuttle)))]
mod models;
mod mutex;
mod percpu_rwsem;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
pub mod preloaded;
mod queue_node;
mod read_samples;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod rseq_area;
pub mod rwsem;
#[cfg(all(feature = "std", not(any(loom, shuttle))))]
mod shared_numbers;
pub mod spin;
mod spin_queue;
mod spin_wait;
mod sync;
mod thread_number;
mod thread_record;
mod wait_limits;

pub use instrument::{Instrument, Unmetered};
#[cfg(not(any(loom, shuttle)))]
pub use lock_api_traits::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, SpinMutex, SpinMutexGuard};
pub use mutex::RawMutex;
#[cfg(not(any(loom, shuttle)))]
pub use percpu_rwsem::{PercpuRwLock, RawPercpuRwSem};
pub use rwsem::RawRwSem;
pub use spin::RawSpin;
pub use spin_wait::SPIN_NS;
pub use wait_limits::NotAcquired;

/// The README's example, which tests run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
