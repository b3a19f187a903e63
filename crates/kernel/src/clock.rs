//! What the clocks say: those that the programs read, and wall time for what they saw.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The kernel's monotonic clock, which the programs read, now.
pub fn monotonic_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_MONOTONIC))
}

/// CPU time of this thread so far.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(read(libc::CLOCK_THREAD_CPUTIME_ID))
}

/// When the kernel's monotonic clock, which the programs read, was 0, by the wall clock now.
pub fn boot_unix_ns() -> u64 {
    /// Of this many readings some are not interrupted between the clocks.
    const READINGS: usize = 20;
    let boot = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(read(libc::CLOCK_MONOTONIC))
    };
    // What passes between the clocks is taken from the result: the largest is nearest.
    nanoseconds((0..READINGS).map(|_| boot()).max().unwrap_or_default())
}

/// How long a tick of the kernel is, in which it counts jiffies.
pub fn tick_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    let failed = unsafe { libc::clock_getres(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) } != 0;
    let tick_ns = u64::try_from(time.tv_nsec).unwrap_or(0);
    if failed || tick_ns == 0 { SLOWEST_TICK_NS } else { tick_ns }
}

/// At 100 Hz.
const SLOWEST_TICK_NS: u64 = 10_000_000;

fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes sure that a tick is as long as the steps of the clock that the kernel moves at each tick.
    #[test]
    fn the_coarse_clock_moves_by_a_tick() {
        const STEPS: usize = 20;
        let coarse_ns = || nanoseconds(read(libc::CLOCK_MONOTONIC_COARSE));
        let next = |from_ns: u64| std::iter::repeat_with(coarse_ns).find(|now_ns| *now_ns > from_ns).unwrap();
        let times: Vec<u64> =
            std::iter::successors(Some(coarse_ns()), |from_ns| Some(next(*from_ns))).take(STEPS).collect();
        // A busy machine makes one step of several ticks.
        let shortest_ns = times.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
        assert!(shortest_ns.abs_diff(tick_ns()) < tick_ns() / 100, "{shortest_ns} ns, not {} ns", tick_ns());
    }
}
