//! Everything that the agent meters, as one source whose parts come and go.

use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;

use anyhow::Result;
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::latency::{LatencySource, Options as LatencyOptions, RUNNERS};
use lockmeter_kernel::threads::LookPace;
use lockmeter_profile::{Interval, Source};
use lockmeter_recorder::{HoldOptions, HookChoice, LockOptions, LockSources, Which};

/// What is metered beside the waits for kernel locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Details {
    pub threads: bool,
    /// Needs the threads.
    pub programs: bool,
    pub latency: bool,
    pub holds: bool,
}

impl Details {
    /// In the order in which they are shed.
    pub fn named(self) -> [(&'static str, bool); 4] {
        [("holds", self.holds), ("latency", self.latency), ("programs", self.programs), ("threads", self.threads)]
    }

    /// Without the first `count` of those that are metered.
    pub fn without(self, count: usize) -> Self {
        let mut left = count;
        let mut keep = |wanted: bool| {
            let shed = wanted && left > 0;
            left -= usize::from(shed);
            wanted && !shed
        };
        // In the order in which the fields are written.
        Self {
            holds: keep(self.holds),
            latency: keep(self.latency),
            programs: keep(self.programs),
            threads: keep(self.threads),
        }
    }
}

/// What stacks may cost: a fiftieth of the agent's budget, a dozen of them a second for each CPU. Totals are exact all the same, and what agents
/// meter is read by the hour.
pub const STACKS: StackBudget = StackBudget::Share { ppm: 100 };

/// Spinning is estimated from this many samples of each CPU. The clock that takes them wakes idle CPUs, too.
const SAMPLES_A_SECOND: u32 = 11;

/// All threads are looked at every other second, and at the end of each interval: at each tick that would cost a quarter of the agent's budget on a
/// machine with a thousand threads.
const LOOKS: LookPace = LookPace::Ticks(20);

/// A quarter of the agent's memory, together with what unwinding needs. Programs that come and go are read again; what is asked for often is kept
/// by its address.
const MOST_PROGRAM_BYTES: u64 = 12 << 20;

/// The source. What is wanted may be changed at any time; from the next drain on it is metered.
pub struct AgentSources {
    locks: Option<LockSources>,
    latency: Option<LatencySource>,
    wanted: Rc<Cell<Details>>,
    metered: Details,
    notices: Vec<String>,
}

impl AgentSources {
    pub fn start(wanted: Rc<Cell<Details>>) -> Result<Self> {
        let metered = wanted.get();
        let locks = Some(LockSources::start(&lock_options(metered))?);
        let mut sources = Self { locks, latency: None, wanted, metered, notices: Vec::new() };
        sources.start_latency();
        Ok(sources)
    }

    fn start_latency(&mut self) {
        if !self.metered.latency || self.latency.is_some() {
            return;
        }
        match LatencySource::start(&LatencyOptions { runners: RUNNERS.to_vec(), threshold: None, every: false }) {
            Ok(source) => self.latency = Some(source),
            // Locks are metered all the same.
            Err(error) => self.notices.push(format!("interrupts are not metered: {error}")),
        }
    }

    /// Stops what is no longer wanted and starts what is. What was stopped has handed over all that it had.
    fn change(&mut self, interval: &mut Interval) -> Result<()> {
        let (wanted, before) = (self.wanted.get(), self.metered);
        self.metered = wanted;
        if !wanted.latency {
            self.latency = None;
        }
        self.start_latency();
        if (Details { latency: before.latency, ..wanted }) != before {
            if let Some(locks) = self.locks.take() {
                let last = locks.stop()?;
                // A moment after the drain: nothing but what it cost and lost is worth keeping.
                interval.losses.merge(&last.losses);
                interval.overhead.merge(&last.overhead);
            }
            self.locks = Some(LockSources::start(&lock_options(wanted))?);
        }
        Ok(())
    }
}

fn lock_options(details: Details) -> LockOptions {
    LockOptions {
        which: if details.programs { Which::All } else { Which::Kernel },
        stacks: STACKS,
        holds: details.holds.then(|| HoldOptions { hooks: HookChoice::None, ..HoldOptions::default() }),
        counts_unfinished: false,
        samples_a_second: SAMPLES_A_SECOND,
        looks: LOOKS,
        threads: details.threads,
        most_program_bytes: Some(MOST_PROGRAM_BYTES),
        ..LockOptions::usual(Scope::Machine)
    }
}

impl Source for AgentSources {
    type Error = anyhow::Error;

    fn news(&self) -> Option<BorrowedFd<'_>> {
        self.locks.as_ref().and_then(Source::news)
    }

    fn take_news(&mut self) -> bool {
        self.locks.as_mut().is_some_and(Source::take_news)
    }

    fn tick(&mut self) -> bool {
        let locks = self.locks.as_mut().is_some_and(Source::tick);
        let latency = self.latency.as_mut().is_some_and(Source::tick);
        locks || latency || self.wanted.get() != self.metered
    }

    fn take_notices(&mut self) -> Vec<String> {
        let mut notices = std::mem::take(&mut self.notices);
        notices.extend(self.locks.iter_mut().flat_map(Source::take_notices));
        notices.extend(self.latency.iter_mut().flat_map(Source::take_notices));
        notices
    }

    fn drain(&mut self) -> Result<Interval> {
        let mut interval = match &mut self.locks {
            Some(locks) => locks.drain()?,
            None => Interval::default(),
        };
        if let Some(latency) = &mut self.latency {
            latency.drain_into(&mut interval)?;
        }
        if self.wanted.get() != self.metered {
            self.change(&mut interval)?;
        }
        Ok(interval)
    }

    fn stop(mut self) -> Result<Interval> {
        let mut interval = match self.locks.take() {
            Some(locks) => locks.stop()?,
            None => Interval::default(),
        };
        if let Some(latency) = &mut self.latency {
            latency.drain_into(&mut interval)?;
        }
        Ok(interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn details_are_shed_in_their_order_and_only_those_that_are_metered() {
        let all = Details { threads: true, programs: true, latency: true, holds: true };
        assert_eq!(all.without(1), Details { holds: false, ..all });
        assert_eq!(all.without(2), Details { holds: false, latency: false, ..all });
        let none = Details { threads: false, programs: false, latency: false, holds: false };
        assert_eq!(all.without(3), Details { threads: true, ..none });
        assert_eq!(all.without(9), none);
        let without_holds = Details { holds: false, ..all };
        assert_eq!(without_holds.without(1), Details { latency: false, ..without_holds });
        assert_eq!(without_holds.without(0), without_holds);
    }
}
