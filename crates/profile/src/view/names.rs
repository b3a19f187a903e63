//! Names across intervals: each interval has its own tables, a report needs one.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::LockGroup;
use crate::filesystem::OfFilesystem;
use crate::interval::{
    Cgroup, CgroupId, FilesystemId, Frame, FrameId, Interner, LockId, StackId, Tables, Task, TaskId,
};
use crate::lock::{Lock, Naming, Space};
use crate::lock_functions::{main_of_stripped, strip_lock_functions};
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
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    locks: Interner<LockIdentity>,
    /// By the lock's name: the best that is known about it.
    namings: HashMap<String, (Naming, String)>,
    /// Process and name.
    tasks: Interner<(u32, TextName)>,
    texts: Interner<Arc<str>>,
    stacks: Interner<Box<[u32]>>,
    cgroups: BTreeMap<u64, Option<String>>,
    /// Names of locks of which a sample says that they belong to no file system.
    without_filesystem: HashSet<String>,
    /// What all of these take, about.
    memory_bytes: usize,
}

/// What a name takes besides its text, in the tables and their indexes.
const NAME_BYTES: usize = 96;
/// What a lock takes, which has its name twice: by itself, and with how it is known.
const LOCK_BYTES: usize = 320;
/// What a stack takes, and each of its functions, also in the rows.
const STACK_BYTES: usize = 64;
const FRAME_BYTES: usize = size_of::<u32>() + size_of::<Arc<str>>();

impl Names {
    pub(super) fn lock(&self, name: LockName) -> &LockIdentity {
        &self.locks.entries()[name.0 as usize]
    }

    pub(super) fn locks(&self) -> &[LockIdentity] {
        self.locks.entries()
    }

