//! Work of a known length that touches no memory.

use std::hint::black_box;
use std::time::Instant;

/// Enough that two looks at the clock do not count.
const CALIBRATION_STEPS: u32 = 200_000;
/// The fastest of so many is what an undisturbed CPU does.
const CALIBRATION_TRIES: u32 = 30;

/// So many steps of a chain that no CPU can shorten.
#[inline(always)]
pub fn steps(count: u32) {
    if count > 0 {
        chain(count);
    }
}

/// One copy for all locks, so that none has a loop that happens to lie better.
#[inline(never)]
fn chain(count: u32) {
    let mut state = 1_u64;
    for _ in 0..count {
        state = black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d));
    }
}

/// Steps that take as long as one microsecond on this machine.
pub fn steps_per_us() -> u64 {
    let fastest_ns = (0..CALIBRATION_TRIES)
        .map(|_| {
            let begin = Instant::now();
            steps(CALIBRATION_STEPS);
            begin.elapsed().as_nanos()
        })
        .min()
        .unwrap_or(1)
        .max(1);
    u64::try_from(u128::from(CALIBRATION_STEPS) * 1000 / fastest_ns).unwrap_or(1).max(1)
}
