//! The grid: every contender at every mix of threads, read share and length of the section.

use std::time::Duration;

use anyhow::{Context, Result};
use lockmeter_statistics::{Disturbances, Estimate, Random, median};

use crate::contender::Contender;
use crate::lock_under_test::Load;
use crate::slice::{self, Slice};
use crate::waits::Waits;

/// One mix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    pub threads: usize,
    pub read_percent: u32,
    pub section_ns: u32,
}

/// How much of the grid, and how well.
#[derive(Debug, Clone)]
pub struct Form {
    pub points: Vec<Point>,
    /// Slices of each contender at a point that tell its throughput.
    pub rounds: usize,
    /// Further slices in which each wait is timed.
    pub timed_rounds: usize,
    pub slice: Duration,
}

/// What one contender did at one point.
#[derive(Debug, Clone)]
pub struct Cell {
    pub contender: usize,
    /// Acquisitions a second, round by round.
    pub rates: Vec<f64>,
    pub median_rate: f64,
    /// Against the best comparable peer, round by round. `None` for peers and where there is no peer.
    pub against_best: Option<Against>,
    /// Median over rounds.
    pub slowest_share: f64,
    pub mean_wait_ns: f64,
    /// 999 of 1,000 waits were no longer.
    pub p999_wait_ns: u64,
    pub longest_wait_ns: u64,
    pub switches_per_1000: f64,
}

/// Throughput as a share of a peer's.
#[derive(Debug, Clone, Copy)]
pub struct Against {
    pub peer: usize,
    pub ratio: Estimate,
}

/// All contenders at one point.
#[derive(Debug, Clone)]
pub struct Measured {
    pub point: Point,
    pub cells: Vec<Cell>,
}

impl Form {
    /// Everything: about twelve minutes on two CPUs.
    pub fn full(cpus: usize) -> Self {
        Self {
            points: points(&thread_counts(cpus), &[0, 50, 90, 99, 100], &[0, 100, 1_000, 10_000]),
            rounds: 10,
            timed_rounds: 2,
            slice: Duration::from_millis(70),
        }
    }

    /// The corners: about a minute on two CPUs.
    pub fn quick(cpus: usize) -> Self {
        Self {
            points: points(&[1, cpus, cpus * 4], &[0, 90, 100], &[0, 1_000]),
            rounds: 5,
            timed_rounds: 1,
            slice: Duration::from_millis(50),
        }
    }
}

/// Powers of two up to four times as many threads as CPUs.
fn thread_counts(cpus: usize) -> Vec<usize> {
    let most = cpus * 4;
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|c| *c <= most).collect();
    counts.extend([cpus, most]);
    counts.sort_unstable();
    counts.dedup();
    counts
}

fn points(threads: &[usize], read_percents: &[u32], sections_ns: &[u32]) -> Vec<Point> {
    let mut points = Vec::new();
    for &section_ns in sections_ns {
        for &read_percent in read_percents {
            for &threads in threads {
                let point = Point { threads, read_percent, section_ns };
                if !points.contains(&point) {
                    points.push(point);
                }
            }
        }
    }
    points
}

/// All contenders that run at `point`, in a new random order each round.
pub fn measure(
    point: Point,
    form: &Form,
    contenders: &[Contender],
    steps_per_us: u64,
    random: &mut Random,
    disturbances: &mut Disturbances,
) -> Result<Measured> {
    let inside = u32::try_from(u64::from(point.section_ns) * steps_per_us / 1000)?;
    let mut running: Vec<usize> =
        (0..contenders.len()).filter(|&at| contenders[at].runs_at(point.read_percent)).collect();
    let mut plain: Vec<Vec<Slice>> = vec![Vec::new(); contenders.len()];
    let mut timed = plain.clone();
    for round in 0..form.rounds + form.timed_rounds {
        let load = Load { read_percent: point.read_percent, inside, timed: round >= form.rounds };
        let slices = disturbances.avoid_unless_failed(|| {
            random.shuffle(&mut running);
            let slice = |&at: &usize| {
                let lock = (contenders[at].lock)();
                let slice = slice::contend(&*lock, point.threads, load, form.slice, random.bits())
                    .with_context(|| format!("{} at {point:?}", contenders[at].name))?;
                Ok((at, slice))
            };
            running.iter().map(slice).collect::<Result<Vec<_>>>()
        })?;
        for (at, slice) in slices {
            if load.timed { timed[at].push(slice) } else { plain[at].push(slice) }
        }
    }
    running.sort_unstable();
    let mut cells: Vec<Cell> = running.iter().map(|&at| cell(at, &plain[at], &timed[at])).collect();
    compare(&mut cells, point, contenders, random);
    Ok(Measured { point, cells })
}

fn cell(contender: usize, plain: &[Slice], timed: &[Slice]) -> Cell {
    let rates: Vec<f64> = plain.iter().map(Slice::rate).collect();
    let total = |of: fn(&Slice) -> u64, slices: &[Slice]| slices.iter().map(of).sum::<u64>();
    let waits = total(Slice::acquisitions, timed).max(1);
    let mut all_waits = Waits::default();
    timed.iter().for_each(|slice| all_waits.add_all(&slice.waits()));
    Cell {
        contender,
        median_rate: median(rates.clone()),
        rates,
        against_best: None,
        slowest_share: median(plain.iter().map(Slice::slowest_share).collect()),
        mean_wait_ns: total(Slice::waited_ns, timed) as f64 / waits as f64,
        p999_wait_ns: all_waits.quantile_ns(999),
        longest_wait_ns: timed.iter().map(Slice::longest_wait_ns).max().unwrap_or(0),
        switches_per_1000: total(Slice::context_switches, plain) as f64 * 1000.0
            / total(Slice::acquisitions, plain).max(1) as f64,
    }
}

/// Each of ours against the best peer, within each round. For a round, the best peer is the one with the best median over the
/// other rounds: one that was lucky in this round would else be the measure because of it, and of equal locks each would lose.
fn compare(cells: &mut [Cell], point: Point, contenders: &[Contender], random: &mut Random) {
    for at in 0..cells.len() {
        let ours = &contenders[cells[at].contender];
        if !ours.ours {
            continue;
        }
        let peers: Vec<&Cell> = cells
            .iter()
            .filter(|cell| {
                let peer = &contenders[cell.contender];
                !peer.ours && peer.comparable(ours, point.read_percent)
            })
            .collect();
        let best_without = |round: Option<usize>| {
            let rate = |cell: &&Cell| median_without(&cell.rates, round);
            peers.iter().copied().max_by(|a, b| rate(a).total_cmp(&rate(b)))
        };
        let Some(best) = best_without(None) else { continue };
        let ratios: Vec<f64> = (cells[at].rates.iter().enumerate())
            .filter_map(|(round, rate)| Some(rate / best_without(Some(round))?.rates[round]))
            .collect();
        let peer = best.contender;
        cells[at].against_best = Estimate::of(&ratios, random).map(|ratio| Against { peer, ratio });
    }
}

fn median_without(rates: &[f64], round: Option<usize>) -> f64 {
    median(rates.iter().enumerate().filter(|(at, _)| Some(*at) != round).map(|(_, rate)| *rate).collect())
}
