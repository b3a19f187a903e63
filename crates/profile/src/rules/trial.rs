//! What the rules of a file match in a recording.

use std::collections::{BTreeMap, HashMap};

use super::read_again::{frames, primitive_kind};
use super::{Layer, RuleId, Rules};
use crate::interval::{Frame, Interval, StackId};
use crate::lock::Space;
use crate::sample::{Happened, Kind};
use crate::thread_time::ThreadState;

/// What one rule matches.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tried {
    /// Waits that it decides, by their stacks.
    pub waited_ns: u64,
    /// Sleeps that it decides, by the looks at threads.
    pub asleep_ns: u64,
    /// The stacks among both on which it decides.
    pub stacks: u64,
    /// Time of the same that another rule decides although this one matches, by that rule.
    pub lost_to: BTreeMap<RuleId, u64>,
    /// Stacks with one of its functions on which something else that it asks for is not so.
    pub function_only: u64,
}

/// Tries the rules of a file, which are the first of a list; the others are those that they meet.
#[derive(Debug)]
pub struct Trial<'r> {
    rules: &'r Rules,
    tried: BTreeMap<RuleId, Tried>,
    /// All waits of programs, and all sleeps that rules may be about.
    pub waited_ns: u64,
    /// As above.
    pub asleep_ns: u64,
}

/// Which rules match a stack, and whether that decides.
#[derive(Debug, Clone, Default)]
struct Matches {
    decides: Option<RuleId>,
    others: Vec<RuleId>,
    function_only: Vec<RuleId>,
}

impl<'r> Trial<'r> {
    /// Of the first set of these rules.
    pub fn new(rules: &'r Rules) -> Self {
        let of_file = rules.all().filter(|(_, rule)| rule.set == 0);
        Self { rules, tried: of_file.map(|(id, _)| (id, Tried::default())).collect(), waited_ns: 0, asleep_ns: 0 }
    }

    /// What each rule matches.
    pub fn tried(&self) -> impl Iterator<Item = (RuleId, &Tried)> {
        self.tried.iter().map(|(id, tried)| (*id, tried))
    }

    /// Adds what an interval holds.
    pub fn add(&mut self, interval: &Interval) {
        let mut known = HashMap::<(StackId, Kind), Matches>::new();
        let mut of = |trial: &Self, stack: StackId, kind: Kind| {
            let find = || trial.find(&frames(&interval.tables, stack), kind);
            known.entry((stack, kind)).or_insert_with(find).clone()
        };
        for sampled in &interval.sampled {
            let key = sampled.key;
            let is_of_program = interval.tables.lock(key.lock).is_some_and(|lock| lock.space() == Space::User);
            let is_wait = matches!(key.happened, Happened::Wait | Happened::Idle | Happened::TimedOut);
            let Some(site) = sampled.site.filter(|_| is_of_program && is_wait) else { continue };
            let (stacks, ns) = (sampled.stacks, sampled.estimate.total_ns);
            self.waited_ns = self.waited_ns.saturating_add(ns);
            self.count(&of(self, site, key.kind), stacks, ns, |tried| &mut tried.waited_ns);
        }
        for sleep in &interval.threads.sleeps {
            let Some(site) = sleep.site.filter(|_| sleep.reason != ThreadState::KernelLock) else { continue };
            let ns = sleep.estimate_ns;
            self.asleep_ns = self.asleep_ns.saturating_add(ns);
            self.count(&of(self, site, Kind::Futex), sleep.looks, ns, |tried| &mut tried.asleep_ns);
        }
    }

    fn find(&self, stack: &[Frame], recorded: Kind) -> Matches {
        let of = Some(primitive_kind(stack, recorded));
        let decides = self.rules.built(stack, of).map(|found| found.id);
        let mut matches = Matches { decides, ..Matches::default() };
        for (id, rule) in self.rules.all().filter(|(_, rule)| rule.set == 0 && rule.layer == Layer::Built) {
            let any = |matches: &dyn Fn(usize) -> bool| (0..stack.len()).any(matches);
            if any(&|at| rule.matches(stack, at, of)) {
                if decides != Some(id) {
                    matches.others.push(id);
                }
            } else if any(&|at| rule.has_function(&stack[at])) {
                matches.function_only.push(id);
            }
        }
        matches
    }

    fn count(&mut self, matches: &Matches, stacks: u64, ns: u64, time: fn(&mut Tried) -> &mut u64) {
        if let Some(tried) = matches.decides.and_then(|id| self.tried.get_mut(&id)) {
            *time(tried) = time(tried).saturating_add(ns);
            tried.stacks = tried.stacks.saturating_add(stacks);
        }
        for id in &matches.others {
            if let (Some(tried), Some(winner)) = (self.tried.get_mut(id), matches.decides) {
                let lost = tried.lost_to.entry(winner).or_default();
                *lost = lost.saturating_add(ns);
            }
        }
        for id in &matches.function_only {
            if let Some(tried) = self.tried.get_mut(id) {
                tried.function_only = tried.function_only.saturating_add(stacks);
            }
        }
    }
}
