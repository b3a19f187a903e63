//! What a report in the making keeps of each group: what was counted, and what the stacks stand for.

use std::collections::HashMap;

use super::buckets::Buckets;
use super::names::{LockName, StackName, TaskName, TextName};
use super::scaling::{Estimate, Portion};
use crate::filesystem::OfFilesystem;
use crate::has_half::has_half;
use crate::interval::BlockerSource;
use crate::report::{ParkedTime, SampledSpin};
use crate::sample::{Context, Happened, HoldBasis, Kind, Mode, Value};
use crate::thread_time::HolderState;

/// What always stays apart about a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LockGroup {
    pub(super) lock: LockName,
    pub(super) kind: Kind,
    pub(super) mode: Mode,
}

/// What is counted exactly and apart from others: the finest group that a query can ask of the totals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) happened: Happened,
    pub(super) own: bool,
    pub(super) lock: LockGroup,
    /// Outer `None`: not asked for. Inner `None`: not known.
    pub(super) task: Option<Option<TaskName>>,
    pub(super) cgroup: Option<Option<u64>>,
    pub(super) context: Option<Option<Context>>,
    pub(super) cpu: Option<Option<u32>>,
}

/// What the query asks of the stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Site<Stack, Text> {
    pub(super) caller: Option<Stack>,
    pub(super) blocker: Option<Blamed<Stack, Text>>,
    pub(super) root: Option<(Option<LockName>, Blamed<Stack, Text>)>,
    pub(super) instance: Option<Option<u64>>,
    pub(super) filesystem: Option<OfFilesystem<Text>>,
}

/// Who is to blame for a wait, as far as that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Blamed<Stack, Text> {
    pub(super) source: BlockerSource,
    pub(super) stack: Option<Stack>,
    /// Process id and name. Outer `None`: not asked for. Inner `None`: not known.
    pub(super) task: Option<Option<(u32, Text)>>,
}

impl<Stack, Text> Blamed<Stack, Text> {
    /// Nobody is known, for this reason.
    pub(super) const fn nobody(source: BlockerSource) -> Self {
        Self { source, stack: None, task: Some(None) }
    }
}

impl<Stack, Text> Site<Stack, Text> {
    /// That of a query that asks nothing of the stacks.
    pub(super) const NONE: Self = Self { caller: None, blocker: None, root: None, instance: None, filesystem: None };
}

/// Everything measured in one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    pub(super) exact: Buckets<Value>,
    pub(super) basis: HoldBasis,
    /// Of waits: what only samples tell.
    pub(super) samples: Samples,
    /// Of waits, where stacks do not divide them.
    pub(super) run_delay: RunDelay,
    /// The process whose lock it is; `None` is the kernel.
    pub(super) owner: Uniform<Option<u32>>,
    pub(super) sites: HashMap<Site<StackName, TextName>, SiteEstimate>,
}

/// Waited time that nothing counts, and samples tell.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Samples {
    /// That of threads which spun.
    pub(super) spun: SampledSpin,
    /// That of goroutines.
    pub(super) parked: ParkedTime,
}

impl Samples {
    pub(super) fn merge(&mut self, other: &Self) {
        self.spun.merge(&other.spun);
        self.parked.merge(&other.parked);
    }

    /// What it adds to counted waits.
    pub(super) fn added(&self) -> Value {
        let total_ns = self.spun.added_ns.saturating_add(self.parked.total_ns);
        Value { total_ns, spin_ns: self.spun.total_ns, ..Value::default() }
    }

    /// All of it, whether or not something else counts it.
    pub(super) const fn whole_ns(&self) -> u64 {
        self.spun.total_ns.saturating_add(self.parked.total_ns)
    }

    /// How many it rests on.
    pub(super) const fn number(&self) -> u64 {
        self.spun.samples.saturating_add(self.parked.looks)
    }
}

/// Of what there are very many, and most have none.
pub(super) type SomeSamples = Option<Box<Samples>>;

pub(super) fn merge_samples(into: &mut SomeSamples, other: Option<&Samples>) {
    if let Some(other) = other {
        into.get_or_insert_default().merge(other);
    }
}

/// What the stacks of one site stand for.
#[derive(Debug, Clone, Default)]
pub(super) struct SiteEstimate {
    pub(super) buckets: Buckets<Estimate>,
    pub(super) max_ns: u64,
    /// How many stacks it rests on: those the query shows.
    pub(super) stacks: u64,
    /// Of holds.
    pub(super) basis: Option<Box<HoldBasis>>,
    /// As in [`Measured`].
    pub(super) samples: SomeSamples,
    /// Of waits: for how long of them the lock was free, and the waiter not yet running. Of all in the buckets.
    pub(super) run_delay_ns: u64,
    /// The name of the releasing task.
    pub(super) releaser: Uniform<Option<TextName>>,
    /// What the holder did, where rows tell holders apart.
    pub(super) states: Option<Box<HolderStates>>,
}

/// For how much of the sampled waits the lock was free, and the waiter not yet running.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunDelay {
    pub(super) delay_ns: u64,
    pub(super) waited_ns: u64,
}

