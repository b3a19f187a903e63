//! What metering costs a workload.
//!
//! Two ways. [`whole_runs`] runs a command bare and with every level in turn, in random order: what a user would do by hand, and
//! good where runs repeat to within what is asked. [`slices`] switches metering on and off a few times a second inside one run:
//! far more exact where a machine has other things to do. Both give the median of ratios within a round, its confidence
//! interval, and a [`Verdict`] that says when the noise is too large to tell.

mod kernel_switch;
pub mod naive;
pub mod progress;
pub mod slices;
mod verdict;
pub mod whole_runs;

use std::fmt;
use std::str::FromStr;

use lockmeter_statistics::Estimate;
use serde::Serialize;

pub use kernel_switch::KernelSwitch;
pub use verdict::Verdict;

/// How much is metered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing of lockmeter is there.
    Bare,
    /// Everything is in place, and switched off.
    Off,
    /// Waits, as `record` meters them.
    Wait,
    /// Waits, and every acquisition of the command's own locks with its hold, as `record --hold` meters them.
    Hold,
    /// Every acquisition of `mmap_lock` timed, with a stack, waited for or not: what nobody should do, for comparison.
    Naive,
}

impl Level {
    /// The levels to compare with [`Level::Bare`].
    pub const METERED: [Self; 4] = [Self::Off, Self::Wait, Self::Hold, Self::Naive];

    /// As on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Off => "off",
            Self::Wait => "wait",
            Self::Hold => "hold",
            Self::Naive => "naive",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Level {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::METERED.iter().copied().find(|level| level.name() == text);
        known.ok_or_else(|| format!("`{text}` is not a level; choose from off, wait, hold and naive"))
    }
}

/// What was measured of one level.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// The level.
    pub level: Level,
    /// What was compared.
    pub of: Measure,
    /// What it costs, as a share of the bare run: 0.01 is one percent.
    pub cost: Estimate,
    /// Whether that is within the limit.
    pub verdict: Verdict,
}

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Measure {
    /// From the start of the command to its end.
    WallTime,
    /// CPU time of the command and all that it started.
    CpuTime,
    /// The share of the target's CPU time that is its own, not the kernel's: kernel metering takes the rest.
    UserShare,
    /// Read and write calls of the target a second.
    Calls,
}

impl Measure {
    /// For a table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::WallTime => "wall time",
            Self::CpuTime => "CPU time",
            Self::UserShare => "share of user time",
            Self::Calls => "read and write calls a second",
        }
    }
}

/// A level that was asked for and could not be measured.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    /// The level.
    pub level: Level,
    /// Why, in a sentence.
    pub why: String,
}

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Costs {
    /// Rounds, in each of which every level was measured once.
    pub rounds: usize,
    /// Rounds left out, because the target did too little for a comparison.
    pub idle_rounds: usize,
    /// Level by level.
    pub costs: Vec<Cost>,
    /// Levels without a result.
    pub missing: Vec<Missing>,
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<6} {:<30} {:>8} {:>20}  VERDICT", "LEVEL", "MEASURED BY", "COST", "95 % BETWEEN")?;
        for Cost { level, of, cost, verdict } in &self.costs {
            let percent = |share: f64| format!("{:+.2} %", share * 100.0);
            let between = format!("{} … {}", percent(cost.low), percent(cost.high));
            writeln!(f, "{level:<6} {:<30} {:>8} {between:>20}  {verdict}", of.title(), percent(cost.median))?;
        }
        for Missing { level, why } in &self.missing {
            writeln!(f, "{level:<6} not measured: {why}")?;
        }
        Ok(())
    }
}
