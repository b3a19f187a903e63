//! The rows of a report, as workloads tell them apart.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use lockmeter_profile::{BlockerSource, Happened, HoldBasis, Kind, Mode, Naming, Row, ThreadState, Value};

use crate::workload::Workloads;

/// Functions, innermost first; empty where they are not known.
pub type Stack = Arc<[Arc<str>]>;

/// Who made it wait: how that is known, where, and what it did meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Blamed {
    /// How it is known, or why it is not.
    pub source: BlockerSource,
    /// Where.
    pub stack: Stack,
    /// What it did for at least half of that time.
    pub state: Option<ThreadState>,
}

/// What tells samples apart, in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The lock's name.
    pub lock: String,
    /// Its kind.
    pub kind: Option<Kind>,
    /// In which mode it was asked for.
    pub mode: Option<Mode>,
    /// What happened.
    pub happened: Happened,
    /// To whom.
    pub workload: Option<String>,
    /// Where.
    pub caller: Option<Stack>,
    /// Who made it wait.
    pub blocker: Option<Blamed>,
    /// The lock that the blocker waited for itself, at the end of the chain.
    pub root_lock: Option<String>,
    /// Who had that.
    pub root: Option<Blamed>,
}

/// How often and for how long.
#[derive(Debug, Default)]
pub struct Sum {
    /// The numbers.
    pub value: Value,
    /// How the lock's name is known.
    pub naming: Option<Naming>,
    /// How many stacks it rests on.
    pub stacks: u64,
    /// Of holds.
    pub basis: Option<HoldBasis>,
    /// Count and time of each power-of-two bucket.
    pub histogram: BTreeMap<u8, (u64, u64)>,
}

impl Sum {
    fn add(&mut self, other: Self) {
        self.value.merge(&other.value);
        self.naming = self.naming.or(other.naming);
        self.stacks = self.stacks.saturating_add(other.stacks);
        if let Some(basis) = other.basis {
            self.basis.get_or_insert_default().merge(&basis);
        }
        for (bucket, (count, total_ns)) in other.histogram {
            let (counts, totals_ns) = self.histogram.entry(bucket).or_default();
            *counts = counts.saturating_add(count);
            *totals_ns = totals_ns.saturating_add(total_ns);
        }
    }
}

/// The samples of these rows, in their order. Control groups of one workload become one.
pub fn samples(rows: Vec<Row>, workloads: &mut Workloads) -> BTreeMap<Key, Sum> {
    let mut samples = BTreeMap::<Key, Sum>::new();
    for row in rows {
        let workload = workloads.of(&row);
        let sum = Sum {
            value: row.value,
            naming: row.naming,
            stacks: row.stacks,
            basis: row.basis.as_deref().copied(),
            histogram: row.histogram.iter().map(|(bucket, count, total_ns)| (bucket.0, (*count, *total_ns))).collect(),
        };
        samples.entry(key(&row, workload)).or_default().add(sum);
    }
    samples
}

/// What the smallest rows become.
pub const OTHER: &str = "other";

/// At most about `most` rows of full detail, those with most time, and how many were merged: the others tell locks apart but not workloads,
/// callers and blockers; if these are more than `most` again, the smallest do not even tell locks apart. All sums stay what they are.
pub fn largest(samples: BTreeMap<Key, Sum>, most: usize) -> (BTreeMap<Key, Sum>, u64) {
    let of_lock = |key: Key| Key {
        workload: Some(OTHER.to_owned()),
        caller: None,
        blocker: None,
        root_lock: None,
        root: None,
        ..key
    };
    let of_all = |key: Key| Key { lock: OTHER.to_owned(), ..of_lock(key) };
    let rows = samples.len();
    let (mut kept, others) = split(samples, most);
    let (by_lock, others) = split(merged(others, of_lock), most);
    kept.extend(by_lock);
    for (key, sum) in merged(others.into_iter().map(|(key, sum)| (key, Sum { naming: None, ..sum })), of_all) {
        kept.entry(key).or_default().add(sum);
    }
    let merged = rows - kept.len();
    (kept, merged as u64)
}

/// Those with most time, and the others.
fn split(samples: BTreeMap<Key, Sum>, most: usize) -> (BTreeMap<Key, Sum>, Vec<(Key, Sum)>) {
    if samples.len() <= most {
        return (samples, Vec::new());
    }
    let mut rows = samples.into_iter().collect::<Vec<_>>();
    rows.sort_by_key(|(_, sum)| Reverse(sum.value.total_ns));
    let others = rows.split_off(most);
    (rows.into_iter().collect(), others)
}

fn merged(rows: impl IntoIterator<Item = (Key, Sum)>, into: impl Fn(Key) -> Key) -> BTreeMap<Key, Sum> {
    let mut merged = BTreeMap::<Key, Sum>::new();
    for (key, sum) in rows {
        merged.entry(into(key)).or_default().add(sum);
    }
    merged
}

fn key(row: &Row, workload: Option<String>) -> Key {
    let root = row.root.as_deref();
    Key {
        lock: row.lock.clone().unwrap_or_default(),
        kind: row.kind,
        mode: row.mode,
        happened: row.happened,
        workload,
        caller: row.caller.clone(),
        blocker: row.blocker.as_deref().map(|of| Blamed {
            source: of.source,
            stack: Arc::clone(&of.stack),
            state: of.state.map(|did| did.state),
        }),
        root_lock: root.and_then(|of| of.lock.clone()),
        root: root.map(|of| Blamed {
            source: of.source,
            stack: Arc::clone(&of.stack),
            state: of.state.map(|did| did.state),
        }),
    }
}
