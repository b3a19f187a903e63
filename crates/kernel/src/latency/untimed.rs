//! How many runs there were of what was not timed all the time.

use std::collections::HashMap;

use lockmeter_profile::Kind;

use super::kernel_counts::{Counted, KernelCounts};
use super::naming::{irq_number, softirq_key, vector_key};
use super::programs::Windowed;
use super::tables::{Drained, Runner};
use super::windows::Each;

/// Interrupts from CPU to CPU, as `/proc/interrupts` calls them.
const VECTORS: [&str; 2] = ["RES", "CAL"];

/// Compares what was timed with what the kernel counted.
pub struct Untimed {
    runners: Vec<Kind>,
    counts: KernelCounts,
    /// Handlers of devices' interrupts met so far, with their names: the kernel counts by number.
    handlers: HashMap<u64, String>,
    /// Interrupts of numbers no handler of which was met yet.
    owed: HashMap<u64, u64>,
}

impl Untimed {
    pub fn start(runners: &[Kind]) -> Self {
        Self { runners: runners.to_vec(), counts: KernelCounts::now(), handlers: HashMap::new(), owed: HashMap::new() }
    }

    /// Completes what was drained, where its windows were shut at times since the last time.
    pub fn complete(&mut self, drained: &mut Drained, interrupted: Each<bool>) {
        let counted = self.counts.advance();
        for (key, runner) in &drained.runners {
            if irq_number(*key).is_some() {
                self.handlers.entry(*key).or_insert_with(|| runner.name.clone());
            }
        }
        for (windowed, interrupted) in Windowed::ALL.into_iter().zip(interrupted) {
            match windowed {
                _ if !interrupted => {}
                Windowed::Softirqs if self.runners.contains(&Kind::Softirq) => {
                    let counted = counted.softirqs.iter();
                    set(drained, counted.filter_map(|(label, count)| Some((softirq_key(label)?, "", *count))));
                }
                Windowed::Vectors if self.runners.contains(&Kind::Irq) => {
                    let counted = VECTORS.iter().filter_map(|label| counted.interrupts.get_key_value(*label));
                    set(drained, counted.filter_map(|(label, count)| Some((vector_key(label)?, "", *count))));
                }
                Windowed::Irqs if self.runners.contains(&Kind::Irq) => self.complete_devices(drained, &counted),
                _ => {}
            }
        }
    }

    /// Devices may share a number; then each handler is called for each interrupt.
    fn complete_devices(&mut self, drained: &mut Drained, counted: &Counted) {
        let mut counts = std::mem::take(&mut self.owed);
        for (label, count) in &counted.interrupts {
            if let Ok(number) = label.parse::<u64>() {
                *counts.entry(number).or_default() += count;
            }
        }
        let of_number = |key: &u64| irq_number(*key).and_then(|number| counts.get(&number).copied());
        let met = self.handlers.iter().filter_map(|(key, name)| Some((*key, name.as_str(), of_number(key)?)));
        set(drained, met);
        counts.retain(|number, count| *count > 0 && !self.handlers.keys().any(|key| irq_number(*key) == Some(*number)));
        self.owed = counts;
    }
}

/// `(key, name, count)` of what ran.
fn set<'a>(drained: &mut Drained, counted: impl Iterator<Item = (u64, &'a str, u64)>) {
    for (key, name, count) in counted.filter(|(.., count)| *count > 0) {
        let runner = drained.runners.entry(key).or_insert_with(|| Runner::untimed(name));
        runner.untimed = count.saturating_sub(runner.timed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_whose_handler_was_never_met_is_owed_until_it_is() {
        let key = 1 << 56 | 36 << 40 | 0xabcd;
        let mut untimed = Untimed {
            runners: vec![Kind::Irq],
            counts: KernelCounts::default(),
            handlers: HashMap::new(),
            owed: HashMap::new(),
        };
        let counted =
            |count| Counted { interrupts: HashMap::from([("36".to_owned(), count)]), softirqs: HashMap::new() };
        let mut drained = Drained::default();
        untimed.complete_devices(&mut drained, &counted(5));
        assert!(drained.runners.is_empty());
        untimed.handlers.insert(key, "virtio1".to_owned());
        untimed.complete_devices(&mut drained, &counted(7));
        assert_eq!((drained.runners[&key].untimed, drained.runners[&key].name.as_str()), (12, "virtio1"));
        assert!(untimed.owed.is_empty());
    }
}
