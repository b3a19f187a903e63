//! The locks that the designs in user space are built on.

use crate::pthread_locks::{PthreadMutex, PthreadRwLock};

/// A mutex: the global one of the old design, and a task's own in the new.
pub type TaskMutex = PthreadMutex;
/// The lock that tasks read and CPUs write.
pub type ReaderLock = PthreadRwLock;
/// What they are, for a report.
pub const NAMES: &str = "pthread_mutex and pthread_rwlock";
