//! The head of a report: what was named, and the lock that cost most.

use std::collections::{BTreeMap, HashMap};

use super::names::{LockName, TextName};
use super::{HolderStates, LockGroup, ReportBuilder, RunDelay};
use crate::report::{TimedOut, Worst};
use crate::sample::{Kind, Mode, Value};
use crate::thread_time::HolderState;

/// What the samples say about who waited for a lock and who made it wait, by estimated waited time.
#[derive(Debug, Clone, Default)]
pub(super) struct Blame {
    callers: HashMap<TextName, u64>,
    blockers: HashMap<TextName, u64>,
    blocker_tasks: HashMap<TextName, u64>,
    /// By blocker: what it did, or its root.
    states: HashMap<TextName, HolderStates>,
    run_delay: RunDelay,
    /// How many stacks this rests on.
    stacks: u64,
    /// By blocker: the locks that it waited for itself, and who had them.
    roots: HashMap<(TextName, LockName, Option<TextName>), u64>,
}

impl Blame {
    /// The blocker waited for this lock, which that function had.
    pub(super) fn add_root(&mut self, blocker: TextName, (lock, root): (LockName, Option<TextName>), waited_ns: u64) {
        let sum = self.roots.entry((blocker, lock, root)).or_default();
        *sum = sum.saturating_add(waited_ns);
    }

    /// What the blocker, or its root, did.
    pub(super) fn add_state(&mut self, blocker: TextName, state: Option<HolderState>, waited_ns: u64) {
        self.states.entry(blocker).or_default().add(state, waited_ns);
    }

    /// What a sample says no matter who is to blame.
    pub(super) fn add_wait(&mut self, run_delay: RunDelay, stacks: u64) {
        self.run_delay.merge(run_delay);
        self.stacks = self.stacks.saturating_add(stacks);
    }

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
        self.callers.len() + self.blockers.len() + self.blocker_tasks.len() + self.roots.len()
    }
}

fn ppm(part: u64, whole: u64) -> u64 {
    let ppm = (u128::from(part) * 1_000_000).checked_div(u128::from(whole)).unwrap_or(0);
    u64::try_from(ppm).unwrap_or(u64::MAX)
}

pub(super) struct Head {
    pub(super) named_ns: u64,
    pub(super) worst: Option<Worst>,
    pub(super) timed_out: Option<TimedOut>,
}

type ByName<'a> = BTreeMap<(&'a str, Kind, Mode), Value>;

/// Of equal totals the first by name.
fn most<'a>(by_name: ByName<'a>) -> Option<((&'a str, Kind, Mode), Value)> {
    by_name.into_iter().rev().max_by_key(|(_, value)| value.total_ns)
}

fn timed_out(builder: &ReportBuilder) -> Option<TimedOut> {
    let (mut all, mut by_name) = (Value::default(), ByName::new());
    for (group, value) in &builder.timed_out {
        all.merge(value);
        let name = builder.names.lock(group.lock).name.as_str();
        by_name.entry((name, group.kind, group.mode)).or_default().merge(value);
    }
    most(by_name).map(|(lock, value)| {
        let blamed = |pick| most_blamed(builder, &builder.timed_out_blame, lock, pick).map(|(who, _)| who);
        let (blocker_function, blocker_task) = (blamed(|blame| &blame.blockers), blamed(|blame| &blame.blocker_tasks));
        let (lock, kind, mode) = (lock.0.to_owned(), lock.1, lock.2);
        TimedOut { all, lock, kind, mode, value, blocker_function, blocker_task }
    })
}

/// Whom most of the waits for a lock are blamed on, and how much of them.
fn most_blamed(
    builder: &ReportBuilder,
    blamed: &HashMap<LockGroup, Blame>,
    lock: (&str, Kind, Mode),
    pick: fn(&Blame) -> &HashMap<TextName, u64>,
) -> Option<(String, u64)> {
    let mut sums = BTreeMap::<&str, u64>::new();
    for (group, blame) in blamed {
        if (builder.names.lock(group.lock).name.as_str(), group.kind, group.mode) == lock {
            for (who, waited_ns) in pick(blame) {
                let sum = sums.entry(builder.names.text_of(*who)).or_default();
                *sum = sum.saturating_add(*waited_ns);
            }
        }
    }
    sums.into_iter().rev().max_by_key(|(_, waited_ns)| *waited_ns).map(|(who, waited_ns)| (who.to_owned(), waited_ns))
}

pub(super) fn head(builder: &ReportBuilder) -> Head {
    let names = &builder.names;
    let name_of = |group: &LockGroup| names.lock(group.lock).name.as_str();
    let mut named_ns = 0u64;
    let mut by_name = ByName::new();
    for (group, value) in &builder.locks {
        let name = name_of(group);
        by_name.entry((name, group.kind, group.mode)).or_default().merge(value);
        if names.naming(name).is_some_and(|best| best.is_named()) {
            named_ns = named_ns.saturating_add(value.total_ns);
        }
    }
    let worst = most(by_name).map(|((name, kind, mode), value)| {
        let blamed = |pick| most_blamed(builder, &builder.blame, (name, kind, mode), pick);
        let who = |blamed: Option<(String, u64)>| blamed.map(|(who, _)| who);
        let (blocker_function, blocker_ns) = blamed(|blame| &blame.blockers).unzip();
        let blocker_ns = blocker_ns.unwrap_or(0);
        let is_of = |group: &LockGroup| (name_of(group), group.kind, group.mode) == (name, kind, mode);
        let root = blocker_function.as_deref().and_then(|blocker| {
            let mut roots = BTreeMap::<(&str, Option<&str>), u64>::new();
            for (_, blame) in builder.blame.iter().filter(|(group, _)| is_of(group)) {
                let its = |who: &TextName| &**names.text_of(*who) == blocker;
                for ((_, lock, root), ns) in blame.roots.iter().filter(|((who, ..), _)| its(who)) {
                    let root = root.map(|root| &**names.text_of(root));
                    *roots.entry((names.lock(*lock).name.as_str(), root)).or_default() += ns;
                }
            }
            let most = roots.into_iter().rev().max_by_key(|(_, ns)| *ns);
            let (lock, root) = most.filter(|(_, ns)| *ns * 2 >= blocker_ns)?.0;
            Some((lock.to_owned(), root.map(str::to_owned)))
        });
        let mut states = HolderStates::default();
        for (_, blame) in builder.blame.iter().filter(|(group, _)| is_of(group)) {
            let its = |(who, _): &(&TextName, _)| Some(&**names.text_of(**who)) == blocker_function.as_deref();
            blame.states.iter().filter(its).for_each(|(_, more)| states.merge(more));
        }
        let holder_state = states.mostly();
        let of_lock = || builder.blame.iter().filter(|(group, _)| is_of(group)).map(|(_, blame)| blame);
        let sum = |of: fn(&Blame) -> u64| of_lock().map(of).fold(0, u64::saturating_add);
        let (handover_ns, waited_ns) = (sum(|blame| blame.run_delay.delay_ns), sum(|blame| blame.run_delay.waited_ns));
        Worst {
            lock: name.to_owned(),
            root,
            holder_state,
            handover_ppm: ppm(handover_ns, waited_ns),
            blocker_ppm: ppm(blocker_ns, waited_ns),
            stacks: sum(|blame| blame.stacks),
            kind,
            mode,
            value,
            blocker_function,
            blocker_task: who(blamed(|blame| &blame.blocker_tasks)),
            caller_function: who(blamed(|blame| &blame.callers)),
        }
    });
    Head { named_ns, worst, timed_out: timed_out(builder) }
}
