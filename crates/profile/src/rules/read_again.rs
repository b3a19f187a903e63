//! A recording read again with other rules, as far as its stacks go.
//!
//! What was counted exactly has no stacks: it is divided in proportion to the stacks that were taken of it. So sums stay exact, and shares
//! are as good as the estimates of the recording.

use std::collections::HashMap;

use super::{Is, Match, Rules, installed};
use crate::interval::{Frame, Interval, StackId, Tables};
use crate::lock::{Lock, Space};
use crate::sample::{Happened, Key, Kind, Mode, Value};
use crate::thread_time::ThreadState;

/// What the stack of a wait says by other rules.
#[derive(Debug, Clone)]
struct Said {
    is: Is,
    kind: Kind,
    mode: Mode,
    any_call: bool,
    /// `None`: the lock stays what it was.
    lock: Option<Lock>,
}

/// What stacks of an interval say, each asked once.
struct Stacks<'r> {
    rules: &'r Rules,
    said: HashMap<(StackId, Kind), Option<Said>>,
}

/// The frames of a stack, innermost first, as far as rules look.
pub(super) fn frames(tables: &Tables, stack: StackId) -> Vec<Frame> {
    let ids = tables.stack(stack).map_or(&[][..], Vec::as_slice);
    ids.iter().take(super::DEEPEST).filter_map(|id| tables.frame(*id)).cloned().collect()
}

/// The kind of the primitive that waits with this stack; `recorded` if no function says it.
pub(super) fn primitive_kind(stack: &[Frame], recorded: Kind) -> Kind {
    let mut functions = stack.iter().filter_map(|frame| frame.function.as_deref());
    functions.find_map(|function| installed().primitive(function)).map_or(recorded, |rule| rule.kind)
}

impl Rules {
    /// The rule that says what a recorded stack, innermost frame first, waits for; `recorded` is the kind of what it is recorded as.
    pub fn of_recorded(&self, stack: &[Frame], recorded: Kind) -> Option<Match<'_>> {
        self.built(stack, Some(primitive_kind(stack, recorded)))
    }

    /// Has the waits of an interval be what these rules say by their stacks. Waits of which they say nothing stay what they are.
    pub fn read_again(&self, interval: &mut Interval) {
        let mut stacks = Stacks { rules: self, said: HashMap::new() };
        stacks.move_waits(interval);
        stacks.move_sleeps(interval);
        stacks.move_open_waits(interval);
    }
}

impl Stacks<'_> {
    fn say(&mut self, tables: &Tables, stack: StackId, recorded: Kind) -> Option<Said> {
        let rules = self.rules;
        let say = || {
            let frames = frames(tables, stack);
            let built = rules.of_recorded(&frames, recorded).map(|found| found.rule);
            let untold = || {
                let mut functions = frames.iter().filter_map(|frame| frame.function.as_deref());
                functions.find_map(|function| rules.primitive(function)).filter(|_| recorded == Kind::Futex)
            };
            let rule = built.or_else(untold)?;
            let (kind, mode, lock) = (rule.kind, rule.mode, rule.lock(&frames));
            Some(Said { is: rule.is, kind, mode, any_call: rule.any_call, lock })
        };
        self.said.entry((stack, recorded)).or_insert_with(say).clone()
    }

    /// As which a wait counts that was recorded so.
    fn key(&mut self, tables: &mut Tables, key: Key, site: Option<StackId>) -> Key {
        let is_of_program = tables.lock(key.lock).is_some_and(|lock| lock.space() == Space::User);
        let is_wait = matches!(key.happened, Happened::Wait | Happened::Idle | Happened::TimedOut);
        let Some(site) = site.filter(|_| is_of_program && is_wait) else { return key };
        let Some(Said { is, kind, mode, lock, .. }) = self.say(tables, site, key.kind) else { return key };
        let happened = match (key.happened, is.happened()) {
            (Happened::TimedOut, Happened::Wait) => Happened::TimedOut,
            // Who ended the waits says whether it is one, and was asked when it was recorded.
            (recorded, Happened::Wait) if kind == Kind::Semaphore && key.kind == Kind::Semaphore => recorded,
            (_, happened) => happened,
        };
        let lock = lock.map_or(key.lock, |lock| tables.intern_lock(lock));
        Key { happened, lock, kind, mode, ..key }
    }

    fn move_waits(&mut self, interval: &mut Interval) {
        let mut moved = Moves::default();
        for sampled in &mut interval.sampled {
            let key = self.key(&mut interval.tables, sampled.key, sampled.site);
            moved.add(sampled.key, key, sampled.estimate.total_ns);
            sampled.key = key;
        }
        for total in std::mem::take(&mut interval.totals) {
            interval.totals.extend(moved.divide(total));
        }
    }

    fn move_sleeps(&mut self, interval: &mut Interval) {
        for sleep in &mut interval.threads.sleeps {
            let is_of_kernel = matches!(sleep.reason, ThreadState::KernelLock | ThreadState::FileLock);
            let Some(site) = sleep.site.filter(|_| !is_of_kernel) else { continue };
            let Some(said) = self.say(&interval.tables, site, Kind::Futex) else { continue };
            if sleep.counted_as != ThreadState::Futex && !said.any_call {
                continue;
            }
            // Who ended the waits for a semaphore is not recorded.
            if said.kind != Kind::Semaphore {
                sleep.reason = match said.is {
                    Is::Lock if said.kind == Kind::File => ThreadState::FileLock,
                    Is::Lock => ThreadState::UserLock,
                    _ => ThreadState::Condition,
                };
            }
            let is_lock = sleep.reason.is_lock();
            sleep.lock = said.lock.filter(|_| is_lock).map(|lock| interval.tables.intern_lock(lock));
            sleep.at_rest = !is_lock && (sleep.at_rest || said.is == Is::Idle);
        }
    }

    fn move_open_waits(&mut self, interval: &mut Interval) {
        let tables = &mut interval.tables;
        interval.threads.open_waits.retain_mut(|wait| {
            let said = wait.site.filter(|_| wait.reason == ThreadState::UserLock);
            let Some(said) = said.and_then(|site| self.say(tables, site, wait.kind)) else { return true };
            if let Some(lock) = said.lock {
                wait.lock = tables.intern_lock(lock);
            }
            (wait.kind, wait.mode) = (said.kind, said.mode);
            said.is == Is::Lock
        });
    }
}

