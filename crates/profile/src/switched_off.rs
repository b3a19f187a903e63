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
        add(&mut self.processes, tgid, off_ns);
    }

    /// Adds what came in another interval.
    pub fn merge(&mut self, other: &Self) {
        self.all_ns = self.all_ns.saturating_add(other.all_ns);
        for (tgid, off_ns) in &other.processes {
            self.add(*tgid, *off_ns);
        }
        for (kind, off_ns) in &other.holds {
            add(&mut self.holds, *kind, *off_ns);
        }
    }

    /// For how long a process was not metered.
    pub fn of(&self, tgid: u32) -> u64 {
        self.processes.get(&tgid).copied().unwrap_or(0)
    }
}

fn add<K: Ord>(sums: &mut BTreeMap<K, u64>, of: K, off_ns: u64) {
    if off_ns > 0 {
        let sum = sums.entry(of).or_default();
        *sum = sum.saturating_add(off_ns);
    }
}

/// For how long something was off that is switched off and on.
#[derive(Debug, Default)]
pub struct OffTime {
    since_ns: Option<u64>,
    sum_ns: u64,
}

impl OffTime {
    /// From then on it is off, or on.
    pub fn switch(&mut self, is_off: bool, at_ns: u64) {
        match (is_off, self.since_ns) {
            (true, None) => self.since_ns = Some(at_ns),
            (false, Some(since_ns)) => {
                self.sum_ns += at_ns.saturating_sub(since_ns);
                self.since_ns = None;
            }
            _ => {}
        }
    }

    /// Whether it is off now.
    pub const fn is_off(&self) -> bool {
        self.since_ns.is_some()
    }

    /// For how long since the last call.
    pub fn cut(&mut self, now_ns: u64) -> u64 {
        let is_off = self.is_off();
        self.switch(false, now_ns);
        self.switch(is_off, now_ns);
        std::mem::take(&mut self.sum_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_off_is_told_once_also_if_it_goes_on_or_is_switched_twice() {
        let mut off = OffTime::default();
        off.switch(false, 5);
        assert_eq!(off.cut(10), 0);
        off.switch(true, 12);
        off.switch(true, 13);
        assert_eq!(off.cut(20), 8);
        off.switch(false, 25);
        off.switch(true, 27);
        off.switch(false, 28);
        assert_eq!(off.cut(30), 6);
        assert_eq!(off.cut(40), 0);
    }
}
