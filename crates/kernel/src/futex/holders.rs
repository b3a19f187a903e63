//! What holders did whose waits are metered from inside: there it is not known, but these waits are seen from outside as well.

use std::collections::{BTreeMap, HashMap};

use lockmeter_profile::{
    Blocker, BlockerSource, HolderState, Interval, Root, Sampled, Space, StackId, TaskId, ThreadState, lock_functions,
};

/// Holders that are kept; beyond, all are forgotten.
const MOST_HOLDERS: usize = 1 << 14;

/// A holder: the process, the function that released the lock, and which lock in the waiter's memory; of a root, any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Holder {
    tgid: u32,
    function: String,
    lock: Option<u64>,
}

/// What holders did so far, by the time that they are to blame for.
#[derive(Debug, Default)]
pub(super) struct Holders {
    did: HashMap<Holder, BTreeMap<HolderState, u64>>,
}

impl Holders {
    /// A holder, or, where `lock` is `None`, a root, did this for so long of a wait.
    pub(super) fn note(&mut self, (tgid, function): (u32, Option<&str>), lock: Option<u64>, did: HolderState, ns: u64) {
        let Some(function) = function.map(str::to_owned) else { return };
        if self.did.len() >= MOST_HOLDERS {
            self.did.clear();
        }
        *self.did.entry(Holder { tgid, function, lock }).or_default().entry(did).or_default() += ns;
    }

    /// Says of those who are to blame in an interval what they did, where that is not known yet.
    pub(super) fn tell(&self, interval: &mut Interval) {
        if self.did.is_empty() {
            return;
        }
        let Interval { sampled, tables, .. } = interval;
        let function = |stack: Option<StackId>| {
            let frames = tables.stack(stack?)?.iter().filter_map(|frame| tables.frame(*frame)?.function.as_deref());
            Some(lock_functions::main_function(&frames.collect::<Vec<_>>())?.to_owned())
        };
        let tgid = |task: Option<TaskId>| Some(tables.task(task?)?.tgid);
        let is_of_program =
            |sampled: &Sampled| tables.lock(sampled.key.lock).is_some_and(|lock| lock.space() == Space::User);
        for sampled in sampled.iter_mut().filter(|sampled| is_of_program(sampled)) {
            let Blocker { source, stack, task, root, state, .. } = &mut sampled.blocker;
            let is_holder = matches!(source, BlockerSource::Releaser | BlockerSource::Holder);
            let Some(tgid) = tgid(*task).filter(|_| is_holder && state.is_none()) else { continue };
            if let Some(Root { stack, state, .. }) = root {
                *state = self.mostly(tgid, function(*stack), None);
            }
            *state = match root {
                Some(_) => Some(HolderState::of(ThreadState::UserLock)),
                None => self.mostly(tgid, function(*stack), sampled.instance),
            };
        }
    }

    fn mostly(&self, tgid: u32, function: Option<String>, lock: Option<u64>) -> Option<HolderState> {
        let did = self.did.get(&Holder { tgid, function: function?, lock })?;
        let (most, ns) = did.iter().max_by_key(|(_, ns)| **ns)?;
        (ns * 2 >= did.values().sum()).then_some(*most)
    }
}
