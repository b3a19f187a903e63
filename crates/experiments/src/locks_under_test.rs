//! The locks that the designs in user space are built on.

use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, SPIN_NS};

use crate::pthread_locks::{PthreadMutex, PthreadRwLock};
use crate::step_by_step::SpinTimes;

/// The global mutex of the old design, and each task's own in the new.
pub type TaskMutex = RawMutex;
/// How it spins before it sleeps.
pub const SPIN_TIMES: SpinTimes = SpinTimes {
    spin_ns: SPIN_NS as f64,
    watching_ns: 0.0,
    before_looking_ns: 0.0,
    first_backoff_ns: POLL_NS,
    longest_backoff_ns: POLL_NS,
};
/// A pause between two polls of the lock, and the poll: 3 to 60 ns, by the processor.
const POLL_NS: f64 = 30.0;
/// The lock that tasks read and CPUs write.
pub type ReaderLock = RawPercpuRwSem<RawRwSem>;
/// What they are, for a report.
pub const NAMES: &str = "lockmeter's Mutex, and its PercpuRwSem over its RwSem";
/// A mutex that a preloaded meter sees, for runs of one design alone.
pub type MeteredMutex = PthreadMutex;
/// The same of the lock that tasks read and CPUs write.
pub type MeteredReaderLock = PthreadRwLock;