    pub(super) fn naming(&self, lock_name: &str) -> Option<BestNaming<'_>> {
        self.namings.get(lock_name).map(|(naming, detail)| BestNaming { naming: *naming, detail })
    }

    /// What all names take, about.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    pub(super) fn text(&mut self, text: &str) -> TextName {
        let known = self.texts.entries().len();
        let at = self.texts.intern_borrowed(text);
        if self.texts.entries().len() > known {
            self.memory_bytes += NAME_BYTES + text.len();
        }
        TextName(at)
    }

    pub(super) fn text_of(&self, name: TextName) -> &Arc<str> {
        &self.texts.entries()[name.0 as usize]
    }

    fn task(&mut self, task: &Task) -> TaskName {
        let comm = self.text(&task.comm);
        let known = self.tasks.entries().len();
        let at = self.tasks.intern((task.tgid, comm));
        if self.tasks.entries().len() > known {
            self.memory_bytes += NAME_BYTES;
        }
        TaskName(at)
    }

    pub(super) fn comm_of(&self, name: TaskName) -> TextName {
        self.label_of(name).1
    }

    /// Process id and name.
    pub(super) fn label_of(&self, name: TaskName) -> (u32, TextName) {
        self.tasks.entries()[name.0 as usize]
    }

    /// The same, the name as text.
    pub(super) fn task_of(&self, name: TaskName) -> (u32, &Arc<str>) {
        let (tgid, comm) = self.label_of(name);
        (tgid, self.text_of(comm))
    }

    /// The stack of a wait whose stack was not taken or was lost.
    pub(super) fn no_stack(&mut self) -> StackName {
        StackName(self.stacks.intern_borrowed::<[u32]>(&[]))
    }

    /// The stack that stands for small ones.
    pub(super) fn small_stack(&mut self, text: &str) -> StackName {
        let text = self.text(text).0;
        StackName(self.stacks.intern_borrowed(&[text]))
    }

    /// The task that stands for small ones.
    pub(super) fn small_task(&mut self, text: &str) -> TaskName {
        let comm = self.text(text);
        TaskName(self.tasks.intern((u32::MAX, comm)))
    }

    /// Every text, in the order of their handles.
    pub(super) fn texts(&self) -> &[Arc<str>] {
        self.texts.entries()
    }

    /// Every stack's functions as handles of texts, in the order of their own handles.
    pub(super) fn stacks(&self) -> &[Box<[u32]>] {
        self.stacks.entries()
    }

    /// The functions of one stack.
    pub(super) fn functions(&self, stack: StackName) -> Arc<[Arc<str>]> {
        self.stacks.entries()[stack.0 as usize].iter().map(|text| Arc::clone(self.text_of(TextName(*text)))).collect()
    }

    /// Remembers a cgroup's path: it may be known in one interval and gone in another.
    pub(super) fn see_cgroup(&mut self, cgroup: &Cgroup) {
        let known = self.cgroups.entry(cgroup.id).or_insert_with(|| {
            self.memory_bytes += NAME_BYTES;
            None
        });
        self.memory_bytes += if known.is_none() { cgroup.path.as_ref().map_or(0, String::len) } else { 0 };
        // The lesser of two paths, so that the order of the intervals does not matter.
        if known.is_none() || cgroup.path.as_ref().is_some_and(|path| Some(path) < known.as_ref()) {
            known.clone_from(&cgroup.path);
        }
    }

    /// A cgroup's path, or `id:N`.
    pub(super) fn cgroup_label(&self, id: u64) -> Cow<'_, str> {
        let path = self.cgroups.get(&id).and_then(|path| path.as_deref());
        path.map_or_else(|| format!("id:{id}").into(), Cow::Borrowed)
    }

    /// Remembers what the sample of a lock says: all locks of one name belong to file systems, or none does.
    pub(super) fn see_filesystem(&mut self, lock: LockName, of: OfFilesystem<FilesystemId>) {
        let name = &self.locks.entries()[lock.0 as usize].name;
        if of == OfFilesystem::None && !self.without_filesystem.contains(name) {
            self.memory_bytes += NAME_BYTES + name.len();
            self.without_filesystem.insert(name.clone());
        }
    }

    /// Whether a lock belongs to no file system, as far as is known without a sample: variables of the kernel do not.
    pub(super) fn lacks_filesystem(&self, lock_name: &str) -> bool {
        let is_variable = |naming| matches!(naming, Naming::Symbol | Naming::PerCpu);
        self.without_filesystem.contains(lock_name)
            || self
                .namings
                .get(lock_name)
                .is_some_and(|(naming, _)| is_variable(*naming) || naming.space() == Space::User)
    }

    /// Takes in the locks of an interval's tables, ready to look up the rest as samples need it.
    pub(super) fn interval_names<'a>(&mut self, tables: &'a Tables) -> IntervalNames<'a> {
        let locks = tables.locks().iter().map(|lock| self.see_lock(lock)).collect();
        let frames = vec![None; tables.frames().len()];
        IntervalNames {
            tables,
            locks,
            stacks: HashMap::new(),
            tasks: HashMap::new(),
            filesystems: HashMap::new(),
            frames,
            dangling: Cell::new(0),
        }
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
        let known = self.locks.entries().len();
        let text_bytes = 2 * lock.name.len() + lock.detail.len() + lock.object.as_ref().map_or(0, String::len);
        let at = self.locks.intern(identity);
        if self.locks.entries().len() > known {
            self.memory_bytes += LOCK_BYTES + text_bytes;
        }
        LockName(at)
    }

    /// The name of a stack of functions, innermost first; without its functions if they are not needed.
    fn see_stack(&mut self, functions: &[u32], whole: bool) -> NamedStack {
        let texts = self.texts.entries();
        let names: Vec<&str> = functions.iter().map(|text| &*texts[*text as usize]).collect();
        // What is stripped lies at the inner end.
        let inner = strip_lock_functions(&names);
        let main = main_of_stripped(&names, inner).map(str::to_owned);
        let stripped = if whole { functions.len() - inner.len() } else { functions.len() };
        let known = self.stacks.entries().len();
        let all = self.stacks.intern_borrowed(&functions[stripped..]);
        if self.stacks.entries().len() > known {
            self.memory_bytes += STACK_BYTES + FRAME_BYTES * (functions.len() - stripped);
        }
        NamedStack { all: StackName(all), main: main.map(|function| self.text(&function)) }
    }
}

