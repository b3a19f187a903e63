//! Names across intervals: each interval has its own tables, a report needs one.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::LockGroup;
use crate::interval::{Cgroup, CgroupId, Frame, FrameId, Interner, LockId, StackId, Tables, Task, TaskId};
use crate::lock::{Lock, Naming, Space};
use crate::lock_functions::{main_function, strip_lock_functions};
use crate::sample::Key;

/// A lock by what groups it: its name and the object it lies in.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct LockIdentity {
    pub(super) name: String,
    pub(super) object: Option<String>,
}

macro_rules! handle {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub(super) struct $name(pub(super) u32);
    };
}

handle! { /// A [`LockIdentity`].
LockName }
handle! { /// A process and thread name.
TaskName }
handle! { /// A function's or a thread's name.
TextName }
handle! { /// A list of function names.
StackName }

/// What a stack is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct NamedStack {
    /// All its functions but those of the lock.
    pub(super) all: StackName,
    /// The one for headlines.
    pub(super) main: Option<TextName>,
}

/// How a lock's name is known, and more about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BestNaming<'a> {
    pub(super) naming: Naming,
    pub(super) detail: &'a str,
}

impl BestNaming<'_> {
    pub(super) const fn is_named(&self) -> bool {
        !matches!(self.naming, Naming::Unnamed(_))
    }
}

/// Everything that has a name in a report.
#[derive(Debug, Default)]
pub(super) struct Names {
    locks: Interner<LockIdentity>,
    /// By the lock's name: the best that is known about it.
    namings: HashMap<String, (Naming, String)>,
    tasks: Interner<(u32, String)>,
    texts: Interner<String>,
    stacks: Interner<Vec<u32>>,
    cgroups: BTreeMap<u64, Option<String>>,
}

impl Names {
    pub(super) fn lock(&self, name: LockName) -> &LockIdentity {
        &self.locks.items()[name.0 as usize]
    }

    pub(super) fn locks(&self) -> &[LockIdentity] {
        self.locks.items()
    }

    pub(super) fn naming(&self, lock_name: &str) -> Option<BestNaming<'_>> {
        self.namings.get(lock_name).map(|(naming, detail)| BestNaming { naming: *naming, detail })
    }

    pub(super) fn text(&mut self, text: &str) -> TextName {
        TextName(self.texts.intern(text.to_owned()))
    }

    pub(super) fn text_of(&self, name: TextName) -> &str {
        &self.texts.items()[name.0 as usize]
    }

    pub(super) fn task(&mut self, task: &Task) -> TaskName {
        TaskName(self.tasks.intern((task.tgid, task.comm.clone())))
    }

    pub(super) fn task_of(&self, name: TaskName) -> &(u32, String) {
        &self.tasks.items()[name.0 as usize]
    }

    /// The stack of a wait whose stack was not taken or was lost.
    pub(super) fn no_stack(&mut self) -> StackName {
        StackName(self.stacks.intern(Vec::new()))
    }

    /// Every stack's functions, in the order of their handles.
    pub(super) fn stacks(&self) -> impl Iterator<Item = Vec<&str>> {
        let texts = self.texts.items();
        self.stacks.items().iter().map(|stack| stack.iter().map(|text| texts[*text as usize].as_str()).collect())
    }

    /// Remembers a cgroup's path: it may be known in one interval and gone in another.
    /// The functions of one stack.
    pub(super) fn functions(&self, stack: StackName) -> Vec<String> {
        let texts = &self.stacks.items()[stack.0 as usize];
        texts.iter().map(|text| self.text_of(TextName(*text)).to_owned()).collect()
    }

    pub(super) fn see_cgroup(&mut self, cgroup: &Cgroup) {
        let known = self.cgroups.entry(cgroup.id).or_default();
        // The lesser of two paths, so that the order of the intervals does not matter.
        if known.is_none() || cgroup.path.as_ref().is_some_and(|path| Some(path) < known.as_ref()) {
            known.clone_from(&cgroup.path);
        }
    }

    /// A cgroup's path, or `id:N`.
    pub(super) fn cgroup_label(&self, id: u64) -> String {
        self.cgroups.get(&id).cloned().flatten().unwrap_or_else(|| format!("id:{id}"))
    }

    /// Takes in the locks of an interval's tables, ready to look up the rest as samples need it.
    pub(super) fn places<'a>(&mut self, tables: &'a Tables) -> Places<'a> {
        let locks = tables.locks().iter().map(|lock| self.see_lock(lock)).collect();
        Places { tables, locks, stacks: HashMap::new(), dangling: Cell::new(0) }
    }

    fn see_lock(&mut self, lock: &Lock) -> LockName {
        let identity = LockIdentity { name: lock.name.clone(), object: lock.object.clone() };
        let offered = (lock.naming.code(), &lock.detail);
        match self.namings.get(&lock.name) {
            // Codes rise from the surest way of naming to the reasons for no name.
            Some((naming, detail)) if (naming.code(), detail) <= offered => {}
            _ => {
                self.namings.insert(lock.name.clone(), (lock.naming, lock.detail.clone()));
            }
        }
        LockName(self.locks.intern(identity))
    }

    fn see_stack(&mut self, tables: &Tables, frames: &[FrameId]) -> NamedStack {
        let owned: Vec<String> = frames.iter().map(|frame| frame_label(tables, *frame)).collect();
        let functions: Vec<&str> = owned.iter().map(String::as_str).collect();
        let stripped = strip_lock_functions(&functions);
        let all = stripped.iter().map(|function| self.text(function).0).collect();
        NamedStack {
            all: StackName(self.stacks.intern(all)),
            main: main_function(&functions).map(|function| self.text(function)),
        }
    }
}

