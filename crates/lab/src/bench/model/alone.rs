//! What one thread needs, and what it costs to be the next on another CPU, right before and right after the threads that are predicted from it.
//!
//! The CPUs of a virtual machine change their speed, for a second or for minutes, by up to a half, and a line takes 14 ns or 240 from one to
//! the other, and waking a thread whose CPU went idle 3 µs or 20: what was so a moment ago says nothing of now. So each slice lies between two
//! looks, and is taken again if they differ.

use std::time::Duration;

use anyhow::{Result, anyhow};
use lock_api::RawMutex;
use lockmeter_experiments::breakpoint::race::{Design, Passing, Plan as Race, Work, passing, run_once};
use lockmeter_experiments::locks_under_test::ReaderLock;
use lockmeter_experiments::step_by_step::{Acquisition, Cycle, Wake, shortest_sleep_first};
use lockmeter_experiments::step_costs::{self, SETTLING};
use serde::Serialize;

use super::{ACQUISITIONS, BREAKPOINTS, Bench, SLICE, broken, race};
use crate::bench::cores;

/// How long one thread is looked at: thousands of acquisitions, and short beside the slice that it is for.
const LOOK: Duration = Duration::from_millis(20);
/// Two looks that differ by more are not of the same machine.
const STEADY: f64 = 0.08;
/// A machine that is never steady must not hold up a bench for ever.
const TRIES: u32 = 3;

/// Slices repeated, and slices kept all the same.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Drifts {
    pub repeated: u32,
    pub kept: u32,
}

/// What threads do.
pub struct Task {
    /// CPUs that are accounted for.
    pub cpus: usize,
    /// Computed beside the accounting.
    pub work: Work,
    /// From one change of the accounting to the next, where nothing is computed.
    pub gap_ns: f64,
    /// How taking slots and giving them back share the time under the lock.
    pub shares: [f64; 2],
}

/// What one thread needs for each of a task's acquisitions.
#[derive(Debug, Clone, Copy)]
pub struct Alone {
    pub think_ns: f64,
    gap_ns: f64,
    /// Taking slots, and giving them back.
    hold_ns: [f64; 2],
}

impl Alone {
    pub fn mean_hold_ns(&self) -> f64 {
        f64::midpoint(self.hold_ns[0], self.hold_ns[1])
    }

    /// A task's: work, its slots one by one, work, and back with them.
    pub fn cycle(&self) -> Cycle {
        let half = ACQUISITIONS / 2;
        let work_ns = (self.think_ns - self.gap_ns).max(0.0) * half as f64;
        let acquisition = |at: usize| Acquisition {
            think_ns: self.gap_ns + if at.is_multiple_of(half) { work_ns } else { 0.0 },
            hold_ns: self.hold_ns[at / half],
        };
        Cycle { acquisitions: (0..ACQUISITIONS).map(acquisition).collect() }
    }

    fn between(&self, other: &Self) -> Self {
        let middle = |at: usize| f64::midpoint(self.hold_ns[at], other.hold_ns[at]);
        Self {
            think_ns: f64::midpoint(self.think_ns, other.think_ns),
            gap_ns: self.gap_ns,
            hold_ns: [middle(0), middle(1)],
        }
    }

    fn is_like(&self, other: &Self) -> bool {
        let alike = |one: f64, other: f64| (one / other - 1.0).abs() <= STEADY;
        alike(self.mean_hold_ns(), other.mean_hold_ns()) && alike(self.think_ns, other.think_ns)
    }
}

/// What threads are predicted from.
#[derive(Debug, Clone)]
pub struct Beside {
    pub alone: Alone,
    pub passing: Passing,
    /// Shortest sleep first.
    pub wakes: Vec<Wake>,
}

impl Beside {
    fn look<M: RawMutex + Send + Sync>(task: &Task) -> Result<Self> {
        Ok(Self { alone: alone::<M>(task)?, passing: passing::<M>(task.cpus, BREAKPOINTS), wakes: step_costs::wakes() })
    }

    fn between(&self, other: &Self) -> Self {
        Self {
            wakes: shortest_sleep_first([&self.wakes[..], &other.wakes].concat()),
            alone: self.alone.between(&other.alone),
            passing: Passing {
                line_ns: f64::midpoint(self.passing.line_ns, other.passing.line_ns),
                moved_ns: f64::midpoint(self.passing.moved_ns, other.passing.moved_ns),
            },
        }
    }

    /// Passing the lock on matters by its share of an acquisition.
    fn is_like(&self, other: &Self) -> bool {
        let passing_ns = |beside: &Self| beside.passing.line_ns + beside.passing.moved_ns;
        let acquisition_ns = self.alone.mean_hold_ns() + self.alone.think_ns;
        self.alone.is_like(&other.alone) && (passing_ns(self) - passing_ns(other)).abs() <= acquisition_ns * STEADY
    }
}

impl Bench {
    /// Nanoseconds for each acquisition of this many threads, and what they are predicted from, around that.
    pub fn beside_one_thread<M: RawMutex + Send + Sync>(
        &mut self,
        task: &Task,
        threads: usize,
    ) -> Result<(f64, Beside)> {
        let plan = Race { settling: SETTLING, ..race(task.cpus, task.work, SLICE, Some(0)) };
        let mut before = Beside::look::<M>(task)?;
        let mut tries = 0;
        loop {
            let once = || -> Result<(f64, Beside)> {
                let task_ns = run_once::<M, ReaderLock>(Design::Before, &plan, threads).map_err(broken)?;
                Ok((task_ns / ACQUISITIONS as f64, Beside::look::<M>(task)?))
            };
            let (acquisition_ns, after) = self.disturbances.avoid_unless_failed(once)?;
            tries += 1;
            let steady = before.is_like(&after);
            if steady || tries >= TRIES {
                self.drifts.kept += u32::from(!steady);
                return Ok((acquisition_ns, before.between(&after)));
            }
            self.drifts.repeated += 1;
            before = after;
        }
    }
}

/// The mean over the CPUs, each with a thread and an accounting of its own.
fn alone<M: RawMutex + Send + Sync>(task: &Task) -> Result<Alone> {
    let hold_ns = (on_each_cpu::<M>(Design::Before, task.cpus, Work::NONE)? - task.gap_ns).max(1.0);
    let middle = f64::midpoint(task.shares[0], task.shares[1]).max(1.0);
    Ok(Alone {
        think_ns: on_each_cpu::<M>(Design::Ideal, task.cpus, task.work)?,
        gap_ns: task.gap_ns,
        hold_ns: task.shares.map(|share| hold_ns * share / middle),
    })
}

fn on_each_cpu<M: RawMutex + Send + Sync>(design: Design, cpus: usize, work: Work) -> Result<f64> {
    let on = |cpu: usize| run_once::<M, ReaderLock>(design, &race(cpus, work, LOOK, Some(cpu)), 1);
    let took = std::thread::scope(|scope| {
        let looks: Vec<_> = (0..cores()).map(|cpu| scope.spawn(move || on(cpu))).collect();
        looks.into_iter().map(|look| look.join().map_err(|_| anyhow!("a thread ended in a panic"))).collect::<Vec<_>>()
    });
    let mut sum_ns = 0.0;
    for task_ns in took {
        sum_ns += task_ns?.map_err(broken)? / ACQUISITIONS as f64;
    }
    Ok(sum_ns / cores() as f64)
}
