//! One interval: everything that was measured between two drains, with the tables its samples point into.
//!
//! An interval stands alone. It repeats the names and stacks it needs, so that a window of a recording can be read, and a
//! damaged neighbour skipped, without anything else.

use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::filesystem::{Filesystem, OfFilesystem};
use crate::lock::Lock;
use crate::lock_functions::plain_name;
use crate::loss::Losses;
use crate::sample::{HoldBasis, Key, Kind, Mode, Value, named_enum};
use crate::slow_hold::SlowHold;
use crate::swap::Swaps;
use crate::switched_off::SwitchedOff;
use crate::thread_time::{HolderState, ThreadActivity};

/// Declares a newtype handle into one of an interval's tables.
macro_rules! handle {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u32);
    };
}

handle! { /// Points to a [`Lock`] of the same interval.
LockId }
handle! { /// Points to a [`Task`] of the same interval.
TaskId }
handle! { /// Points to a [`Cgroup`] of the same interval.
CgroupId }
handle! { /// Points to a [`Filesystem`] of the same interval.
FilesystemId }
handle! { /// Points to a [`Frame`] of the same interval.
FrameId }
handle! { /// Points to a stack (a list of [`FrameId`]s) of the same interval.
StackId }

/// A process and the name of the thread that waited.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Task {
    /// Process id (thread group id).
    pub tgid: u32,
    /// The thread's name.
    pub comm: String,
    /// Whether this is lockmeter itself.
    pub own: bool,
}

/// A control group.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cgroup {
    /// The kernel's id for it.
    pub id: u64,
    /// Its path below the cgroup mount; `None` when it was gone before it could be looked up.
    pub path: Option<String>,
}

/// One frame of a stack.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Frame {
    /// The address. In a recording a number may stand for it, as for [`Sampled::instance`].
    pub address: u64,
    /// The function, or `None` where no symbol covers the address.
    pub function: Option<String>,
    /// Offset of the address in the function.
    pub offset: u64,
    /// The kernel module or binary, where it is not the kernel itself.
    pub module: Option<String>,
}

impl Frame {
    /// The function's name, or what is known instead: never an address in memory, for rows are grouped by it. Of a file
    /// without symbols the place in the file is told, which is the same in each run.
    pub fn label(&self) -> String {
        match (&self.function, &self.module) {
            (Some(function), _) => plain_name(function).to_owned(),
            (None, Some(module)) if self.offset != 0 => format!("{module}+{:#x}", self.offset),
            (None, Some(module)) => format!("[unknown in {module}]"),
            (None, None) => "[unknown]".to_owned(),
        }
    }
}

/// Items of one type, each stored once.
#[derive(Debug, Clone)]
pub(crate) struct Interner<T> {
    entries: Vec<T>,
    /// The places of the entries, by hash.
    index: HashTable<u32>,
    /// How many of the entries are in the index: those of a file are indexed only when something is added to them.
    indexed: usize,
    hasher: RandomState,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), index: HashTable::new(), indexed: 0, hasher: RandomState::new() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The place of this item, which is stored if it is new.
    pub(crate) fn intern(&mut self, item: T) -> u32 {
        self.find(&item).unwrap_or_else(|| self.add(item))
    }

    /// The same by what the item borrows as, so that one already stored need not be made.
    pub(crate) fn intern_borrowed<Q>(&mut self, item: &Q) -> u32
    where
        Q: Eq + Hash + ?Sized,
        T: Borrow<Q> + for<'a> From<&'a Q>,
    {
        self.find(item).unwrap_or_else(|| self.add(item.into()))
    }

    fn find<Q>(&mut self, item: &Q) -> Option<u32>
    where
        Q: Eq + Hash + ?Sized,
        T: Borrow<Q>,
    {
        while self.indexed < self.entries.len() {
            self.index_next();
        }
        let (hash, entries) = (self.hasher.hash_one(item), &self.entries);
        self.index.find(hash, |at| entries[*at as usize].borrow() == item).copied()
    }

    fn add(&mut self, item: T) -> u32 {
        let at = u32::try_from(self.entries.len()).expect("an interval holds fewer than 2^32 names");
        self.entries.push(item);
        self.index_next();
        at
    }

    /// Takes one more item into the index: of equal ones the first.
    fn index_next(&mut self) {
        let (entries, hasher, next) = (&self.entries, &self.hasher, self.indexed as u32);
        let hash_of = |at: &u32| hasher.hash_one(&entries[*at as usize]);
        let is_same = |at: &u32| entries[*at as usize] == entries[next as usize];
        if let Entry::Vacant(vacant) = self.index.entry(hash_of(&next), is_same, hash_of) {
            vacant.insert(next);
        }
        self.indexed += 1;
    }

    /// All entries, in the order of their places.
    pub(crate) fn entries(&self) -> &[T] {
        &self.entries
    }

    /// Keeps every item at its place, even one that a strange writer stored twice.
    fn from_entries(entries: Vec<T>) -> Self {
        Self { entries, ..Self::default() }
    }
}

