//! `lockmeter-lab bench fork-mail`: messages a second as clients are added, and the kernel locks that they meet at.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_experiments::fork_mail::{Plan, PostOffice, Step};
use lockmeter_experiments::fork_tree::{self, FORK_MAIL, Variant};
use lockmeter_experiments::kernel_waits::{self, KernelWaits};
use lockmeter_statistics::{Disturbances, Estimate, Machine, Patience, Random};
use serde::Serialize;

use super::{Stop, cores, write};
use crate::arguments::bench::ForkMailArguments;
use crate::time_left::TimeLeft;

/// Clients for each core.
const CLIENTS_PER_CORE: [usize; 3] = [1, 2, 4];

#[derive(Debug, Serialize)]
struct Results {
    points: Vec<Point>,
    /// Kernel locks met at with the most clients, in a step of its own.
    seen: Result<KernelWaits, String>,
    /// Messages of that step.
    seen_messages: u64,
    fsync: bool,
    /// The lock that forks contend for, with locks of user space in its place: in a mapping that processes share.
    locks_of_processes: Vec<fork_tree::Row>,
    /// The same among threads, without forks between.
    locks: Vec<fork_tree::Row>,
    /// Rounds of those locks that others disturbed.
    disturbances: Disturbances,
}

/// Of a run in the race of locks, which has many short ones, for the same lock does 160,000 messages a second or 90,000, in turn, within
/// seconds.
const RACE_SLICE: Duration = Duration::from_millis(30);
/// A message of a real process takes some fifty times as long as one of a thread, and a run must hold many.
const PROCESS_RACE_SLICE: Duration = Duration::from_millis(60);

#[derive(Debug, Serialize)]
struct Point {
    clients: usize,
    per_second: Estimate,
    switches_per_message: Estimate,
    failed: u64,
}

pub fn run(arguments: &ForkMailArguments) -> Result<ExitCode> {
    let machine = Machine::here(arguments.seed);
    let folder = arguments.spool.clone().map_or_else(crate::scratch::parent, Ok)?;
    let office = PostOffice::open(&folder).map_err(|error| {
        let sentence =
            format!("cannot make a spool in {}: {error}; choose another place with --spool", folder.display());
        Failure::error(Status::NoOutput, sentence)
    })?;
    let plan = Plan {
        duration: arguments.duration,
        mailboxes: arguments.mailboxes,
        message_bytes: arguments.bytes,
        fsync: arguments.fsync,
    };
    let clients = match &arguments.clients[..] {
        [] => CLIENTS_PER_CORE.map(|each| each * cores()).to_vec(),
        given => given.to_vec(),
    };
    let mut random = Random::new(arguments.seed);
    let mut stop = Stop::catch()?;
    let steps = deliver(&office, &plan, &clients, arguments.rounds, &mut random, &mut stop)?;
    let most = clients.iter().copied().max().unwrap_or(1);
    let mut seen_messages = 0;
    let seen = match kernel_waits::start() {
        Ok(mut meter) if stop.go_on() => {
            seen_messages = office.deliver(&plan, most, || stop.go_on()).context("cannot deliver")?.messages;
            kernel_waits::so_far(&mut meter)
        }
        Ok(_) => Err("interrupted before".to_owned()),
        Err(why) => Err(why),
    };
    let points = clients.iter().filter_map(|clients| summarise(*clients, &steps, &mut random)).collect();
    let mut time_left = TimeLeft::new();
    let mut disturbances = Disturbances::with(Patience::WITH_ROUNDS);
    let mut race = |variant, slice, what| {
        let plan =
            fork_tree::Plan { contenders: &FORK_MAIL, variant, at_once: &clients, rounds: arguments.races, slice };
        fork_tree::race(plan, &mut disturbances, &mut random, |left| {
            time_left.step(what, left);
            stop.go_on()
        })
        .context("cannot compare the lock that forks contend for")
    };
    let locks_of_processes =
        race(Variant::Processes, PROCESS_RACE_SLICE, "the lock that forks contend for, between processes")?;
    // Last: it starts threads, and a process with threads must not fork.
    let locks = race(Variant::WRITING_THREADS, RACE_SLICE, "the lock that forks contend for, between threads")?;
    time_left.clear();
    let results =
        Results { points, seen, seen_messages, fsync: arguments.fsync, locks_of_processes, locks, disturbances };
    write(arguments.format, machine, &results, &text(&results, most))
}

fn deliver(
    office: &PostOffice,
    plan: &Plan,
    clients: &[usize],
    rounds: usize,
    random: &mut Random,
    stop: &mut Stop,
) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    let mut time_left = TimeLeft::new();
    let mut left = rounds * clients.len();
    for _ in 0..rounds {
        let mut order = clients.to_vec();
        random.shuffle(&mut order);
        for clients in order {
            time_left.step("delivering mail", left);
            left -= 1;
            let step = office.deliver(plan, clients, || stop.go_on()).context("cannot deliver")?;
            if !stop.go_on() {
                time_left.clear();
                return Ok(steps);
            }
            steps.push(step);
        }
    }
    time_left.clear();
    Ok(steps)
}

fn summarise(clients: usize, steps: &[Step], random: &mut Random) -> Option<Point> {
    let steps: Vec<&Step> = steps.iter().filter(|step| step.clients == clients).collect();
    let mut estimate =
        |of: fn(&Step) -> f64| Estimate::of(&steps.iter().map(|step| of(step)).collect::<Vec<_>>(), random);
    Some(Point {
        clients,
        per_second: estimate(Step::per_second)?,
        switches_per_message: estimate(Step::switches_per_message)?,
        failed: steps.iter().map(|step| step.failed).sum(),
    })
}

fn text(results: &Results, most: usize) -> String {
    let mut text = format!(
        "{:>8} {:>12} {:>22} {:>18} {:>8}\n",
        "CLIENTS", "MESSAGES/S", "95 % BETWEEN", "SWITCHES/MESSAGE", "FAILED"
    );
    for Point { clients, per_second, switches_per_message, failed } in &results.points {
        let between = format!("{:.0} … {:.0}", per_second.low, per_second.high);
        let _ = writeln!(
            text,
            "{clients:>8} {:>12.0} {between:>22} {:>18.1} {failed:>8}",
            per_second.median, switches_per_message.median
        );
    }
    match &results.seen {
        Ok(seen) => {
            let _ = write!(
                text,
                "\nKernel locks waited for while {most} clients sent {} messages:\n{seen}",
                results.seen_messages
            );
        }
        Err(why) => {
            let _ = writeln!(text, "\nkernel locks were not metered: {why}");
        }
    }
    if !results.locks.is_empty() {
        let _ = write!(
            text,
            "\nThe lock that forks and exits contend for, with user-space locks in its place, always taken for writing.\n\
             Between processes, which fork for each message and share the lock in a mapping:\n\n{}\nBetween threads, without forks:\n\n{}",
            fork_tree::Table { variant: Variant::Processes, rows: &results.locks_of_processes },
            fork_tree::Table { variant: Variant::WRITING_THREADS, rows: &results.locks }
        );
        let _ = writeln!(text, "\n{}.", results.disturbances);
    }
    text
}
