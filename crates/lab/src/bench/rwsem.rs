//! `lockmeter-lab bench rwsem`: what each policy of the reader-writer semaphore is worth, one switched at a time.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use lockmeter_experiments::fork_tree::{self, POLICIES, Table, Variant};
use lockmeter_statistics::{Disturbances, Machine, Patience, Random};
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::RwsemArguments;
use crate::time_left::TimeLeft;

/// Threads for each core.
const THREADS_PER_CORE: [usize; 3] = [1, 2, 4];

/// Short, as in `fork_mail`: the speed of a lock changes within seconds.
const SLICE: Duration = Duration::from_millis(30);

#[derive(Debug, Serialize)]
struct Results {
    races: Vec<Race>,
    disturbances: Disturbances,
}

#[derive(Debug, Serialize)]
struct Race {
    /// How many of a hundred acquisitions only read.
    reads_percent: u32,
    rows: Vec<fork_tree::Row>,
}

pub fn run(arguments: &RwsemArguments) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let threads = match &arguments.threads[..] {
        [] => THREADS_PER_CORE.map(|each| each * cores()).to_vec(),
        given => given.to_vec(),
    };
    let (mut random, mut stop) = (Random::new(arguments.seed), Stop::catch()?);
    let (mut disturbances, mut time_left) = (Disturbances::with(Patience::WITH_ROUNDS), TimeLeft::new());
    let mut races = Vec::new();
    for (done, reads_percent) in arguments.reads.iter().copied().enumerate() {
        if !stop.go_on() {
            break;
        }
        let variant = Variant::Threads { reads_percent };
        let rounds = arguments.rounds;
        let plan = fork_tree::Plan { contenders: &POLICIES, variant, at_once: &threads, rounds, slice: SLICE };
        let later = (arguments.reads.len() - done - 1) * threads.len() * rounds * POLICIES.len();
        let rows = fork_tree::race(plan, &mut disturbances, &mut random, |left| {
            time_left.step("policies of the semaphore", left + later);
            stop.go_on()
        })
        .context("cannot race the policies")?;
        races.push(Race { reads_percent, rows });
    }
    time_left.clear();
    let results = Results { races, disturbances };
    write(arguments.format, machine, &results, &text(&results))
}

fn text(results: &Results) -> String {
    let mut text = String::new();
    for Race { reads_percent, rows } in &results.races {
        let table = Table { variant: Variant::Threads { reads_percent: *reads_percent }, rows };
        let _ = writeln!(text, "{reads_percent} % of the acquisitions read:\n\n{table}");
    }
    let _ = writeln!(text, "{}.", results.disturbances);
    text
}
