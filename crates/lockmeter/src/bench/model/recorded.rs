//! The way of a user: `record --hold` of the old accounting with one thread and with two, and what `predict` says from either.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use lockmeter_predict::forecast::{Forecast, Plan, Prices, forecast};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::Dimension;
use lockmeter_profile::view::Query;
use lockmeter_statistics::{Estimate, Random};
use serde::Serialize;

use super::super::Stop;
use crate::overhead::child::Scratch;
use crate::overhead::time_left::TimeLeft;
use crate::report;

/// What is recorded: the work of a task, and the CPUs that are accounted for, which make the hold.
const WORKLOADS: [(&str, &str); 3] = [("2us", "256"), ("20us", "64"), ("100us", "256")];
/// Long enough that what a process does at its start does not count.
const SLICE: &str = "1s";
/// More say no more, and each takes two seconds a workload.
const MOST_ROUNDS: usize = 3;

/// Acquisitions a second of two threads.
#[derive(Debug, Serialize)]
pub struct Recorded {
    pub work: &'static str,
    pub hold_ns: f64,
    /// As recorded with two threads.
    pub measured: Estimate,
    /// Predicted from the recording of one, over that, less 1; by the waits that a lock of the kind costs typically.
    pub from_one: Estimate,
    /// The model of two threads over the recording that it was made from, less 1.
    pub from_two: Estimate,
}

pub fn check(rounds: usize, stop: &mut Stop, random: &mut Random) -> Result<Vec<Recorded>> {
    let scratch = Scratch::create()?;
    let mut time_left = TimeLeft::new();
    let rounds = rounds.min(MOST_ROUNDS);
    let mut left = WORKLOADS.len() * rounds;
    let mut checked = Vec::new();
    for workload in WORKLOADS {
        let mut pairs = Vec::new();
        for _ in 0..rounds {
            time_left.step("recordings", left);
            left -= 1;
            if !stop.go_on() {
                break;
            }
            let one = predicted(&scratch.recording(), workload, 1)?;
            pairs.push((one, predicted(&scratch.recording(), workload, 2)?));
        }
        let mut of =
            |of: fn(&(Forecast, Forecast)) -> f64| Estimate::of(&pairs.iter().map(of).collect::<Vec<_>>(), random);
        let Some(measured) = of(|(_, two)| two.recorded_per_second) else { break };
        let hold_ns = of(|(one, _)| one.hold_ns);
        let from_one = of(|(one, two)| sleeping(one) / two.recorded_per_second - 1.0);
        let from_two = of(|(_, two)| two.check.with_handoff);
        if let (Some(hold_ns), Some(from_one), Some(from_two)) = (hold_ns, from_one, from_two) {
            checked.push(Recorded { work: workload.0, hold_ns: hold_ns.median, measured, from_one, from_two });
        }
    }
    time_left.clear();
    Ok(checked)
}

/// On two CPUs, the waiters asleep as they are for a `pthread_mutex`.
fn sleeping(forecast: &Forecast) -> f64 {
    forecast.points.first().map_or(0.0, |point| point.sleeping)
}

/// What is predicted from a recording with so many threads.
fn predicted(recording: &Path, (work, cpus): (&str, &str), threads: usize) -> Result<Forecast> {
    let own = std::env::current_exe().context("cannot tell where lockmeter itself is")?;
    let mut command = Command::new(&own);
    command.args(["record", "--quiet", "--user", "--hold", "-o"]).arg(recording).arg("--").arg(&own);
    command.args(["bench", "breakpoint", "--only", "before", "-b", "4", "--cpus", cpus, "--slice", SLICE]);
    command.args(["--user-threads", &threads.to_string(), "--work", work]);
    let output = command.stdin(Stdio::null()).output().context("cannot run lockmeter itself")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        return Err(anyhow!("recording a run of {threads} thread(s) failed: {last}"));
    }
    let (report, _) = report::load(recording, &Query::by([Dimension::Lock]))?;
    let measured = Measured::from_report(&report);
    let plan =
        Plan { cpus: vec![2], threads_per_cpu: 1, threads: Some(threads), shards: 16, prices: Prices::default() };
    if measured.locks.is_empty() {
        return Err(anyhow!("the recording holds no lock; is liblockmeter_preload.so the right one?"));
    }
    // The locks come longest held first.
    Ok(forecast(&measured, 0, &plan))
}
