//! What holders did whose waits are metered from inside, and, of locks that processes share, whom they waited for: there it is not known,
//! but these waits are seen from outside as well.

use std::collections::{BTreeMap, HashMap};

use lockmeter_profile::{
    Blocker, BlockerSource, Frame, HolderState, Interval, Lock, Naming, Root, Sampled, Space, StackId, Tables, Task,
    TaskId, ThreadState, has_half, lock_functions,
};

use crate::lock_shares::{shares, split};

/// Holders that are kept; beyond, all are forgotten.
const MOST_HOLDERS: usize = 1 << 14;

/// Roots that are kept of a holder.
const MOST_ROOTS: usize = 64;

/// A holder: the process, the function that released the lock, and which lock it was.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    tgid: u32,
    function: String,
    lock: WhichLock,
}

/// Which lock a holder had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum WhichLock {
    /// The one at this address of the waiter's memory.
    At(u64),
    /// One that processes share.
    Shared,
    /// Any: it was the root.
    Any,
}

/// Whom a holder waited for itself.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct HolderRoot {
    pub(super) lock: Lock,
    pub(super) frames: Vec<Frame>,
    pub(super) task: Task,
    pub(super) did: Option<HolderState>,
}

/// What holders did so far, by the time that they are to blame for.
#[derive(Debug, Default)]
pub(super) struct Holders {
    did: HashMap<Holder, BTreeMap<HolderState, u64>>,
    /// Of locks that processes share; `None`: they waited for nobody.
    roots: HashMap<Holder, Vec<(Option<HolderRoot>, u64)>>,
}

impl Holder {
    /// `None` if the function is not known.
    pub(super) fn new(tgid: u32, function: Option<&str>, lock: WhichLock) -> Option<Self> {
        Some(Self { tgid, function: function?.to_owned(), lock })
    }

    /// Who is to blame by this sample, where it is known that somebody had the lock.
    fn of(sampled: &Sampled, tables: &Tables) -> Option<Self> {
        let Blocker { source, stack, task, .. } = &sampled.blocker;
        let lock = tables.lock(sampled.key.lock).filter(|lock| lock.space() == Space::User)?;
        let is_shared = lock.naming == Naming::UserShared;
        let lock = if is_shared { WhichLock::Shared } else { WhichLock::At(sampled.instance?) };
        let is_holder = matches!(source, BlockerSource::Releaser | BlockerSource::Holder);
        Self::in_tables(tables, *task, *stack, lock).filter(|_| is_holder)
    }

    fn in_tables(tables: &Tables, task: Option<TaskId>, stack: Option<StackId>, lock: WhichLock) -> Option<Self> {
        let frames = tables.stack(stack?)?.iter().filter_map(|frame| tables.frame(*frame)?.function.as_deref());
        Self::new(tables.task(task?)?.tgid, lock_functions::main_function(&frames.collect::<Vec<_>>()), lock)
    }
}

impl Holders {
    /// A holder, or a root, did this for so long of a wait.
    pub(super) fn note(&mut self, holder: Holder, did: HolderState, ns: u64) {
        if self.did.len() >= MOST_HOLDERS {
            self.did.clear();
        }
        *self.did.entry(holder).or_default().entry(did).or_default() += ns;
    }

    /// For so long of a wait, a holder of a lock that processes share waited for this one, or for nobody.
    pub(super) fn note_root(&mut self, holder: Holder, root: Option<HolderRoot>, ns: u64) {
        if self.roots.len() >= MOST_HOLDERS {
            self.roots.clear();
        }
        let roots = self.roots.entry(holder).or_default();
        let is_full = roots.len() >= MOST_ROOTS;
        match roots.iter_mut().find(|(known, _)| *known == root) {
            Some((_, known_ns)) => *known_ns += ns,
            None if is_full => {}
            None => roots.push((root, ns)),
        }
    }

    /// Says of those who are to blame in an interval what they did, and whom they waited for, where that is not known yet.
    pub(super) fn tell(&self, interval: &mut Interval) {
        if self.did.is_empty() {
            return;
        }
        self.tell_roots(interval);
        let Interval { sampled, tables, .. } = interval;
        for sampled in sampled {
            let Some(holder) = Holder::of(sampled, tables).filter(|_| sampled.blocker.state.is_none()) else {
                continue;
            };
            let Blocker { root, state, task: holder_task, .. } = &mut sampled.blocker;
            if let Some(Root { stack, task, state, .. }) = root
                && state.is_none()
            {
                // A chain that is known from inside stays in one process.
                let task = task.or(*holder_task);
                *state = Holder::in_tables(tables, task, *stack, WhichLock::Any).and_then(|root| self.mostly(&root));
            }
            *state = match root {
                Some(_) => Some(HolderState::of(ThreadState::UserLock)),
                None => self.mostly(&holder),
            };
        }
    }

    /// Divides what holders of locks that processes share are to blame for among those whom they waited for.
    fn tell_roots(&self, interval: &mut Interval) {
        let Interval { sampled, tables, .. } = interval;
        let mut more = Vec::new();
        for sampled in sampled.iter_mut().filter(|sampled| sampled.blocker.root.is_none()) {
            let Some(roots) = Holder::of(sampled, tables).and_then(|holder| self.roots.get(&holder)) else { continue };
            let shares = shares(&roots.iter().map(|(_, ns)| *ns as f64).enumerate().collect());
            let mut root_at = |at: usize| Some(roots.get(at)?.0.as_ref()?.in_tables(tables));
            let mut parts = split(&sampled.estimate, &shares).into_iter();
            let Some((first, estimate)) = parts.next() else { continue };
            (sampled.blocker.root, sampled.estimate) = (root_at(first), estimate);
            // One stack was taken of all of it.
            more.extend(parts.map(|(at, estimate)| {
                let blocker = Blocker { root: root_at(at), ..sampled.blocker };
                Sampled { blocker, stacks: 0, estimate, ..*sampled }
            }));
        }
        sampled.append(&mut more);
    }

    fn mostly(&self, holder: &Holder) -> Option<HolderState> {
        has_half(self.did.get(holder)?.iter().map(|(did, ns)| (*did, *ns)))
    }
}

impl HolderRoot {
    fn in_tables(&self, tables: &mut Tables) -> Root {
        let frames = self.frames.iter().map(|frame| tables.intern_frame(frame.clone())).collect();
        let stack = Some(tables.intern_stack(frames));
        let task = Some(tables.intern_task(self.task.clone()));
        // From inside it may have another name: where it was made, and not where it was first seen.
        let is_it = |known: &&Lock| known.naming == Naming::UserShared && place(known) == place(&self.lock);
        let lock = tables.locks().iter().find(is_it).unwrap_or(&self.lock).clone();
        Root { lock: tables.intern_lock(lock), stack, task, state: self.did }
    }
}

/// Where a lock that processes share lies.
fn place(lock: &Lock) -> Option<&str> {
    lock.name.split(", ").next()
}