/// What became of the waits that were recorded under a key, by the time of their stacks.
type Became = Vec<(Key, u64)>;

/// The same key, no matter who waited and for how long.
type Class = (Happened, crate::LockId, Kind, Mode);

/// Of which the exact totals are to be divided.
#[derive(Default)]
struct Moves {
    by_key: HashMap<Key, Became>,
    by_class: HashMap<Class, Became>,
}

fn class_of(key: &Key) -> Class {
    (key.happened, key.lock, key.kind, key.mode)
}

fn add_to(became: &mut Became, key: Key, weight: u64) {
    match became.iter_mut().find(|(known, _)| *known == key) {
        Some((_, sum)) => *sum = sum.saturating_add(weight),
        None => became.push((key, weight)),
    }
}

impl Moves {
    fn add(&mut self, from: Key, to: Key, weight: u64) {
        add_to(self.by_key.entry(from).or_default(), to, weight);
        // One representative of each class suffices: the rest of the key is that of the total.
        let to = Key { task: None, cgroup: None, context: None, cpu: None, bucket: crate::Bucket(0), ..to };
        add_to(self.by_class.entry(class_of(&from)).or_default(), to, weight);
    }

    fn divide(&self, total: crate::Total) -> Vec<crate::Total> {
        let key = total.key;
        let Some(became) = self.by_key.get(&key).or_else(|| self.by_class.get(&class_of(&key))) else {
            return vec![total];
        };
        let keys = became.iter().map(|(to, weight)| {
            let Key { happened, lock, kind, mode, .. } = *to;
            (Key { happened, lock, kind, mode, ..key }, *weight)
        });
        divide(total.value, keys.collect()).into_iter().map(|(key, value)| crate::Total { key, value }).collect()
    }
}

/// A value in parts of these weights; their sum is the value.
fn divide(whole: Value, parts: Vec<(Key, u64)>) -> Vec<(Key, Value)> {
    let sum: u128 = parts.iter().map(|(_, weight)| u128::from(*weight)).sum();
    let (mut done, mut given) = (0_u128, Value::default());
    let mut divided: Vec<(Key, Value)> = Vec::with_capacity(parts.len());
    let last = parts.len().saturating_sub(1);
    for (at, (key, weight)) in parts.into_iter().enumerate() {
        done += u128::from(weight);
        // Cumulative shares, so that roundings do not add up.
        let up_to = |amount: u64| match () {
            () if at == last || sum == 0 => amount,
            () => u64::try_from(u128::from(amount) * done / sum).unwrap_or(amount),
        };
        let next = Value {
            count: up_to(whole.count),
            total_ns: up_to(whole.total_ns),
            spin_ns: up_to(whole.spin_ns),
            max_ns: 0,
        };
        let value = Value {
            count: next.count - given.count,
            total_ns: next.total_ns - given.total_ns,
            spin_ns: next.spin_ns - given.spin_ns,
            max_ns: whole.max_ns,
        };
        given = next;
        if value.count > 0 || value.total_ns > 0 {
            divided.push((key, value));
        }
    }
    divided
}