impl RunDelay {
    pub(super) fn of(source: BlockerSource, waited_ns: u64) -> Self {
        Self { delay_ns: if source == BlockerSource::Handover { waited_ns } else { 0 }, waited_ns }
    }

    pub(super) fn merge(&mut self, other: Self) {
        self.delay_ns = self.delay_ns.saturating_add(other.delay_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
    }

    /// Its share of waits of this length in all; `None` where none of them was sampled.
    pub(super) fn share_of(self, waited_ns: u64) -> Option<u64> {
        let share = u128::from(self.delay_ns) * u128::from(waited_ns);
        share.checked_div(u128::from(self.waited_ns)).and_then(|share| u64::try_from(share).ok())
    }
}

/// What holders did, by the time that they are blamed for.
#[derive(Debug, Clone, Default)]
pub(super) struct HolderStates {
    pub(super) sums: Vec<(Option<HolderState>, u64)>,
}

impl HolderStates {
    pub(super) fn add(&mut self, state: Option<HolderState>, ns: u64) {
        match self.sums.iter_mut().find(|(known, _)| *known == state) {
            Some((_, sum)) => *sum = sum.saturating_add(ns),
            None => self.sums.push((state, ns)),
        }
    }

    /// Adds what is known of others, of whom there may be none.
    pub(super) fn merge_into(sum: &mut Option<Box<Self>>, more: Option<&Self>) {
        if let Some(more) = more {
            sum.get_or_insert_default().merge(more);
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        other.sums.iter().for_each(|(state, ns)| self.add(*state, *ns));
    }

    /// What they did for at least half of the time, and in which call for at least half of that.
    pub(super) fn mostly(&self) -> Option<HolderState> {
        let states = self.sums.iter().map(|(did, ns)| (did.map(|did| did.state), *ns));
        let state = has_half(states)??;
        let calls = self.sums.iter().filter_map(|(did, ns)| Some((did.filter(|did| did.state == state)?.call, *ns)));
        Some(HolderState { state, call: has_half(calls).flatten() })
    }
}

/// A value that all have in common, or not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Uniform<T> {
    #[default]
    Unseen,
    Same(T),
    Different,
}

impl<T: PartialEq + Copy> Uniform<T> {
    pub(super) fn see(&mut self, other: T) {
        self.merge(Self::Same(other));
    }

    pub(super) fn merge(&mut self, other: Self) {
        *self = match (*self, other) {
            (Self::Unseen, only) | (only, Self::Unseen) => only,
            (Self::Same(one), Self::Same(other)) if one == other => Self::Same(one),
            _ => Self::Different,
        };
    }

    pub(super) fn same(self) -> Option<T> {
        match self {
            Self::Same(value) => Some(value),
            Self::Unseen | Self::Different => None,
        }
    }
}

impl Measured {
    pub(super) fn merge(&mut self, other: Measured) {
        for (bucket, value) in other.exact.iter() {
            self.exact.entry(bucket).merge(value);
        }
        self.basis.merge(&other.basis);
        self.samples.merge(&other.samples);
        self.run_delay.merge(other.run_delay);
        self.owner.merge(other.owner);
        for (site, estimate) in other.sites {
            self.sites.entry(site).or_default().merge(&estimate);
        }
    }
}

impl SiteEstimate {
    pub(super) fn add(&mut self, bucket: u8, value: &Value, stacks: u64) {
        let sum = self.buckets.entry(bucket);
        sum.portion.add(&Portion { count: value.count, total_ns: value.total_ns, spin_ns: value.spin_ns });
        sum.stacks = sum.stacks.saturating_add(stacks);
        self.max_ns = self.max_ns.max(value.max_ns);
    }

    pub(super) fn run_delay(&self) -> RunDelay {
        let waited_ns = self.buckets.iter().map(|(_, estimate)| estimate.portion.total_ns).fold(0, u64::saturating_add);
        RunDelay { delay_ns: self.run_delay_ns, waited_ns }
    }

    pub(super) fn merge(&mut self, other: &SiteEstimate) {
        for (bucket, estimate) in other.buckets.iter() {
            let sum = self.buckets.entry(bucket);
            sum.portion.add(&estimate.portion);
            sum.stacks = sum.stacks.saturating_add(estimate.stacks);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
        self.stacks = self.stacks.saturating_add(other.stacks);
        merge_samples(&mut self.samples, other.samples.as_deref());
        if let Some(basis) = &other.basis {
            self.basis.get_or_insert_default().merge(basis);
        }
        self.run_delay_ns = self.run_delay_ns.saturating_add(other.run_delay_ns);
        self.releaser.merge(other.releaser);
        HolderStates::merge_into(&mut self.states, other.states.as_deref());
    }
}

impl Portion {
    pub(super) fn add(&mut self, other: &Portion) {
        self.count = self.count.saturating_add(other.count);
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.spin_ns = self.spin_ns.saturating_add(other.spin_ns);
    }
}
