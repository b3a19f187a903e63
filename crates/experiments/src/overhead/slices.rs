//! Metering switched on and off inside one run: slices of every level, in random order, round after round.

use std::time::{Duration, Instant};

use lockmeter_statistics::{Estimate, Random};

use super::progress::Progress;
use super::{Cost, Costs, Level, Missing, Verdict};

/// After a switch, until its own disturbance is over: attaching sends an interrupt to every CPU.
const SETTLE: Duration = Duration::from_millis(20);

/// A target that did nothing in this many rounds from the first on has nothing to do.
const IDLE_ROUNDS: usize = 10;

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

/// Measures until the plan's rounds are done, `pause` says to stop, or the target is seen to do nothing. `pause` waits; it is told
/// how many slices are left.
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
    let mut idle_rounds = 0;
    'rounds: for round in 0..plan.rounds {
        let mut order: Vec<Level> = levels.iter().copied().chain([Level::Bare]).collect();
        random.shuffle(&mut order);
        let mut rates = Vec::new();
        let mut done = 0.0;
        for (at, level) in order.iter().enumerate() {
            if let Err(error) = switch.switch(*level) {
                levels.retain(|other| other != level);
                missing.push(Missing { level: *level, why: error.to_string() });
                continue;
            }
            let left = (plan.rounds - round) * order.len() - at;
            let Some(slice) = slice(plan.slice, progress, &mut pause, left) else { break 'rounds };
            rates.push((*level, slice.rate));
            done += slice.done;
        }
        // Nothing can be a share of nothing. Whether there was enough to do is seen on all levels together: to choose rounds by one
        // level alone would favour it.
        let enough = done >= progress.least() * rates.len() as f64;
        match find(&rates, Level::Bare) {
            Some(bare) if bare > 0.0 && enough => rounds.push(rates),
            _ => idle_rounds += 1,
        }
        if rounds.is_empty() && idle_rounds >= IDLE_ROUNDS {
            break;
        }
    }
    let costs = levels.iter().filter_map(|level| {
        let cost = |round: &Vec<(Level, f64)>| Some(1.0 - find(round, *level)? / find(round, Level::Bare)?);
        let samples: Vec<f64> = rounds.iter().filter_map(cost).collect();
        let cost = Estimate::of(&samples, random)?;
        Some(Cost { level: *level, of: progress.measure(), cost, verdict: Verdict::of(cost, plan.limit) })
    });
    Costs { rounds: rounds.len(), idle_rounds, costs: costs.collect(), missing }
}

/// The rate at this level in a round.
fn find(round: &[(Level, f64)], level: Level) -> Option<f64> {
    round.iter().find(|(other, _)| *other == level).map(|(_, rate)| *rate)
}

/// What the target got done in a slice.
struct Slice {
    done: f64,
    rate: f64,
}

/// Progress during one slice. `None` if it was interrupted, or nothing could be read.
fn slice(
    length: Duration,
    progress: &mut Progress,
    pause: &mut impl FnMut(Duration, usize) -> Paused,
    left: usize,
) -> Option<Slice> {
    if pause(SETTLE, left) == Paused::Stop {
        return None;
    }
    let (begin, before) = (Instant::now(), progress.read()?);
    if pause(length, left) == Paused::Stop {
        return None;
    }
    let after = progress.read()?;
    Some(Slice { done: after.done_since(&before), rate: after.since(&before, begin.elapsed()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSwitch;

    impl Switch for NoSwitch {
        type Error = String;

        fn switch(&mut self, _: Level) -> Result<(), String> {
            Ok(())
        }
    }

    fn plan(rounds: usize) -> Plan {
        Plan { rounds, slice: Duration::from_millis(1), levels: vec![Level::Wait], limit: 0.01 }
    }

    /// Compares a bare slice of this much user time and kernel time with a metered one of the same.
    fn compare_slices_of(user_usec: u64, system_usec: u64) -> Costs {
        let group = tempfile::tempdir().unwrap();
        let mut progress = Progress::Group(group.path().to_owned());
        let mut slices = 0;
        let times = |slices| format!("user_usec {}\nsystem_usec {}\n", slices * user_usec, slices * system_usec);
        compare(&plan(3), &mut NoSwitch, &mut progress, &mut Random::new(1), |time, _| {
            slices += u64::from(time != SETTLE);
            std::fs::write(group.path().join("cpu.stat"), times(slices)).unwrap();
            Paused::Over
        })
    }

    #[test]
    fn rounds_with_less_user_time_than_the_kernels_ticks_tell_are_left_out() {
        let told = compare_slices_of(11_000, 89_000);
        assert_eq!((told.rounds, told.idle_rounds, told.costs[0].cost.median), (3, 0, 0.0), "{told}");
        let hardly_any = compare_slices_of(9_000, 91_000);
        assert_eq!((hardly_any.rounds, hardly_any.idle_rounds), (0, 3), "{hardly_any}");
    }

    #[test]
    fn a_target_that_does_nothing_is_given_up_soon() {
        let group = tempfile::tempdir().unwrap();
        std::fs::write(group.path().join("cpu.stat"), "user_usec 7\nsystem_usec 5\n").unwrap();
        let mut progress = Progress::Group(group.path().to_owned());
        let mut slices = 0;
        let costs = compare(&plan(1_000), &mut NoSwitch, &mut progress, &mut Random::new(1), |_, _| {
            slices += 1;
            Paused::Over
        });
        assert_eq!((costs.rounds, costs.idle_rounds), (0, IDLE_ROUNDS), "{costs}");
        assert!(costs.costs.is_empty() && slices < 100, "{slices} pauses");
    }
}
