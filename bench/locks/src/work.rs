//! Work of a known length that touches no memory.

use std::hint::black_box;
use std::time::Instant;

/// Enough that two looks at the clock do not count.
const CALIBRATION_STEPS: u32 = 200_000;
/// The fastest of this many is what an undisturbed CPU does.
const CALIBRATION_TRIES: u32 = 30;

/// This many steps of a chain that no CPU can shorten, nor begin before it knows `seed`; the last one's result. In a section the seed
/// is what the lock protects, and after it what the section gave: else a CPU does part of the one while it waits for the lock's
/// cache line, and of the other while it is still in the section.
#[inline(always)]
pub fn steps(count: u32, seed: u64) -> u64 {
    if count > 0 { chain(count, seed) } else { seed }
}

/// One copy for all locks, so that none has a loop that happens to lie better. The state stays in a register: through memory (a
/// `black_box` at each step) the same steps took once or twice as long, by whether the processor foresaw the loads.
#[inline(never)]
fn chain(count: u32, seed: u64) -> u64 {
    let mut state = seed | 1;
    for _ in 0..count {
        // No compiler knows a shorter way to the last of these.
        state = (state ^ state >> 32).wrapping_mul(0x5851_f42d_4c95_7f2d);
    }
    // A store: the instruction that unlocks, or locks next, waits for it and so for all steps.
    black_box(state)
}

/// Steps that take as long as one microsecond on this machine.
pub fn steps_per_us() -> u64 {
    let fastest_ns = (0..CALIBRATION_TRIES)
        .map(|_| {
            let begin = Instant::now();
            black_box(steps(CALIBRATION_STEPS, 1));
            begin.elapsed().as_nanos()
        })
        .min()
        .unwrap_or(1)
        .max(1);
    u64::try_from(u128::from(CALIBRATION_STEPS) * 1000 / fastest_ns).unwrap_or(1).max(1)
}
