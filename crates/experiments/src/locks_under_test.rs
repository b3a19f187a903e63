//! The locks that the designs in user space are built on.

use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem};

use crate::pthread_locks::PthreadMutex;

/// The global mutex of the old design, and each task's own in the new.
pub type TaskMutex = RawMutex;
/// The lock that tasks read and CPUs write.
pub type ReaderLock = RawPercpuRwSem<RawRwSem>;
/// What they are, for a report.
pub const NAMES: &str = "lockmeter's Mutex, and its PercpuRwSem over its RwSem";
/// A mutex that a preloaded meter sees, for runs of one design alone.
pub type MeteredMutex = PthreadMutex;
