//! Two locks on the same work, slice beside slice: the semaphore used only by writers against the mutex, and the semaphore
//! with optimistic spinning against the one without.

use std::time::Duration;

use anyhow::{Context, Result};
use lockmeter_locks::rwsem::{NoSpin, Standard};
use lockmeter_locks::{RawMutex, RawRwSem};
use lockmeter_statistics::{Estimate, Random};

use crate::grid::Point;
use crate::lock_under_test::{Load, LockUnderTest, Measured};
use crate::ours::{Alone, Shared};
use crate::{slice, work};

/// How well.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    /// Pairs of slices at a point.
    rounds: usize,
    /// Pairs of slices without contention.
    pair_rounds: usize,
    slice: Duration,
}

impl Form {
    /// About two minutes on two CPUs.
    pub fn full() -> Self {
        Self { rounds: 16, pair_rounds: 60, slice: Duration::from_millis(70) }
    }

    /// About twenty seconds.
    pub fn quick() -> Self {
        Self { rounds: 5, pair_rounds: 30, slice: Duration::from_millis(50) }
    }
}

/// The first lock's figures in the second's.
#[derive(Debug)]
pub struct Duel {
    pub point: Point,
    /// Ratios round by round.
    pub throughputs: Vec<f64>,
    pub throughput: Option<Estimate>,
    /// Context switches an acquisition. `None` where the second lock has hardly any.
    pub switches: Option<Estimate>,
    /// Context switches in a thousand acquisitions, of each.
    pub switches_per_1000: [f64; 2],
}

/// The semaphore used only by writers, in the mutex.
#[derive(Debug)]
pub struct WritersOnly {
    /// Time of a pair without contention.
    pub pair: Option<Estimate>,
    pub points: Vec<Duel>,
    /// Throughput over all pairs of slices at all points.
    pub overall: Option<Estimate>,
}

/// Fewer context switches in all rounds say nothing.
const FEWEST_SWITCHES: u64 = 100;

type MakeLock = fn() -> Box<dyn Measured>;

const MUTEX: MakeLock = LockUnderTest::<Alone<RawMutex>>::boxed;
const SEMAPHORE: MakeLock = LockUnderTest::<Shared<RawRwSem<Standard>>>::boxed;
const SLEEPING: MakeLock = LockUnderTest::<Shared<RawRwSem<NoSpin>>>::boxed;

/// Writers alone: what knowing readers costs those who have none.
pub fn writers_only(form: &Form, cpus: usize, random: &mut Random) -> Result<WritersOnly> {
    let steps_per_us = work::steps_per_us();
    let pairs: Vec<f64> = (0..form.pair_rounds)
        .map(|_| {
            let times = in_random_order([SEMAPHORE, MUTEX], random, |lock| {
                Ok(slice::pair_ps(&*lock(), 1, false, form.slice / 2))
            })?;
            Ok(times[0] as f64 / times[1] as f64)
        })
        .collect::<Result<_>>()?;
    let mut points = Vec::new();
    for section_ns in [0, 100, 1_000, 10_000] {
        for threads in [cpus, cpus * 2, cpus * 4] {
            let point = Point { threads, read_percent: 0, section_ns };
            points.push(measure([SEMAPHORE, MUTEX], point, form, steps_per_us, random)?);
        }
    }
    let all: Vec<f64> = points.iter().flat_map(|duel| duel.throughputs.iter().copied()).collect();
    Ok(WritersOnly { pair: Estimate::of(&pairs, random), points, overall: Estimate::of(&all, random) })
}

/// Optimistic spinning on, in off, with as many threads as CPUs, and with more.
pub fn spinning(form: &Form, cpus: usize, random: &mut Random) -> Result<Vec<Duel>> {
    let steps_per_us = work::steps_per_us();
    let mut points = Vec::new();
    for section_ns in [100, 1_000, 10_000] {
        for read_percent in [0, 50, 90] {
            for threads in [cpus, cpus * 4] {
                let point = Point { threads, read_percent, section_ns };
                points.push(measure([SEMAPHORE, SLEEPING], point, form, steps_per_us, random)?);
            }
        }
    }
    Ok(points)
}

fn measure(locks: [MakeLock; 2], point: Point, form: &Form, steps_per_us: u64, random: &mut Random) -> Result<Duel> {
    let inside = u32::try_from(u64::from(point.section_ns) * steps_per_us / 1000)?;
    let load = Load { read_percent: point.read_percent, inside, timed: false };
    let (mut throughputs, mut switch_ratios) = (Vec::new(), Vec::new());
    let (mut switches, mut acquisitions) = ([0; 2], [0; 2]);
    for _ in 0..form.rounds {
        let seed = random.bits();
        let slices = in_random_order(locks, random, |lock| {
            slice::contend(&*lock(), point.threads, load, form.slice, seed).with_context(|| format!("at {point:?}"))
        })?;
        throughputs.push(slices[0].rate() / slices[1].rate());
        let each = [0, 1].map(|at| slices[at].context_switches() as f64 / slices[at].acquisitions().max(1) as f64);
        if each[1] > 0.0 {
            switch_ratios.push(each[0] / each[1]);
        }
        for at in 0..2 {
            switches[at] += slices[at].context_switches();
            acquisitions[at] += slices[at].acquisitions();
        }
    }
    Ok(Duel {
        point,
        throughput: Estimate::of(&throughputs, random),
        throughputs,
        switches: (switches[1] >= FEWEST_SWITCHES).then(|| Estimate::of(&switch_ratios, random)).flatten(),
        switches_per_1000: [0, 1].map(|at| switches[at] as f64 * 1000.0 / acquisitions[at].max(1) as f64),
    })
}

/// Runs both, now the one first, now the other; the results are in the order of `locks`.
fn in_random_order<T>(
    locks: [MakeLock; 2],
    random: &mut Random,
    run: impl Fn(MakeLock) -> Result<T>,
) -> Result<[T; 2]> {
    if random.below(2) == 0 {
        let first = run(locks[0])?;
        Ok([first, run(locks[1])?])
    } else {
        let second = run(locks[1])?;
        Ok([run(locks[0])?, second])
    }
}
