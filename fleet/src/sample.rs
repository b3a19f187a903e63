//! The rows of a report, as workloads tell them apart.

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

/// The samples of these rows, in their order. Control groups of one workload become one.
pub fn samples(rows: Vec<Row>, workloads: &mut Workloads) -> BTreeMap<Key, Sum> {
    let mut samples = BTreeMap::<Key, Sum>::new();
    for row in rows {
        let workload = workloads.of(&row);
        let value = row.value;
        let sum = samples.entry(key(&row, workload)).or_default();
        sum.value.merge(&value);
        sum.naming = sum.naming.or(row.naming);
        sum.stacks = sum.stacks.saturating_add(row.stacks);
        if let Some(basis) = row.basis {
            sum.basis.get_or_insert_default().merge(&basis);
        }
        for (bucket, count, total_ns) in row.histogram {
            let (counts, totals_ns) = sum.histogram.entry(bucket.0).or_default();
            *counts = counts.saturating_add(count);
            *totals_ns = totals_ns.saturating_add(total_ns);
        }
    }
    samples
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
            state: of.state,
        }),
        root_lock: root.and_then(|of| of.lock.clone()),
        root: root.map(|of| Blamed { source: of.source, stack: Arc::clone(&of.stack), state: of.state }),
    }
}
