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
    /// One per cent of CPU time: enough for thousands of stacks a second, and below what anybody notices.
    pub const DEFAULT: Self = Self::Share { ppm: 10_000 };
}
