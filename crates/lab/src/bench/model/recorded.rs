//! The way of a user: `record --hold` of the old accounting with one thread, with two, and with twice as many as there are CPUs,
//! and what `predict` says of these from the recording of one and from their own.

use anyhow::{Result, anyhow};
use lockmeter_predict::forecast::{Plan, Prices, forecast};
use lockmeter_predict::measured::Measured;
use lockmeter_profile::Dimension;
use lockmeter_profile::view::Query;
use lockmeter_statistics::{Estimate, Random};
use serde::Serialize;

use super::super::{Stop, own_run};
use crate::running_command::Scratch;
use crate::time_left::TimeLeft;

/// What is recorded: the work of a task, and the CPUs that are accounted for, which make the hold.
const WORKLOADS: [(&str, &str); 3] = [("2us", "256"), ("20us", "64"), ("100us", "256")];
/// Long enough that what a process does at its start does not count.
const SLICE: &str = "1s";
/// More say no more, and each takes three seconds a workload.
const MOST_ROUNDS: usize = 3;

/// Acquisitions a second of more threads than one.
#[derive(Debug, Serialize)]
pub struct Recorded {
    pub work: &'static str,
    pub threads: usize,
    pub hold_ns: f64,
    /// As recorded with them.
    pub measured: Estimate,
    /// Predicted from the recording of one thread, over that, less 1; by the waits that a lock of the kind costs typically.
    pub from_one: Estimate,
    /// The model of these threads over the recording that it was made from, less 1.
    pub from_own: Estimate,
}

/// This many threads on this many CPUs.
#[derive(Debug, Clone, Copy)]
struct Crowd {
    cpus: usize,
    per_cpu: usize,
}

impl Crowd {
    const fn threads(self) -> usize {
        self.cpus * self.per_cpu
    }
}

/// What one recording of a crowd says beside the one of a single thread.
struct Sample {
    hold_ns: f64,
    per_second: f64,
    from_one: f64,
    from_own: f64,
}

pub fn check(cpus: usize, rounds: usize, stop: &mut Stop, random: &mut Random) -> Result<Vec<Recorded>> {
    let crowds = [Crowd { cpus: 2, per_cpu: 1 }, Crowd { cpus, per_cpu: 2 }];
    let scratch = Scratch::create()?;
    let mut time_left = TimeLeft::new();
    let rounds = rounds.min(MOST_ROUNDS);
    let mut left = WORKLOADS.len() * rounds;
    let mut checked = Vec::new();
    for workload in WORKLOADS {
        let mut samples: [Vec<Sample>; 2] = Default::default();
        for _ in 0..rounds {
            time_left.step("recordings", left);
            left -= 1;
            if !stop.go_on() {
                break;
            }
            let one = record(&scratch, stop, workload, 1)?;
            for (crowd, samples) in crowds.into_iter().zip(&mut samples) {
                let own = record(&scratch, stop, workload, crowd.threads())?;
                samples.push(compare(&one, &own, crowd)?);
            }
        }
        let crowds = crowds.iter().zip(&samples);
        checked.extend(crowds.filter_map(|(crowd, samples)| summarise(workload.0, *crowd, samples, random)));
    }
    time_left.clear();
    Ok(checked)
}

/// The waiters sleep, as they do for a `pthread_mutex`.
fn compare(one: &Measured, own: &Measured, crowd: Crowd) -> Result<Sample> {
    let of = |measured, threads| {
        let plan = Plan {
            cpus: vec![crowd.cpus],
            threads_per_cpu: crowd.per_cpu,
            threads: Some(threads),
            shards: 16,
            prices: Prices::default(),
        };
        // The locks come longest held first.
        forecast(measured, 0, &plan)
    };
    let (from_one, from_own) = (of(one, 1)?, of(own, crowd.threads())?);
    let per_second = from_own.recorded_per_second;
    let predicted = from_one.points.first().and_then(|point| point.sleeping).unwrap_or(0.0);
    Ok(Sample {
        hold_ns: from_one.hold_ns,
        per_second,
        from_one: predicted / per_second - 1.0,
        from_own: from_own.check.with_handoff,
    })
}

fn summarise(work: &'static str, crowd: Crowd, samples: &[Sample], random: &mut Random) -> Option<Recorded> {
    let mut of = |of: fn(&Sample) -> f64| Estimate::of(&samples.iter().map(of).collect::<Vec<_>>(), random);
    Some(Recorded {
        work,
        threads: crowd.threads(),
        hold_ns: of(|sample| sample.hold_ns)?.median,
        measured: of(|sample| sample.per_second)?,
        from_one: of(|sample| sample.from_one)?,
        from_own: of(|sample| sample.from_own)?,
    })
}

/// What a run with this many threads measured.
fn record(scratch: &Scratch, stop: &mut Stop, (work, cpus): (&str, &str), threads: usize) -> Result<Measured> {
    let threads_word = threads.to_string();
    let words = ["--only", "before", "-b", "4", "--cpu-targets", "0", "--cpus", cpus, "--slice", SLICE];
    let words = [&words[..], &["--user-threads", &threads_word, "--work", work]].concat();
    let query = Query::by([Dimension::Lock]);
    let measured = Measured::from_report(&own_run::metered(scratch, stop, "breakpoint", &words, &query)?);
    if measured.locks.is_empty() {
        return Err(anyhow!("the recording holds no lock; is liblockmeter_preload.so the right one?"));
    }
    Ok(measured)
}
