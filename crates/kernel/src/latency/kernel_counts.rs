//! What the kernel itself counts of interrupts and softirqs.

use std::collections::HashMap;
use std::fs;

const INTERRUPTS: &str = "/proc/interrupts";
const SOFTIRQS: &str = "/proc/softirqs";

/// Counts since the machine began, of each CPU, by the label of their line. They wrap around.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Lines(HashMap<String, Vec<u32>>);

impl Lines {
    /// What cannot be read is not counted.
    fn read(path: &str) -> Self {
        fs::read_to_string(path).map(|text| Self::of(&text)).unwrap_or_default()
    }

    fn of(text: &str) -> Self {
        let mut lines = text.lines();
        let cpus = lines.next().map_or(0, |heading| heading.split_whitespace().count());
        let line = |line: &str| {
            let (label, counts) = line.split_once(':')?;
            let counts = counts.split_whitespace().take(cpus).map_while(|count| count.parse::<u64>().ok());
            // Only the low half is counted by the kernel, whatever is printed.
            let counts = counts.map(|count| (count & u64::from(u32::MAX)) as u32).collect();
            Some((label.trim().to_owned(), counts))
        };
        Self(lines.filter_map(line).collect())
    }

    /// Of all CPUs, by label. A CPU or a line that is new or gone counts nothing.
    fn since(&self, before: &Self) -> HashMap<String, u64> {
        let grown = |label: &str, now: &[u32]| -> u64 {
            let before = before.0.get(label).filter(|before| before.len() == now.len());
            before.map_or(0, |before| now.iter().zip(before).map(|(now, was)| u64::from(now.wrapping_sub(*was))).sum())
        };
        self.0.iter().map(|(label, now)| (label.clone(), grown(label, now))).collect()
    }
}

/// Everything the kernel counts, at one time.
#[derive(Debug, Clone, Default)]
pub struct KernelCounts {
    interrupts: Lines,
    softirqs: Lines,
}

/// What it counted between two of them, by label.
#[derive(Debug, Default)]
pub struct Counted {
    pub interrupts: HashMap<String, u64>,
    pub softirqs: HashMap<String, u64>,
}

impl KernelCounts {
    /// Reads them.
    pub fn now() -> Self {
        Self { interrupts: Lines::read(INTERRUPTS), softirqs: Lines::read(SOFTIRQS) }
    }

    /// What was counted since this was read; from now on, since now.
    pub fn advance(&mut self) -> Counted {
        let before = std::mem::replace(self, Self::now());
        Counted {
            interrupts: self.interrupts.since(&before.interrupts),
            softirqs: self.softirqs.since(&before.softirqs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str =
        "           CPU0       CPU1\n 36:   4294967290   7   PCI-MSIX 1-edge   virtio1\nERR:   3\nLOC: 5 6 Local\n";
    const AFTER: &str =
        "           CPU0       CPU1\n 36:   4   9   PCI-MSIX 1-edge   virtio1\nERR:   3\nLOC: 6 8 Local\n";

    #[test]
    fn counts_of_all_cpus_are_added_up_across_their_wrapping_around() {
        let counted = Lines::of(AFTER).since(&Lines::of(BEFORE));
        assert_eq!((counted["36"], counted["LOC"], counted["ERR"]), (12, 3, 0));
    }

    #[test]
    fn a_cpu_that_comes_meanwhile_counts_nothing() {
        let after = "  CPU0 CPU1 CPU2\nLOC: 6 8 1000 Local\n";
        assert_eq!(Lines::of(after).since(&Lines::of(BEFORE))["LOC"], 0);
    }
}
