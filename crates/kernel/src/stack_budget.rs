//! How much stacks may cost.

/// The share of CPU time that taking stacks may use.
///
/// Totals are exact whatever the budget; it decides only on how many stacks callers and blockers rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackBudget {
    /// At most this many millionths of the machine's CPU time.
    Share {
        /// 10,000 is one per cent.
        ppm: u32,
    },
    /// Take them all, whatever it costs.
    Every,
}

impl StackBudget {
    /// Three thousandths of CPU time: some 2,000 stacks a second for each CPU. A stack lengthens a hold or a wait, so a load
    /// that is one chain of waits loses up to the share times the number of CPUs.
    pub const DEFAULT: Self = Self::Share { ppm: 3_000 };
}