/// Declares [`Tables`]: for each field an interning method, a look-up and a slice of all.
macro_rules! tables {
    ($($field:ident: $item:ty, $id:ident, $intern:ident, $get:ident;)+) => {
        /// What the samples of one interval point into.
        #[derive(Debug, Clone, Default)]
        pub struct Tables { $($field: Interner<$item>,)+ }

        impl Tables {
            /// Tables as a file holds them: the handle of an item is its place.
            pub(crate) fn from_entries($($field: Vec<$item>,)+) -> Self {
                Self { $($field: Interner::from_entries($field),)+ }
            }

            $(
                /// The handle of this item, which is stored if it is new.
                pub fn $intern(&mut self, item: $item) -> $id {
                    $id(self.$field.intern(item))
                }

                /// The item behind a handle; `None` if the handle came from a damaged file.
                pub fn $get(&self, id: $id) -> Option<&$item> {
                    self.$field.entries.get(id.0 as usize)
                }

                /// All entries, in the order of their handles.
                pub fn $field(&self) -> &[$item] {
                    &self.$field.entries
                }
            )+
        }
    };
}

tables! {
    locks: Lock, LockId, intern_lock, lock;
    tasks: Task, TaskId, intern_task, task;
    cgroups: Cgroup, CgroupId, intern_cgroup, cgroup;
    filesystems: Filesystem, FilesystemId, intern_filesystem, filesystem;
    frames: Frame, FrameId, intern_frame, frame;
    stacks: Vec<FrameId>, StackId, intern_stack, stack;
}

impl PartialEq for Tables {
    fn eq(&self, other: &Self) -> bool {
        self.locks.entries == other.locks.entries
            && self.tasks.entries == other.tasks.entries
            && self.cgroups.entries == other.cgroups.entries
            && self.filesystems.entries == other.filesystems.entries
            && self.frames.entries == other.frames.entries
            && self.stacks.entries == other.stacks.entries
    }
}

named_enum! {
    /// How the blocker of a wait is known, or why it is not.
    BlockerSource {
        /// The stack that released the lock and so woke the waiter.
        Releaser = 1, "releaser";
        /// A stack that woke the waiter, but not from a function that releases locks (a signal, a timer).
        Waker = 2, "waker";
        /// A waiter that spins is woken by nobody.
        NeverSlept = 3, "never-slept";
        /// The waiter was woken before the wait was long enough to be sampled.
        NotSampled = 4, "not-sampled";
        /// The wake-up was not seen.
        WakeupNotSeen = 5, "wakeup-not-seen";
        /// The releaser's stack was taken but lost (see the losses).
        StackLost = 6, "stack-lost";
        /// Had the lock when the wait began; its release was not seen. The stack is that of its acquisition, if there is one.
        Holder = 7, "holder";
        /// Nobody: the lock had been released, and the waiter was not yet running.
        Handover = 8, "handover";
        /// Had the lock early in a long wait: more releases came after than are kept.
        EarlierHolder = 9, "earlier-holder";
    }
}

/// The holder or releaser blamed for a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Blocker {
    /// How it is known, or why it is not.
    pub source: BlockerSource,
    /// Its stack, innermost frame first.
    pub stack: Option<StackId>,
    /// The task that released the lock.
    pub task: Option<TaskId>,
    /// The task that the lock named as its owner when the wait began: a hint, for owners change while one waits.
    pub owner_hint: Option<TaskId>,
    /// Whom the blocker waited for itself meanwhile, at the end of the chain; `None` if for nobody, as far as is known.
    pub root: Option<Root>,
    /// What it did meanwhile, for most of the time; `None` if that is not known.
    pub state: Option<HolderState>,
}

