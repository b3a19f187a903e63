//! Nanoseconds a contended acquisition spends in the programs, from the kernel's own BPF statistics.

use std::time::Duration;

use anyhow::Result;
use bench_bpf_runs::switch_on_statistics;
use bench_harness::as_f64;
use lockmeter_statistics::{Estimate, Random};
use serde::Serialize;

use crate::loads::{Load, LoadName};
use crate::meters::{MeterName, Meters};
use crate::programs::{self, AllRuns};

/// Other tools' programs have other shapes; their cost shows in the throughput.
pub const METERS: [MeterName; 4] = [MeterName::Empty, MeterName::NoStacks, MeterName::Default, MeterName::Every];

/// What one meter's programs cost under one load.
#[derive(Debug, Clone, Serialize)]
pub struct RunCost {
    pub load: LoadName,
    pub meter: MeterName,
    /// Mean of one run.
    pub begin_ns: Estimate,
    pub end_ns: Estimate,
    pub waking_ns: Estimate,
    /// A wait may begin twice: spinning, then asleep.
    pub begins_per_acquisition: Estimate,
    /// begin and end of one contended acquisition, with what the kernel's timing itself adds.
    pub acquisition_ns: Estimate,
    /// The same, beyond the empty programs. 0 for these.
    pub beyond_empty_ns: Estimate,
}

/// The slices of one meter, a value each.
#[derive(Default)]
struct Slices {
    begin_ns: Vec<f64>,
    end_ns: Vec<f64>,
    waking_ns: Vec<f64>,
    begins: Vec<f64>,
    acquisition_ns: Vec<f64>,
    beyond_empty_ns: Vec<f64>,
}

/// Each round times every meter once, in random order; what is beyond the empty programs is taken within the round.
pub fn measure(
    load: &Load,
    meters: &mut Meters,
    rounds: usize,
    slice: Duration,
    random: &mut Random,
) -> Result<Vec<RunCost>> {
    let mut slices: [Slices; METERS.len()] = Default::default();
    for _ in 0..rounds {
        let mut order: Vec<usize> = (0..METERS.len()).collect();
        random.shuffle(&mut order);
        let mut of_round = [0.0; METERS.len()];
        for at in order {
            let runs = timed_runs(load, meters, METERS[at], slice)?;
            of_round[at] = slices[at].add(runs);
        }
        for (slices, acquisition_ns) in slices.iter_mut().zip(of_round) {
            slices.beyond_empty_ns.push(acquisition_ns - of_round[0]);
        }
    }
    let costs = METERS.into_iter().zip(&slices);
    Ok(costs.filter_map(|(meter, slices)| slices.cost(load.name, meter, random)).collect())
}

fn timed_runs(load: &Load, meters: &mut Meters, meter: MeterName, slice: Duration) -> Result<AllRuns> {
    let names = if meter == MeterName::Empty { programs::EMPTY } else { programs::LOCKMETER };
    let running = meters.start(meter, load)?;
    let switch = switch_on_statistics()?;
    let runs = load.at_work(|| -> Result<AllRuns> {
        std::thread::sleep(programs::SETTLE);
        let before = programs::own_runs(names)?;
        std::thread::sleep(slice);
        Ok(programs::own_runs(names)? - before)
    })?;
    drop(switch);
    drop(running);
    Ok(runs)
}

impl Slices {
    /// Returns what an acquisition cost.
    fn add(&mut self, runs: AllRuns) -> f64 {
        let acquisitions = as_f64(runs.end.count.max(1));
        let acquisition_ns = as_f64(runs.begin.time_ns + runs.end.time_ns) / acquisitions;
        self.begin_ns.push(runs.begin.mean_ns());
        self.end_ns.push(runs.end.mean_ns());
        self.waking_ns.push(runs.waking.mean_ns());
        self.begins.push(as_f64(runs.begin.count) / acquisitions);
        self.acquisition_ns.push(acquisition_ns);
        acquisition_ns
    }

    fn cost(&self, load: LoadName, meter: MeterName, random: &mut Random) -> Option<RunCost> {
        Some(RunCost {
            load,
            meter,
            begin_ns: Estimate::of(&self.begin_ns, random)?,
            end_ns: Estimate::of(&self.end_ns, random)?,
            waking_ns: Estimate::of(&self.waking_ns, random)?,
            begins_per_acquisition: Estimate::of(&self.begins, random)?,
            acquisition_ns: Estimate::of(&self.acquisition_ns, random)?,
            beyond_empty_ns: Estimate::of(&self.beyond_empty_ns, random)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use bench_bpf_runs::Runs;

    use super::*;

    /// Makes sure that a wait which begins twice is charged both begins, and an acquisition is one end.
    #[test]
    fn an_acquisition_is_charged_all_its_begins() {
        let runs = |count, time_ns| Runs { count, time_ns };
        let mut slices = Slices::default();
        let cost = slices.add(AllRuns { begin: runs(200, 20_000), end: runs(100, 15_000), waking: runs(0, 0) });
        assert!((cost - 350.0).abs() < 1e-9);
        assert!((slices.begin_ns[0] - 100.0).abs() < 1e-9);
        assert!((slices.begins[0] - 2.0).abs() < 1e-9);
        assert!(slices.waking_ns[0].abs() < 1e-9);
    }
}
