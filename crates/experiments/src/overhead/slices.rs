//! Metering switched on and off inside one run: slices of every level, in random order, round after round.

use std::time::{Duration, Instant};

use lockmeter_statistics::{Estimate, Random};

use super::progress::Progress;
use super::{Cost, Costs, Level, Missing, Verdict};

/// After a switch, until its own disturbance is over: attaching sends an interrupt to every CPU.
const SETTLE: Duration = Duration::from_millis(20);

/// Something whose level can be switched while the target runs.
pub trait Switch {
    /// Why it cannot be switched.
    type Error: std::fmt::Display;

    /// From when this returns, the level holds.
    fn switch(&mut self, level: Level) -> Result<(), Self::Error>;
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Most rounds; the target's end or the user may come before.
    pub rounds: usize,
    /// How long each level is on at a time.
    pub slice: Duration,
    /// Which, beside bare.
    pub levels: Vec<Level>,
    /// Costs above this share are too much.
    pub limit: f64,
}

/// Why a pause ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paused {
    /// It is over.
    Over,
    /// The target has ended, or the user wants no more.
    Stop,
}

/// Measures until the plan's rounds are done or `pause` says to stop. `pause` waits; it is told how many slices are left.
pub fn compare<S: Switch>(
    plan: &Plan,
    switch: &mut S,
    progress: &mut Progress,
    random: &mut Random,
    mut pause: impl FnMut(Duration, usize) -> Paused,
) -> Costs {
    let mut levels = plan.levels.clone();
    let mut missing = Vec::new();
    let mut rounds: Vec<Vec<(Level, f64)>> = Vec::new();
    'rounds: for round in 0..plan.rounds {
        let mut order: Vec<Level> = levels.iter().copied().chain([Level::Bare]).collect();
        random.shuffle(&mut order);
        let mut rates = Vec::new();
        for (at, level) in order.iter().enumerate() {
            if let Err(error) = switch.switch(*level) {
                levels.retain(|other| other != level);
                missing.push(Missing { level: *level, why: error.to_string() });
                continue;
            }
            let left = (plan.rounds - round) * order.len() - at;
            let Some(rate) = slice(plan.slice, progress, &mut pause, left) else { break 'rounds };
            rates.push((*level, rate));
        }
        rounds.push(rates);
    }
    let costs = levels.iter().filter_map(|level| {
        let find =
            |round: &[(Level, f64)], level| round.iter().find(|(other, _)| *other == level).map(|(_, rate)| *rate);
        let cost = |round: &Vec<(Level, f64)>| {
            let bare = find(round, Level::Bare).filter(|bare| *bare > 0.0)?;
            Some(1.0 - find(round, *level)? / bare)
        };
        let samples: Vec<f64> = rounds.iter().filter_map(cost).collect();
        let cost = Estimate::of(&samples, random)?;
        Some(Cost { level: *level, of: progress.measure(), cost, verdict: Verdict::of(cost, plan.limit) })
    });
    Costs { rounds: rounds.len(), costs: costs.collect(), missing }
}

/// Progress during one slice. `None` if it was broken off, or nothing could be read.
fn slice(
    length: Duration,
    progress: &mut Progress,
    pause: &mut impl FnMut(Duration, usize) -> Paused,
    left: usize,
) -> Option<f64> {
    if pause(SETTLE, left) == Paused::Stop {
        return None;
    }
    let (begin, before) = (Instant::now(), progress.read()?);
    if pause(length, left) == Paused::Stop {
        return None;
    }
    let after = progress.read()?;
    Some(after.since(&before, begin.elapsed()))
}
