//! How long metering was switched off: in programs, and that of holds in the kernel.

use std::collections::BTreeMap;

use crate::sample::Kind;

/// Time in which programs were there and not metered, because somebody had switched that off; and in which holds of kernel locks were not
/// counted, because that would have taken more than its budget.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchedOff {
    /// Time in which no program was metered.
    pub all_ns: u64,
    /// By process id; those that were metered all the time are absent.
    pub processes: BTreeMap<u32, u64>,
    /// By kind of kernel lock; those whose holds were counted all the time, or not at all, are absent.
    pub holds: BTreeMap<Kind, u64>,
}

impl SwitchedOff {
    /// Adds so much time of a process.
    pub fn add(&mut self, tgid: u32, off_ns: u64) {
        if off_ns > 0 {
            let sum = self.processes.entry(tgid).or_default();
            *sum = sum.saturating_add(off_ns);
        }
    }

    /// Adds what came in another interval.
    pub fn merge(&mut self, other: &Self) {
        self.all_ns = self.all_ns.saturating_add(other.all_ns);
        for (tgid, off_ns) in &other.processes {
            self.add(*tgid, *off_ns);
        }
        for (kind, off_ns) in &other.holds {
            let sum = self.holds.entry(*kind).or_default();
            *sum = sum.saturating_add(*off_ns);
        }
    }

    /// For how long a process was not metered.
    pub fn of(&self, tgid: u32) -> u64 {
        self.processes.get(&tgid).copied().unwrap_or(0)
    }
}
