//! The locks that the designs in user space are built on.

use lockmeter_locks::{RawMutex, RawPercpuRwSem, RawRwSem, spinning_times};
use lockmeter_predict::step_by_step::SpinTimes;

use crate::pthread_locks::PthreadMutex;

/// The global mutex of the old design, and each task's own in the new.
pub type TaskMutex = RawMutex;
/// How it spins before it sleeps.
pub const SPIN_TIMES: SpinTimes = SpinTimes {
    spin_ns: spinning_times::SPIN_NS as f64,
    watching_ns: spinning_times::WATCHING_NS as f64,
    before_looking_ns: spinning_times::BEFORE_LOOKING_NS as f64,
    first_backoff_ns: spinning_times::FIRST_BACKOFF_NS as f64,
    longest_backoff_ns: spinning_times::LONGEST_BACKOFF_NS as f64,
};
/// The lock that tasks read and CPUs write.
pub type ReaderLock = RawPercpuRwSem<RawRwSem>;
/// What they are, for a report.
pub const NAMES: &str = "lockmeter's Mutex, and its PercpuRwSem over its RwSem";
/// A mutex that a preloaded meter sees, for runs of one design alone.
pub type MeteredMutex = PthreadMutex;
