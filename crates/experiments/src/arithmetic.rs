//! Work that is nothing but arithmetic.

use std::hint::black_box;

/// This many steps, each of which needs the one before. In a register: through memory (a `black_box` at each step) they take once or
/// twice as long.
pub(crate) fn steps(count: u64) {
    let mut state = 1_u64;
    for _ in 0..count {
        state = (state ^ state >> 32).wrapping_mul(0x5851_f42d_4c95_7f2d);
    }
    black_box(state);
}
