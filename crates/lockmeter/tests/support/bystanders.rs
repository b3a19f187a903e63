//! How much of the machine's CPU time went to others than the test and what it started.
//!
//! Contention for a spinlock needs its workers on CPUs at the same time. A load that does not get them contends little, on
//! other locks and in bursts, no matter who meters it.

use std::fs;

/// Above this share the machine was not the test's own, in percent.
pub const MUCH_PERCENT: u64 = 20;

/// What `/proc/stat` counts in: a hundredth of a second, on every machine that Linux runs on today.
const TICK_NS: u64 = 10_000_000;

/// What all CPUs have done up to a moment.
#[derive(Clone, Copy)]
pub struct Bystanders {
    busy_ns: u64,
    whole_ns: u64,
    ours_ns: u64,
}

impl Bystanders {
    /// Begins to watch them.
    pub fn watch() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let ticks: Vec<u64> =
            stat.lines().next().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what follows is in these already.
        let whole: u64 = ticks.iter().take(8).sum();
        let idle: u64 = ticks.iter().skip(3).take(2).sum();
        Self { busy_ns: (whole - idle) * TICK_NS, whole_ns: whole * TICK_NS, ours_ns: ours_ns() }
    }

    /// Their share of the machine since then, in percent. What the test started and waited for since counts as the test's.
    pub fn percent(&self) -> u64 {
        let now = Self::watch();
        let others_ns = (now.busy_ns - self.busy_ns).saturating_sub(now.ours_ns - self.ours_ns);
        others_ns * 100 / (now.whole_ns - self.whole_ns).max(1)
    }

    /// Whether the machine was too much theirs for a load to be what it is meant to be.
    pub fn took_much(&self) -> bool {
        self.percent() > MUCH_PERCENT
    }
}

/// CPU time of this process and of the children that it has waited for.
fn ours_ns() -> u64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|who| {
            // SAFETY: all-zero is a valid rusage.
            let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
            // SAFETY: writes one rusage, which is ours.
            unsafe { libc::getrusage(who, &raw mut usage) };
            [usage.ru_utime, usage.ru_stime]
                .iter()
                .map(|time| time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_usec.cast_unsigned() * 1_000)
                .sum::<u64>()
        })
        .sum()
}
