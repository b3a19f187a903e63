//! Metering of kernel locks, switched while a target runs.

use lockmeter_kernel::KernelError;
use lockmeter_kernel::contention::{ContentionSource, Metered, Options, Scope, StackBudget};
use lockmeter_profile::Source;

use super::Level;
use super::naive::Naive;
use super::slices::Switch;

/// lockmeter's own meter as `record -a` uses it, and the naive one.
pub struct KernelSwitch {
    source: ContentionSource,
    naive: Result<Naive, String>,
    waits: u64,
    acquisitions_timed: u64,
}

impl KernelSwitch {
    /// Loads both; nothing is attached when this returns.
    pub fn load(stacks: StackBudget) -> Result<Self, KernelError> {
        let mut source = ContentionSource::start(&Options { scope: Scope::Machine, stacks, metered: Metered::Waits })?;
        source.detach();
        source.drain()?;
        Ok(Self { source, naive: Naive::load(), waits: 0, acquisitions_timed: 0 })
    }

    /// Contended acquisitions that were metered so far, and uncontended or not that the naive meter timed.
    pub const fn counts(&self) -> (u64, u64) {
        (self.waits, self.acquisitions_timed)
    }

    fn all_off(&mut self) -> Result<(), KernelError> {
        self.source.detach();
        // Empties the tables, so that the next slice finds them as this one did.
        let interval = self.source.drain()?;
        self.waits += interval.totals.iter().map(|total| total.value.count).sum::<u64>();
        if let Ok(naive) = &mut self.naive {
            // Switching off cannot fail.
            let _ = naive.switch(false);
            self.acquisitions_timed = naive.timed();
        }
        Ok(())
    }
}

impl Switch for KernelSwitch {
    type Error = String;

    fn switch(&mut self, level: Level) -> Result<(), String> {
        let sentence = |error: KernelError| error.to_string();
        self.source.tick();
        self.all_off().map_err(sentence)?;
        match level {
            Level::Bare => Ok(()),
            Level::Off => {
                self.source.attach().map_err(sentence)?;
                self.source.pause(true);
                Ok(())
            }
            Level::Wait => self.source.attach().map_err(sentence),
            Level::Hold => Err("holds are metered from inside a program from its start: leave --slices out".to_owned()),
            Level::Naive => match &mut self.naive {
                Ok(naive) => naive.switch(true),
                Err(why) => Err(why.clone()),
            },
        }
    }
}
