//! The multiplier that spreads addresses over tables, also in entries written in assembly.

/// 32-bit golden ratio.
pub const CELL_MULTIPLIER: u32 = 0x9e37_79b1;
