//! The clock: the time stamp counter where the recorder found it good, else the monotonic clock.

use core::num::NonZeroU64;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds a tick, times 2^32; 0 while ticks are nanoseconds of `clock_gettime`.
// With what else is written when the library is loaded.
#[unsafe(link_section = ".data.lockmeter_start")]
static TICK_NS_SHIFTED: AtomicU64 = AtomicU64::new(0);

pub(super) fn calibrate(tick_ns_shifted: u64) {
    TICK_NS_SHIFTED.store(tick_ns_shifted, Relaxed);
    read_again();
}

/// When the monotonic clock was last read for [`coarse_ns`]: in ticks, and what it said.
// Forked children read them without a page fault.
#[unsafe(link_section = ".data.lockmeter_start")]
static LAST_READING: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The counter is not adjusted as the clock is, by up to 500 millionths: half a millisecond in this time.
const LONGEST_BETWEEN_READINGS_NS: u64 = 1_000_000_000;

/// Nanoseconds of the monotonic clock, within a millisecond. Reading the clock itself costs a forked child two page faults.
pub(super) fn coarse_ns() -> u64 {
    since_last_reading().unwrap_or_else(monotonic_ns)
}

/// Has [`coarse_ns`] need no other reading of the clock for a while. To be called before a fork.
pub(super) fn keep_reading() {
    if since_last_reading().is_none() && counter().is_some() {
        read_again();
    }
}

fn since_last_reading() -> Option<u64> {
    let (counter, [ticks, ns]) = (counter()?, [&LAST_READING[0], &LAST_READING[1]].map(|word| word.load(Relaxed)));
    let passed = counter.between_ns(ticks, counter.ticks());
    (ns != 0 && passed < LONGEST_BETWEEN_READINGS_NS).then(|| ns + passed)
}

fn read_again() {
    // Not valid meanwhile, for another thread that forks.
    LAST_READING[1].store(0, Relaxed);
    if let Some(counter) = counter() {
        LAST_READING[0].store(counter.ticks(), Relaxed);
        LAST_READING[1].store(monotonic_ns(), Relaxed);
    }
}

/// What [`calibrate`] was told.
pub(super) fn tick_ns_shifted() -> u64 {
    TICK_NS_SHIFTED.load(Relaxed)
}

/// The time stamp counter, where the recorder found it good.
#[derive(Clone, Copy)]
pub(super) struct Counter {
    tick_ns_shifted: NonZeroU64,
}

/// The time stamp counter, if it is what ticks.
#[inline(always)]
pub(super) fn counter() -> Option<Counter> {
    NonZeroU64::new(TICK_NS_SHIFTED.load(Relaxed)).map(|tick_ns_shifted| Counter { tick_ns_shifted })
}

impl Counter {
    /// Now, in ticks.
    #[inline(always)]
    pub(super) fn ticks(self) -> u64 {
        // SAFETY: every x86-64 processor has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    }

    /// The time from one tick to another; 0 if they are out of order (counters of two sockets may differ by a little).
    #[inline(always)]
    pub(super) fn between_ns(self, from: u64, to: u64) -> u64 {
        ((u128::from(to.saturating_sub(from)) * u128::from(self.tick_ns_shifted.get())) >> 32) as u64
    }
}

/// Now, in ticks.
#[inline]
pub(super) fn ticks() -> u64 {
    counter().map_or_else(monotonic_ns, Counter::ticks)
}

/// The time from one tick to another; 0 if they are out of order.
#[inline]
pub(super) fn between_ns(from: u64, to: u64) -> u64 {
    counter().map_or_else(|| to.saturating_sub(from), |counter| counter.between_ns(from, to))
}

/// Nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours; async-signal-safe, and it never fails for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
