//! The clock: the time stamp counter where the recorder found it good, else the monotonic clock.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds a tick, times 2^32; 0 while ticks are nanoseconds of `clock_gettime`.
static TICK_NS_SHIFTED: AtomicU64 = AtomicU64::new(0);

pub(super) fn calibrate(tick_ns_shifted: u64) {
    TICK_NS_SHIFTED.store(tick_ns_shifted, Relaxed);
}

/// Now, in ticks.
#[inline]
pub(super) fn ticks() -> u64 {
    if TICK_NS_SHIFTED.load(Relaxed) != 0 {
        // SAFETY: every x86-64 processor has it.
        unsafe { core::arch::x86_64::_rdtsc() }
    } else {
        monotonic_ns()
    }
}

/// How long so many ticks are.
#[inline]
pub(super) fn to_ns(ticks: u64) -> u64 {
    match TICK_NS_SHIFTED.load(Relaxed) {
        0 => ticks,
        shifted => ((u128::from(ticks) * u128::from(shifted)) >> 32) as u64,
    }
}

/// The time from one tick to another; 0 if they are out of order (counters of two sockets may differ by a little).
#[inline]
pub(super) fn between_ns(from: u64, to: u64) -> u64 {
    to_ns(to.saturating_sub(from))
}

/// Nanoseconds of the monotonic clock.
pub(super) fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours; async-signal-safe, and it never fails for this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}
