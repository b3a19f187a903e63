//! What measuring costs this process.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// CPU time of this process, from look to look.
#[derive(Debug)]
pub struct OwnCpu {
    seen_ns: u64,
}

impl OwnCpu {
    /// From now on.
    pub fn start() -> Self {
        Self { seen_ns: so_far_ns() }
    }

    /// How much was used since the last look.
    pub fn used_ns(&mut self) -> u64 {
        let now_ns = so_far_ns();
        now_ns.saturating_sub(std::mem::replace(&mut self.seen_ns, now_ns))
    }
}

fn so_far_ns() -> u64 {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::ProcessCPUTime);
    u64::try_from(tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(tv_nsec).unwrap_or(0)
}