/// The end of a chain of blockers: the one that waited for no lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Root {
    /// The lock that it had, and the last of the others waited for.
    pub lock: LockId,
    /// Its stack, innermost frame first.
    pub stack: Option<StackId>,
    /// The task.
    pub task: Option<TaskId>,
    /// As in [`Blocker`].
    pub state: Option<HolderState>,
}

impl Blocker {
    /// A blocker of which nothing is known, for the reason given.
    pub const fn unknown(why: BlockerSource) -> Self {
        Self { source: why, stack: None, task: None, owner_hint: None, root: None, state: None }
    }
}

/// An exact total: counted on every event, no stack.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Total {
    /// What it counts.
    pub key: Key,
    /// The count.
    pub value: Value,
}

/// What a group of holds rests on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis {
    /// The group; its bucket says nothing.
    pub key: Key,
    /// Address of the lock itself and where it was acquired, as in [`Sampled`]; `None` if that is not told apart.
    pub instance: Option<u64>,
    /// As above.
    pub site: Option<StackId>,
    /// The numbers.
    pub value: HoldBasis,
}

/// An estimate from stacks taken on a budget.
///
/// `estimate` is what these stacks stand for: each sampled wait enters with the inverse of its chance to be sampled. A
/// view scales the estimates of a lock to that lock's exact total.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampled {
    /// As in [`Total`].
    pub key: Key,
    /// Address of the lock itself, where it was kept. In a recording a number may stand for it: `docs/reference/file-format.md`.
    pub instance: Option<u64>,
    /// Whose object the lock lies in.
    pub filesystem: OfFilesystem<FilesystemId>,
    /// Where the lock was waited for, innermost frame first; `None` if that stack was lost.
    pub site: Option<StackId>,
    /// Who is to blame.
    pub blocker: Blocker,
    /// How many stacks were really taken.
    pub stacks: u64,
    /// What they stand for. `max_ns` is that of the sampled waits.
    pub estimate: Value,
}

/// A single run that lasted longer than asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LongRun {
    /// When it began, nanoseconds since the Unix epoch.
    pub begin_unix_ns: u64,
    /// The CPU it ended on.
    pub cpu: u32,
    /// What ran.
    pub lock: LockId,
    /// Of which kind that is.
    pub kind: Kind,
    /// How long it ran, the interrupts that came meanwhile apart.
    pub run_ns: u64,
    /// Of a work item: how long it was off the CPU between its begin and its end.
    pub asleep_ns: u64,
    /// From being due to the run, where that is known.
    pub delay_ns: Option<u64>,
    /// The worker, or the task that was interrupted.
    pub task: Option<TaskId>,
    /// What it waited for meanwhile, longest first.
    pub waits: Vec<RunWait>,
}

/// The waits for one lock inside a [`LongRun`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunWait {
    /// The lock.
    pub lock: LockId,
    /// Where the longest of them was, innermost frame first; `None` if that is not known.
    pub site: Option<StackId>,
    /// Its kind.
    pub kind: Kind,
    /// In which mode it was asked for.
    pub mode: Mode,
    /// How often.
    pub count: u64,
    /// For how long, all of them together.
    pub total_ns: u64,
}

/// What metering itself cost during an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overhead {
    /// CPU time of the lockmeter process (user and system).
    pub own_cpu_ns: u64,
    /// Run time of the measuring programs inside the kernel, on all CPUs.
    pub program_run_ns: u64,
    /// How often they ran.
    pub program_runs: u64,
    /// The part of `program_run_ns` spent on taking stacks (measured, not estimated).
    pub stack_ns: u64,
    /// How many stacks were taken.
    pub stacks: u64,
    /// The longest sampling period in use: stacks of waits at least this long were always due, those of shorter ones in
    /// proportion. 0 means that every stack was due.
    pub sampling_period_ns: u64,
}