fn frame_label(tables: &Tables, id: FrameId) -> String {
    tables.frame(id).map_or_else(|| "[missing]".to_owned(), Frame::label)
}

/// One interval's tables, seen from the report.
pub(super) struct Places<'a> {
    tables: &'a Tables,
    locks: Vec<LockName>,
    stacks: HashMap<StackId, NamedStack>,
    dangling: Cell<u64>,
}

impl<'a> Places<'a> {
    /// How many references led nowhere so far.
    pub(super) fn dangling(&self) -> u64 {
        self.dangling.get()
    }

    pub(super) fn lock(&self, key: &Key) -> Option<LockGroup> {
        let LockId(at) = key.lock;
        let lock = *self.or_dangling(self.locks.get(at as usize))?;
        Some(LockGroup { lock, kind: key.kind, mode: key.mode })
    }

    /// Whose lock it is; the kernel's, if nothing is known of it.
    pub(super) fn space(&self, id: LockId) -> Space {
        self.tables.lock(id).map_or(Space::Kernel, Lock::space)
    }

    pub(super) fn task(&self, id: Option<TaskId>) -> Option<&'a Task> {
        self.tables.task(id?)
    }

    pub(super) fn cgroup(&self, id: Option<CgroupId>) -> Option<&'a Cgroup> {
        self.tables.cgroup(id?)
    }

    pub(super) fn stack(&mut self, names: &mut Names, id: StackId) -> Option<NamedStack> {
        if let Some(known) = self.stacks.get(&id) {
            return Some(*known);
        }
        let frames = self.or_dangling(self.tables.stack(id))?;
        let named = names.see_stack(self.tables, frames);
        self.stacks.insert(id, named);
        Some(named)
    }

    /// Counts every key's references that lead nowhere, once.
    pub(super) fn check(&self, key: &Key) {
        if key.task.is_some_and(|id| self.tables.task(id).is_none()) {
            self.or_dangling(None::<()>);
        }
        if key.cgroup.is_some_and(|id| self.tables.cgroup(id).is_none()) {
            self.or_dangling(None::<()>);
        }
    }

    fn or_dangling<T>(&self, found: Option<T>) -> Option<T> {
        if found.is_none() {
            self.dangling.set(self.dangling.get() + 1);
        }
        found
    }
}
