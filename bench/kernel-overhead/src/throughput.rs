//! How much of a contended load's throughput is left when it is metered: pairs of slices in random order.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bench_harness::as_f64;
use lockmeter_statistics::{Estimate, Random};
use serde::Serialize;

use crate::loads::{Load, LoadName};
use crate::meters::{MeterName, Meters};
use crate::programs;

/// How to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub pairs: usize,
    pub slice: Duration,
    /// Whether pairs are measured again during which something else metered contention.
    pub repeats: bool,
}

/// What was compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Series {
    /// Attached against not attached.
    Attached(MeterName),
    /// lockmeter attached all the time, counting against paused: what the programs do after their first lines.
    Paused,
}

impl Series {
    pub fn title(self) -> String {
        match self {
            Self::Attached(meter) => meter.title().to_owned(),
            Self::Paused => "lockmeter, default: counting / paused".to_owned(),
        }
    }
}

/// Metered over bare throughput.
#[derive(Debug, Clone, Serialize)]
pub struct Ratio {
    pub series: Series,
    pub ratio: Estimate,
}

/// A series that this machine cannot run.
#[derive(Debug, Clone, Serialize)]
pub struct Missing {
    pub series: Series,
    pub why: String,
}

/// The results of one load.
#[derive(Debug, Clone, Serialize)]
pub struct Throughput {
    pub load: LoadName,
    /// Of the whole machine, a second, the load bare.
    pub contentions_per_s: Estimate,
    pub operations_per_s: Estimate,
    pub ratios: Vec<Ratio>,
    pub missing: Vec<Missing>,
    /// Pairs thrown away and measured again because another program metered contention meanwhile.
    pub disturbed_pairs: usize,
}

/// Measures one load with all meters. `Err` only if nothing can be measured; a meter that will not run is data.
pub fn measure(
    load: &Load,
    meters: &mut Meters,
    wanted: &[MeterName],
    plan: Plan,
    random: &mut Random,
) -> Result<Throughput> {
    let (contentions_per_s, operations_per_s) = rates(load, meters, plan, random)?;
    let mut pairs =
        Pairs { load, meters, plan, disturbed: 0, allowed_to_repeat: if plan.repeats { plan.pairs } else { 0 } };
    let mut kept: Vec<(MeterName, Vec<f64>)> = wanted.iter().map(|meter| (*meter, Vec::new())).collect();
    let mut missing = Vec::new();
    for _ in 0..plan.pairs {
        random.shuffle(&mut kept);
        kept.retain_mut(|(meter, ratios)| match pairs.undisturbed(*meter, random) {
            Ok(ratio) => {
                ratios.push(ratio);
                true
            }
            Err(error) => {
                missing.push(Missing { series: Series::Attached(*meter), why: format!("{error:#}") });
                false
            }
        });
    }
    let disturbed_pairs = pairs.disturbed;
    kept.sort_by_key(|(meter, _)| wanted.iter().position(|other| other == meter));
    let mut ratios: Vec<Ratio> = kept
        .into_iter()
        .filter_map(|(meter, ratios)| {
            Some(Ratio { series: Series::Attached(meter), ratio: Estimate::of(&ratios, random)? })
        })
        .collect();
    if wanted.contains(&MeterName::Default) {
        let ratio = paused(load, meters, plan, random)?;
        ratios.push(Ratio { series: Series::Paused, ratio });
    }
    Ok(Throughput { load: load.name, contentions_per_s, operations_per_s, ratios, missing, disturbed_pairs })
}

/// Contentions and operations a second.
fn rates(load: &Load, meters: &mut Meters, plan: Plan, random: &mut Random) -> Result<(Estimate, Estimate)> {
    const SLICES: usize = 9;
    let (mut contentions, mut operations) = (Vec::new(), Vec::new());
    for _ in 0..SLICES.min(plan.pairs.max(1)) {
        let counted = load.at_work(|| -> Result<(u64, Duration)> {
            std::thread::sleep(programs::SETTLE);
            operations.push(operations_per_s(load, plan.slice));
            let begin = Instant::now();
            let ends = meters.count_ends(|| std::thread::sleep(plan.slice))?;
            Ok((ends, begin.elapsed()))
        })?;
        contentions.push(as_f64(counted.0) / counted.1.as_secs_f64());
    }
    match (Estimate::of(&contentions, random), Estimate::of(&operations, random)) {
        (Some(contentions), Some(operations)) => Ok((contentions, operations)),
        _ => bail!("no slice was measured"),
    }
}

struct Pairs<'a> {
    load: &'a Load,
    meters: &'a mut Meters,
    plan: Plan,
    disturbed: usize,
    allowed_to_repeat: usize,
}

impl Pairs<'_> {
    /// A pair during which nobody else metered contention, as far as patience goes.
    fn undisturbed(&mut self, meter: MeterName, random: &mut Random) -> Result<f64> {
        loop {
            let disturbed_before = self.meters.disturbed();
            let [bare, metered] = self.pair(meter, random)?;
            let disturbed = disturbed_before || self.meters.disturbed() || bare <= 0.0;
            if !disturbed || self.disturbed >= self.allowed_to_repeat {
                if bare <= 0.0 {
                    bail!("the load did nothing in a whole slice");
                }
                return Ok(metered / bare);
            }
            self.disturbed += 1;
        }
    }

    /// Bare and metered throughput, measured one right after the other, whichever first.
    fn pair(&mut self, meter: MeterName, random: &mut Random) -> Result<[f64; 2]> {
        let bare_first = random.below(2) == 0;
        let mut bare = 0.0;
        if bare_first {
            bare = settled_operations_per_s(self.load, self.plan.slice);
        }
        let running = self.meters.start(meter, self.load)?;
        let metered = settled_operations_per_s(self.load, self.plan.slice);
        drop(running);
        if !bare_first {
            bare = settled_operations_per_s(self.load, self.plan.slice);
        }
        Ok([bare, metered])
    }
}

/// lockmeter stays attached; only whether it counts changes.
fn paused(load: &Load, meters: &Meters, plan: Plan, random: &mut Random) -> Result<Estimate> {
    let mut source = meters.start_lockmeter(MeterName::Default, load)?;
    let mut ratios = Vec::new();
    for _ in 0..plan.pairs {
        let mut order = [false, true];
        random.shuffle(&mut order);
        let mut rates = [0.0; 2];
        for paused in order {
            source.pause(paused);
            rates[usize::from(paused)] = settled_operations_per_s(load, plan.slice);
        }
        ratios.push(rates[0] / rates[1].max(1.0));
    }
    match Estimate::of(&ratios, random) {
        Some(estimate) => Ok(estimate),
        None => bail!("no slice was measured"),
    }
}

/// From when the load works evenly and the last switch has taken effect.
fn settled_operations_per_s(load: &Load, slice: Duration) -> f64 {
    load.at_work(|| {
        std::thread::sleep(programs::SETTLE);
        operations_per_s(load, slice)
    })
}

fn operations_per_s(load: &Load, slice: Duration) -> f64 {
    let (begin, before) = (Instant::now(), load.operations());
    std::thread::sleep(slice);
    let (elapsed, after) = (begin.elapsed(), load.operations());
    as_f64(after - before) / elapsed.as_secs_f64()
}
