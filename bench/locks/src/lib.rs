//! lockmeter's locks and their peers over a grid of threads, read shares and lengths of the critical section; and uncontended pairs.
//!
//! Every ratio is taken within a round, in which all locks run once, in random order, for a slice of some 70 ms in this one
//! process. Each slice also checks that the lock was one: no write lost, no reader beside a writer.

#[cfg(abseil)]
mod abseil;
mod contender;
mod csv;
mod duel;
mod fairness;
mod grid;
mod lock_under_test;
mod ours;
mod pairs;
mod peers;
mod picture;
mod slice;
mod table;
mod waits;
mod work;
mod writer;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use lockmeter_statistics::{Disturbances, Machine, Patience, Random};

use crate::contender::Contender;
use crate::grid::{Form, Measured};

/// What to race, how well, and where the results go.
#[derive(Debug, Args)]
pub struct Arguments {
    /// The corners of the grid, in about a minute
    #[arg(long)]
    quick: bool,
    /// Only locks whose name contains one of these
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    locks: Vec<String>,
    /// Leave the uncontended pairs out
    #[arg(long)]
    no_pairs: bool,
    /// Leave the grid out
    #[arg(long)]
    no_grid: bool,
    /// Leave out the comparisons of the semaphore with the mutex, and with itself without spinning
    #[arg(long)]
    no_duels: bool,
    /// Only points of the grid with this many threads
    #[arg(long, value_name = "NUMBER", value_delimiter = ',')]
    threads: Vec<usize>,
    /// Only points of the grid with this percentage of read acquisitions
    #[arg(long, value_name = "PERCENT", value_delimiter = ',')]
    reads: Vec<u32>,
    /// Only points of the grid with critical sections of this length
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    sections: Vec<u32>,
    /// Slices of each lock at each point
    #[arg(long)]
    rounds: Option<usize>,
    /// Length of a slice
    #[arg(long, value_parser = humantime::parse_duration)]
    slice: Option<Duration>,
    /// Of the random order
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Writes the grid here
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Draws the grid here, and as a PNG beside it
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Races the locks, and prints the results as they come.
pub fn run(arguments: &Arguments) -> Result<()> {
    let wanted = |contender: &Contender| {
        arguments.locks.is_empty() || arguments.locks.iter().any(|name| contender.name.contains(name.as_str()))
    };
    let contenders: Vec<Contender> = contender::all().into_iter().filter(wanted).collect();
    ensure!(!contenders.is_empty(), "no lock has a name that contains one of {:?}", arguments.locks);
    let machine = Machine::here(arguments.seed);
    let mut random = Random::new(arguments.seed);
    println!("{machine}");
    for absent in contender::absent() {
        println!("absent: {absent}");
    }
    if !arguments.no_pairs {
        let rounds = if arguments.quick { 11 } else { 40 };
        for kind in pairs::kinds(machine.cpus) {
            table::pairs(kind, &pairs::measure(kind, rounds, &contenders, &mut random), &contenders);
        }
        println!();
        for readers in [0, machine.cpus - 1, machine.cpus * 4] {
            table::writer(&writer::measure(readers, rounds, &mut random));
        }
    }
    if !arguments.no_duels {
        let form = if arguments.quick { duel::Form::quick() } else { duel::Form::full() };
        table::writers_only(&duel::writers_only(&form, machine.cpus, &mut random)?);
        table::policy("optimistic spinning", &duel::spinning(&form, machine.cpus, &mut random)?);
    }
    if !arguments.no_grid {
        let grid = race(arguments, &contenders, &machine, &mut random)?;
        table::summary(&grid, &contenders, machine.cpus);
        table::fairness(&fairness::of(&grid, &contenders), &contenders);
        if let Some(path) = &arguments.csv {
            csv::write(path, &grid, &contenders, &machine)?;
        }
        if let Some(path) = &arguments.svg
            && !picture::write(path, &grid, &contenders, &machine)?
        {
            eprintln!("no PNG: rsvg-convert is missing (scripts/setup bench); {} is drawn", path.display());
        }
    }
    Ok(())
}

fn race(
    arguments: &Arguments,
    contenders: &[Contender],
    machine: &Machine,
    random: &mut Random,
) -> Result<Vec<Measured>> {
    let mut form = if arguments.quick { Form::quick(machine.cpus) } else { Form::full(machine.cpus) };
    form.points.retain(|point| {
        fn is_in<T: PartialEq>(wanted: &[T], value: &T) -> bool {
            wanted.is_empty() || wanted.contains(value)
        }
        is_in(&arguments.threads, &point.threads)
            && is_in(&arguments.reads, &point.read_percent)
            && is_in(&arguments.sections, &point.section_ns)
    });
    ensure!(!form.points.is_empty(), "the grid has no point with those --threads, --reads and --sections");
    form.rounds = arguments.rounds.unwrap_or(form.rounds);
    form.slice = arguments.slice.unwrap_or(form.slice);
    let steps_per_us = work::steps_per_us();
    let (mut grid, mut disturbances) = (Vec::new(), Disturbances::with(Patience::WITH_ROUNDS));
    for point in form.points.clone() {
        let measured = grid::measure(point, &form, contenders, steps_per_us, random, &mut disturbances)?;
        table::point(&measured, contenders, machine.cpus);
        grid.push(measured);
    }
    println!("{disturbances}");
    Ok(grid)
}