/// One interval's tables, seen from the report.
pub(super) struct IntervalNames<'a> {
    tables: &'a Tables,
    locks: Vec<LockName>,
    /// With their functions, and without.
    stacks: HashMap<(StackId, bool), NamedStack>,
    tasks: HashMap<TaskId, TaskName>,
    filesystems: HashMap<FilesystemId, TextName>,
    /// The labels of frames that were needed so far.
    frames: Vec<Option<TextName>>,
    dangling: Cell<u64>,
}

impl<'a> IntervalNames<'a> {
    /// How many references led nowhere so far.
    pub(super) fn dangling(&self) -> u64 {
        self.dangling.get()
    }

    pub(super) fn lock(&self, key: &Key) -> Option<LockGroup> {
        let LockId(at) = key.lock;
        let lock = *self.or_dangling(self.locks.get(at as usize))?;
        Some(LockGroup { lock, kind: key.kind, mode: key.mode })
    }

    /// The lock's name in the report.
    pub(super) fn lock_name(&self, id: LockId) -> Option<LockName> {
        self.or_dangling(self.locks.get(id.0 as usize)).copied()
    }

    /// Whose lock it is; the kernel's, if nothing is known of it.
    pub(super) fn space(&self, id: LockId) -> Space {
        self.tables.lock(id).map_or(Space::Kernel, Lock::space)
    }

    pub(super) fn task(&self, id: Option<TaskId>) -> Option<&'a Task> {
        self.tables.task(id?)
    }

    /// The task's name in the report.
    pub(super) fn task_name(&mut self, names: &mut Names, id: Option<TaskId>) -> Option<TaskName> {
        let (id, task) = (id?, self.task(id)?);
        Some(*self.tasks.entry(id).or_insert_with(|| names.task(task)))
    }

    pub(super) fn cgroup(&self, id: Option<CgroupId>) -> Option<&'a Cgroup> {
        self.tables.cgroup(id?)
    }

    /// A file system by its name in the report; what was not looked up is as little known as what could not be read.
    pub(super) fn filesystem(&mut self, names: &mut Names, of: OfFilesystem<FilesystemId>) -> OfFilesystem<TextName> {
        match of {
            OfFilesystem::None => OfFilesystem::None,
            OfFilesystem::NotLookedUp | OfFilesystem::Unreadable => OfFilesystem::Unreadable,
            OfFilesystem::Known(id) => match self.or_dangling(self.tables.filesystem(id)) {
                Some(known) => {
                    OfFilesystem::Known(*self.filesystems.entry(id).or_insert_with(|| names.text(&known.to_string())))
                }
                None => OfFilesystem::Unreadable,
            },
        }
    }

    pub(super) fn stack(&mut self, names: &mut Names, id: StackId, whole: bool) -> Option<NamedStack> {
        if let Some(known) = self.stacks.get(&(id, whole)) {
            return Some(*known);
        }
        let frames = self.or_dangling(self.tables.stack(id))?;
        let functions: Vec<u32> = frames.iter().map(|frame| self.frame(names, *frame).0).collect();
        let named = names.see_stack(&functions, whole);
        self.stacks.insert((id, whole), named);
        Some(named)
    }

    fn frame(&mut self, names: &mut Names, id: FrameId) -> TextName {
        let Some(label) = self.frames.get_mut(id.0 as usize) else { return names.text("[missing]") };
        *label.get_or_insert_with(|| names.text(&self.tables.frame(id).map(Frame::label).unwrap_or_default()))
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
