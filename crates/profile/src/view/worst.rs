//! The head of a report: what was named, and the lock that cost most.

use std::collections::{BTreeMap, HashMap};

use super::names::TextName;
use super::{LockGroup, ReportBuilder};
use crate::report::Worst;
use crate::sample::{Kind, Mode, Value};

/// What the samples say about who waited for a lock and who made it wait, by estimated waited time.
#[derive(Debug, Clone, Default)]
pub(super) struct Blame {
    callers: HashMap<TextName, u64>,
    blockers: HashMap<TextName, u64>,
    blocker_tasks: HashMap<TextName, u64>,
}

impl Blame {
    pub(super) fn add(
        &mut self,
        caller: Option<TextName>,
        blocker: Option<TextName>,
        task: Option<TextName>,
        waited_ns: u64,
    ) {
        for (blamed, who) in
            [(&mut self.callers, caller), (&mut self.blockers, blocker), (&mut self.blocker_tasks, task)]
        {
            if let Some(who) = who {
                let sum = blamed.entry(who).or_default();
                *sum = sum.saturating_add(waited_ns);
            }
        }
    }

    /// How many names are blamed.
    pub(super) fn len(&self) -> usize {
        self.callers.len() + self.blockers.len() + self.blocker_tasks.len()
    }
}

pub(super) struct Head {
    pub(super) named_ns: u64,
    pub(super) worst: Option<Worst>,
}

pub(super) fn head(builder: &ReportBuilder) -> Head {
    let names = &builder.names;
    let name_of = |group: &LockGroup| names.lock(group.lock).name.as_str();
    let mut named_ns = 0u64;
    let mut by_name = BTreeMap::<(&str, Kind, Mode), Value>::new();
    for (group, value) in &builder.locks {
        let name = name_of(group);
        by_name.entry((name, group.kind, group.mode)).or_default().merge(value);
        if names.naming(name).is_some_and(|best| best.is_named()) {
            named_ns = named_ns.saturating_add(value.total_ns);
        }
    }
    // Of equal totals the first by name.
    let worst = by_name.into_iter().rev().max_by_key(|(_, value)| value.total_ns);
    let worst = worst.map(|((name, kind, mode), value)| {
        let blamed = |pick: fn(&Blame) -> &HashMap<TextName, u64>| {
            let mut sums = BTreeMap::<&str, u64>::new();
            for (group, blame) in &builder.blame {
                if (name_of(group), group.kind, group.mode) == (name, kind, mode) {
                    for (who, waited_ns) in pick(blame) {
                        let sum = sums.entry(names.text_of(*who)).or_default();
                        *sum = sum.saturating_add(*waited_ns);
                    }
                }
            }
            sums.into_iter().rev().max_by_key(|(_, waited_ns)| *waited_ns).map(|(who, _)| who.to_owned())
        };
        Worst {
            lock: name.to_owned(),
            kind,
            mode,
            value,
            blocker_function: blamed(|blame| &blame.blockers),
            blocker_task: blamed(|blame| &blame.blocker_tasks),
            caller_function: blamed(|blame| &blame.callers),
        }
    });
    Head { named_ns, worst }
}
