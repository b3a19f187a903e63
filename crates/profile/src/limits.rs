//! How much memory a report of a file may take: files come from anywhere, and a small one can hold a million names.

use std::fmt;

/// What a view may hold. Sizes are estimates of what items take until the report is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    memory_bytes: usize,
}

/// Enough for 200,000 rows with a stack of 20 functions each; with what decoding takes, a reader stays below 256 MiB.
const LEAST_MEMORY_BYTES: usize = 192 << 20;

/// Of files for which [`LEAST_MEMORY_BYTES`] is the limit. What larger ones may take grows in proportion.
const SMALL_FILE_BYTES: u64 = 10 << 20;

impl Limits {
    /// No limits: for what lockmeter itself measures.
    pub const NONE: Self = Self { memory_bytes: usize::MAX };

    /// For a recording of which so much was read.
    pub fn of_recording(read_bytes: u64) -> Self {
        let scaled = LEAST_MEMORY_BYTES as u128 * u128::from(read_bytes) / u128::from(SMALL_FILE_BYTES);
        Self { memory_bytes: usize::try_from(scaled).unwrap_or(usize::MAX).max(LEAST_MEMORY_BYTES) }
    }

    /// For one of several reports that are held together.
    #[must_use]
    pub const fn shared_by(self, reports: usize) -> Self {
        Self { memory_bytes: self.memory_bytes / if reports == 0 { 1 } else { reports } }
    }

    /// Whether so much may be held.
    pub const fn check(&self, memory_bytes: usize) -> Result<(), TooLarge> {
        if memory_bytes <= self.memory_bytes { Ok(()) } else { Err(TooLarge { memory_bytes: self.memory_bytes }) }
    }
}

/// A report would take more memory than its recording may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge {
    memory_bytes: usize,
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "its different locks, tasks and stacks need more than the {} MiB of memory that a file of this size may take",
            self.memory_bytes >> 20
        )
    }
}

impl std::error::Error for TooLarge {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_larger_file_may_take_more() {
        let small = Limits::of_recording(0);
        assert_eq!(small, Limits::of_recording(SMALL_FILE_BYTES));
        assert!(small.check(LEAST_MEMORY_BYTES).is_ok() && small.check(LEAST_MEMORY_BYTES + 1).is_err());
        assert!(Limits::of_recording(2 * SMALL_FILE_BYTES).check(2 * LEAST_MEMORY_BYTES).is_ok());
        assert!(Limits::of_recording(u64::MAX).check(usize::MAX / 2).is_ok() && Limits::NONE.check(usize::MAX).is_ok());
    }
}
