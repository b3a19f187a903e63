//! What processes and threads used.

use libc::{c_int, rusage, timeval};

/// What this process (`RUSAGE_SELF`), this thread (`RUSAGE_THREAD`) or all children that were waited for, and theirs
/// (`RUSAGE_CHILDREN`), used so far.
pub struct ResourceUsage(rusage);

impl ResourceUsage {
    /// Of these.
    pub fn of(whose: c_int) -> Self {
        // SAFETY: all-zero is a valid rusage.
        let mut usage: rusage = unsafe { std::mem::zeroed() };
        // SAFETY: writes one rusage, which is ours.
        unsafe { libc::getrusage(whose, &raw mut usage) };
        Self(usage)
    }

    /// CPU time.
    pub fn cpu_ns(&self) -> u64 {
        let ns = |time: timeval| {
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1_000
        };
        ns(self.0.ru_utime) + ns(self.0.ru_stime)
    }

    /// Context switches, wanted or not.
    pub fn context_switches(&self) -> u64 {
        u64::try_from(self.0.ru_nvcsw + self.0.ru_nivcsw).unwrap_or(0)
    }
}