impl Overhead {
    /// Adds what `other` counted; the longest sampling period stands.
    pub fn merge(&mut self, other: &Overhead) {
        self.own_cpu_ns = self.own_cpu_ns.saturating_add(other.own_cpu_ns);
        self.program_run_ns = self.program_run_ns.saturating_add(other.program_run_ns);
        self.program_runs = self.program_runs.saturating_add(other.program_runs);
        self.stack_ns = self.stack_ns.saturating_add(other.stack_ns);
        self.stacks = self.stacks.saturating_add(other.stacks);
        self.sampling_period_ns = self.sampling_period_ns.max(other.sampling_period_ns);
    }
}

/// Everything that was measured between two drains.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Interval {
    /// When it began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// How long it lasted.
    pub duration_ns: u64,
    /// What the samples point into.
    pub tables: Tables,
    /// Exact totals.
    pub totals: Vec<Total>,
    /// What the totals of holds and runs rest on; a group without an entry has all of them timed.
    pub bases: Vec<Basis>,
    /// Estimates by stack.
    pub sampled: Vec<Sampled>,
    /// Single contended holds that were long.
    pub slow_holds: Vec<SlowHold>,
    /// Single runs that lasted longer than asked for.
    pub long_runs: Vec<LongRun>,
    /// Where the time of the threads went meanwhile.
    pub threads: ThreadActivity,
    /// What was lost meanwhile.
    pub losses: Losses,
    /// What became meanwhile of the locks of programs that were to be swapped.
    pub swaps: Swaps,
    /// How long metering was switched off meanwhile.
    pub off: SwitchedOff,
    /// What metering cost meanwhile.
    pub overhead: Overhead,
}

impl Interval {
    /// Has it happen so much later, or earlier, by the wall clock.
    pub fn move_by(&mut self, ns: i64) {
        let holds = self.slow_holds.iter_mut().map(|hold| &mut hold.end_unix_ns);
        let runs = self.long_runs.iter_mut().map(|run| &mut run.begin_unix_ns);
        for time in holds.chain(runs).chain([&mut self.start_unix_ns]) {
            *time = time.saturating_add_signed(ns);
        }
    }

    /// What it takes in memory, about: its lists, and the text that they point to.
    pub fn memory_bytes(&self) -> usize {
        let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let tables = &self.tables;
        let lists = size_of_val(self.totals.as_slice())
            + size_of_val(self.bases.as_slice())
            + size_of_val(self.sampled.as_slice())
            + size_of_val(self.slow_holds.as_slice())
            + size_of_val(self.long_runs.as_slice())
            + size_of_val(self.threads.times.as_slice())
            + size_of_val(self.threads.sleeps.as_slice())
            + size_of_val(self.threads.open_waits.as_slice());
        let spent = self.threads.times.iter().map(|time| size_of_val(time.spent.as_slice())).sum::<usize>();
        let waits = self.long_runs.iter().map(|run| size_of_val(run.waits.as_slice())).sum::<usize>();
        let entries = size_of_val(tables.locks())
            + size_of_val(tables.tasks())
            + size_of_val(tables.cgroups())
            + size_of_val(tables.frames())
            + size_of_val(tables.stacks());
        let locks = tables.locks().iter().map(|lock| lock.name.len() + text(&lock.object) + lock.detail.len());
        let tasks = tables.tasks().iter().map(|task| task.comm.len());
        let cgroups = tables.cgroups().iter().map(|cgroup| text(&cgroup.path));
        let frames = tables.frames().iter().map(|frame| text(&frame.function) + text(&frame.module));
        let stacks = tables.stacks().iter().map(|stack| size_of_val(stack.as_slice()));
        let texts = locks.chain(tasks).chain(cgroups).chain(frames).chain(stacks).sum::<usize>();
        size_of::<Self>() + lists + spent + waits + entries + texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_an_interval_grows_with_what_it_holds() {
        let mut interval = Interval::default();
        let empty = interval.memory_bytes();
        let frame = Frame { address: 1, function: Some("f".repeat(1_000)), offset: 0, module: None };
        let frame = interval.tables.intern_frame(frame);
        interval.tables.intern_stack(vec![frame; 100]);
        let grown = interval.memory_bytes() - empty;
        let least = 1_000 + 100 * size_of::<FrameId>() + size_of::<Frame>();
        assert!((least..2 * least).contains(&grown), "{grown}");
    }
}
