//! Whole runs of a command, bare and with every level, in random order.

use lockmeter_statistics::{Estimate, Random};

use super::{Cost, Costs, Level, Measure, Missing, Verdict};

/// What one run took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Run {
    /// From start to end.
    pub wall_ns: u64,
    /// CPU time of the command and all that it started and waited for.
    pub cpu_ns: u64,
}

/// How a run ended.
#[derive(Debug)]
pub enum Ended<Failure> {
    /// As it should.
    Well(Run),
    /// The user wants no more.
    Interrupted,
    /// This level is not possible here, for this reason.
    NotPossible(String),
    /// Nothing more can be measured.
    Failed(Failure),
}

/// Which run of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// In each round every level runs once; the warm-up belongs to the first.
    pub round: usize,
    /// Runs left, this one among them.
    pub left: usize,
}

/// How to compare.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How often each level runs.
    pub rounds: usize,
    /// Which, beside bare.
    pub levels: Vec<Level>,
    /// Costs above this share are too much.
    pub limit: f64,
}

/// Runs a warm-up and then every level once a round, in random order.
pub fn compare<Failure>(
    plan: &Plan,
    random: &mut Random,
    mut run: impl FnMut(Level, Step) -> Ended<Failure>,
) -> Result<Costs, Failure> {
    let mut levels = plan.levels.clone();
    let mut missing = Vec::new();
    let mut rounds: Vec<Vec<(Level, Run)>> = Vec::new();
    match run(Level::Bare, Step { round: 0, left: plan.rounds * (levels.len() + 1) + 1 }) {
        Ended::Failed(failure) => return Err(failure),
        Ended::Interrupted => return Ok(summarise(&[], &[], Vec::new(), plan.limit, random)),
        // The first run finds caches as no other does.
        Ended::Well(_) | Ended::NotPossible(_) => {}
    }
    'rounds: for round in 0..plan.rounds {
        let mut order: Vec<Level> = levels.iter().copied().chain([Level::Bare]).collect();
        random.shuffle(&mut order);
        let mut runs = Vec::new();
        for (at, level) in order.iter().enumerate() {
            let left = (plan.rounds - round) * order.len() - at;
            match run(*level, Step { round, left }) {
                Ended::Well(took) => runs.push((*level, took)),
                Ended::Interrupted => break 'rounds,
                Ended::Failed(failure) => return Err(failure),
                Ended::NotPossible(why) => {
                    levels.retain(|other| other != level);
                    missing.push(Missing { level: *level, why });
                }
            }
        }
        rounds.push(runs);
    }
    Ok(summarise(&rounds, &levels, missing, plan.limit, random))
}

fn summarise(
    rounds: &[Vec<(Level, Run)>],
    levels: &[Level],
    missing: Vec<Missing>,
    limit: f64,
    random: &mut Random,
) -> Costs {
    let mut costs = Vec::new();
    for level in levels {
        for of in [Measure::WallTime, Measure::CpuTime] {
            let took = |run: &Run| as_f64(if of == Measure::WallTime { run.wall_ns } else { run.cpu_ns });
            let find = |round: &[(Level, Run)], level| {
                round.iter().find(|(other, _)| *other == level).map(|(_, run)| took(run))
            };
            let cost = |round: &Vec<(Level, Run)>| {
                let bare = find(round, Level::Bare).filter(|bare| *bare > 0.0)?;
                Some(find(round, *level)? / bare - 1.0)
            };
            let samples: Vec<f64> = rounds.iter().filter_map(cost).collect();
            let Some(cost) = Estimate::of(&samples, random) else { continue };
            costs.push(Cost { level: *level, of, cost, verdict: Verdict::of(cost, limit) });
        }
    }
    Costs { rounds: rounds.len(), idle_rounds: 0, costs, missing }
}

#[expect(clippy::cast_precision_loss, reason = "no run takes 2^52 ns")]
const fn as_f64(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rounds: usize) -> Plan {
        Plan { rounds, levels: vec![Level::Wait, Level::Naive], limit: 0.01 }
    }

    fn took(ns: u64) -> Ended<()> {
        Ended::Well(Run { wall_ns: ns, cpu_ns: ns * 2 })
    }

    #[test]
    fn every_level_runs_once_a_round_after_one_warm_up() {
        let mut ran = Vec::new();
        let costs = compare(&plan(10), &mut Random::new(1), |level, step| {
            ran.push((level, step.round));
            took(if level == Level::Naive { 1_060 } else { 1_000 })
        })
        .unwrap();
        assert_eq!(ran.len(), 31);
        for level in [Level::Bare, Level::Wait, Level::Naive] {
            assert_eq!(ran[1..].iter().filter(|(ran, _)| *ran == level).count(), 10);
        }
        assert!(ran[1..].chunks(3).enumerate().all(|(round, runs)| runs.iter().all(|(_, of)| *of == round)));
        let orders: std::collections::HashSet<_> = ran[1..].chunks(3).map(|round| round[0].0).collect();
        assert!(orders.len() > 1, "the order never changed");
        let naive = costs.costs.iter().find(|cost| cost.level == Level::Naive && cost.of == Measure::WallTime).unwrap();
        assert!((naive.cost.median - 0.06).abs() < 1e-9);
        assert_eq!(naive.verdict, Verdict::Beyond { limit: 0.01 });
    }

    #[test]
    fn a_level_that_is_not_possible_is_left_out_and_the_others_go_on() {
        let costs = compare(&plan(6), &mut Random::new(1), |level, _| match level {
            Level::Naive => Ended::NotPossible::<()>("no such tracepoint".into()),
            _ => took(1_000),
        })
        .unwrap();
        assert_eq!((costs.rounds, costs.missing.len()), (6, 1));
        assert!(costs.costs.iter().all(|cost| cost.level == Level::Wait && cost.cost.samples == 6));
    }

    #[test]
    fn an_interrupted_comparison_gives_the_rounds_it_has() {
        let mut runs = 0;
        let costs = compare(&plan(10), &mut Random::new(1), |_, _| {
            runs += 1;
            if runs > 9 { Ended::Interrupted::<()> } else { took(1_000) }
        })
        .unwrap();
        assert_eq!(costs.rounds, 2);
    }

    #[test]
    fn a_run_that_fails_gives_no_ratio() {
        assert_eq!(compare(&plan(3), &mut Random::new(1), |_, _| Ended::Failed("status 2")).unwrap_err(), "status 2");
    }
}
