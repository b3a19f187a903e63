//! What metering may cost, and whether it does.

use std::fmt;

use serde::Serialize;

use crate::loads::LoadName;
use lockmeter_statistics::Estimate;

/// begin and end of a contended acquisition without a stack, beyond empty programs.
pub const ACQUISITION_NS: f64 = 250.0;
/// Kernel memory.
pub const BYTES_PER_CPU: usize = 2 << 20;

/// The share of throughput that the default settings may cost a load, where there is a goal for it.
pub const fn loss(load: LoadName) -> Option<f64> {
    match load {
        LoadName::Mutex10k => Some(0.01),
        LoadName::Mutex150k => Some(0.03),
        LoadName::MutexFull | LoadName::Spin | LoadName::Rwsem | LoadName::PageFaults | LoadName::Compile => None,
    }
}

/// An interval against a goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Met,
    Missed,
    /// The goal lies inside the interval.
    Undecided,
}

impl Verdict {
    pub fn of(cost: Estimate, goal: f64) -> Self {
        if cost.high <= goal {
            Self::Met
        } else if cost.low > goal {
            Self::Missed
        } else {
            Self::Undecided
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Undecided => "undecided: within the spread",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_inside_the_interval_is_undecided() {
        let cost = Estimate { median: 10.0, low: 8.0, high: 12.0, samples: 60 };
        assert_eq!(Verdict::of(cost, 12.0), Verdict::Met);
        assert_eq!(Verdict::of(cost, 11.0), Verdict::Undecided);
        assert_eq!(Verdict::of(cost, 7.0), Verdict::Missed);
    }
}
