//! How long a tick of the time stamp counter is, found out by the clock.

use std::fs;
use std::time::{Duration, Instant};

use crate::writer::monotonic_ns;

/// How long the counter is compared with the clock: an error of 100 ns at each end is then ten millionths.
const CALIBRATION: Duration = Duration::from_millis(20);

/// How often both are read at each end. A reading that is interrupted for milliseconds, on a busy machine or by its host, would make
/// every time wrong by as much as they are of the calibration.
const READINGS: usize = 50;

/// Nanoseconds a tick of the time stamp counter, times 2^32; 0 if the kernel itself does not trust the counter.
pub(super) fn calibrate() -> u64 {
    let source = fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    if source.is_ok_and(|source| source.trim() == "tsc") { measure() } else { 0 }
}

fn measure() -> u64 {
    let Some(begin) = least_interrupted((0..READINGS).map(|_| Reading::now())) else { return 0 };
    std::thread::sleep(CALIBRATION);
    let Some(end) = least_interrupted((0..READINGS).map(|_| Reading::now())) else { return 0 };
    let ns = (end.clock() - begin.clock()).as_nanos() << 32;
    let ticks = u128::from(end.ticks.saturating_sub(begin.ticks));
    u64::try_from(ns.checked_div(ticks).unwrap_or(0)).unwrap_or(0)
}

/// What lies between two readings that follow each other: so much of each timed hold is the meter's own.
#[derive(Debug, Clone, Copy)]
pub(super) struct BetweenReadings {
    /// Of the counter, in ticks.
    ticks: u64,
    /// Of the clock.
    clock_ns: u64,
}

impl BetweenReadings {
    /// The least of many: interrupts come between some.
    pub(super) fn measure() -> Self {
        // SAFETY: every x86-64 processor has it.
        Self { ticks: least_between(|| unsafe { std::arch::x86_64::_rdtsc() }), clock_ns: least_between(monotonic_ns) }
    }

    /// Of a program with this length of a tick, as [`calibrate`] gave it.
    pub(super) fn ns(self, tick_ns_shifted: u64) -> u64 {
        match tick_ns_shifted {
            0 => self.clock_ns,
            tick => u64::try_from((u128::from(self.ticks) * u128::from(tick)) >> 32).unwrap_or(u64::MAX),
        }
    }
}

fn least_between(read: impl Fn() -> u64) -> u64 {
    const PAIRS: usize = 1000;
    let between = (0..PAIRS).map(|_| {
        let before = read();
        read().saturating_sub(before)
    });
    between.min().unwrap_or(0)
}

/// The counter, and the clock before and after it.
struct Reading {
    before: Instant,
    ticks: u64,
    after: Instant,
}

impl Reading {
    fn now() -> Self {
        let before = Instant::now();
        // SAFETY: every x86-64 processor has it.
        let ticks = unsafe { std::arch::x86_64::_rdtsc() };
        Self { before, ticks, after: Instant::now() }
    }

    fn took(&self) -> Duration {
        self.after - self.before
    }

    fn clock(&self) -> Instant {
        self.before + self.took() / 2
    }
}

fn least_interrupted(readings: impl Iterator<Item = Reading>) -> Option<Reading> {
    readings.min_by_key(Reading::took)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: times were wrong by up to two fifths where the recorder was interrupted while it read the counter.
    #[test]
    fn of_many_readings_the_least_interrupted_counts() {
        let start = Instant::now();
        let reading = |began_us: u64, ticks: u64, ended_us: u64| Reading {
            before: start + Duration::from_micros(began_us),
            ticks,
            after: start + Duration::from_micros(ended_us),
        };
        let readings = [reading(0, 1, 8_000), reading(8_000, 8_001, 8_002), reading(8_002, 9_500, 9_600)];
        let chosen = least_interrupted(readings.into_iter()).unwrap();
        assert_eq!((chosen.ticks, chosen.clock() - start), (8_001, Duration::from_micros(8_001)));
    }
}
