//! The accounting before and after: one algorithm under two ways to lock, over any locks.
//!
//! Each CPU has four slots. A task that runs takes as many slots of its CPU as it has breakpoints, and a breakpoint of a CPU
//! takes one of that CPU's for whichever task runs there. So on every CPU its own breakpoints and those of the task that has most
//! must fit into the slots together. For each change the task's breakpoints are looked up for every CPU: once to see whether there is
//! room, once more to note the change. So it was done when the locking changed; that it need not be was found later.

use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};

/// Slots of each CPU, as on x86.
pub const SLOTS: u32 = 4;

const KINDS: usize = SLOTS as usize;

/// A task, with its own lock and its breakpoints.
pub struct Task<M> {
    pub(super) lock: Mutex<M, ()>,
    /// Where each of them is for: [`UNUSED`], or [`ALL_CPUS`], or one more than a CPU's number.
    breakpoints: [AtomicU32; KINDS],
}

const UNUSED: u32 = 0;
const ALL_CPUS: u32 = u32::MAX;

impl<M: RawMutex> Default for Task<M> {
    fn default() -> Self {
        Self { lock: Mutex::new(()), breakpoints: [const { AtomicU32::new(UNUSED) }; KINDS] }
    }
}

impl<M> Task<M> {
    /// Its breakpoints on one CPU. Never inlined: that they are looked up for every CPU is most of what accounting costs.
    #[inline(never)]
    fn on_cpu(&self, cpu: usize) -> u32 {
        let is_here =
            |on: &&AtomicU32| matches!(on.load(Ordering::Relaxed), on if on == ALL_CPUS || on as usize == cpu + 1);
        black_box(self).breakpoints.iter().filter(is_here).count() as u32
    }

    /// One more or less, for all CPUs. Returns whether there was one to change.
    fn change(&self, from: u32, to: u32) -> bool {
        let one = self.breakpoints.iter().find(|on| on.load(Ordering::Relaxed) == from);
        one.inspect(|on| on.store(to, Ordering::Relaxed)).is_some()
    }
}

/// Takes slots and gives them back.
pub trait Accounting: Sync {
    /// The lock of a task.
    type TaskLock: RawMutex + Send + Sync;

    /// Whether there was room for one more breakpoint of the task.
    fn take(&self, task: &Task<Self::TaskLock>) -> bool;
    /// One breakpoint of the task less.
    fn give_back(&self, task: &Task<Self::TaskLock>);
    /// Whether there was room for one more breakpoint of the CPU.
    fn take_on_cpu(&self, cpu: usize) -> bool;
    /// One breakpoint of the CPU less.
    fn give_back_on_cpu(&self, cpu: usize);
    /// How often more slots were taken than there are, or something was lost; both must never happen.
    fn violations(&self) -> u32;
    /// Breakpoints that are still accounted for.
    fn taken(&self) -> u64;
}

/// How a design locks.
pub trait Locking: Sync {
    /// The lock of a task.
    type TaskLock: RawMutex + Send + Sync;
    /// Whether several tasks may change at once, so that what is counted of all of them is changed by atomic instructions.
    const CHANGES_TASKS_AT_ONCE: bool;

    /// What is held while the breakpoints of a task change.
    fn for_task<'a>(&'a self, task: &'a Task<Self::TaskLock>) -> impl Sized + 'a;
    /// What is held while those of a CPU change.
    fn for_cpu(&self) -> impl Sized + '_;
}

/// Before: one mutex around everything.
pub struct GlobalMutex<M>(Mutex<M, ()>);

impl<M: RawMutex> Default for GlobalMutex<M> {
    fn default() -> Self {
        Self(Mutex::new(()))
    }
}

impl<M: RawMutex + Send + Sync> Locking for GlobalMutex<M> {
    type TaskLock = M;
    const CHANGES_TASKS_AT_ONCE: bool = false;

    fn for_task<'a>(&'a self, _: &'a Task<M>) -> impl Sized + 'a {
        self.0.lock()
    }

    fn for_cpu(&self) -> impl Sized + '_ {
        self.0.lock()
    }
}

/// After: a task's breakpoints change under its own mutex and the read side of a lock whose write side is for CPUs' breakpoints.
pub struct TaskMutexes<M, R> {
    pub(super) cpus: RwLock<R, ()>,
    task_lock: std::marker::PhantomData<fn() -> M>,
}

impl<M, R: RawRwLock> Default for TaskMutexes<M, R> {
    fn default() -> Self {
        Self { cpus: RwLock::new(()), task_lock: std::marker::PhantomData }
    }
}

impl<M: RawMutex + Send + Sync, R: RawRwLock + Send + Sync> Locking for TaskMutexes<M, R> {
    type TaskLock = M;
    const CHANGES_TASKS_AT_ONCE: bool = true;

    fn for_task<'a>(&'a self, task: &'a Task<M>) -> impl Sized + 'a {
        (task.lock.lock(), self.cpus.read())
    }

    fn for_cpu(&self) -> impl Sized + '_ {
        self.cpus.write()
    }
}

/// The slots of all CPUs, under a way to lock.
pub struct Slots<L> {
    locking: L,
    cpus: Vec<Cpu>,
    violations: AtomicU32,
}

/// A CPU's own breakpoints, and how many tasks have one, two, … breakpoints there.
#[derive(Debug, Default)]
struct Cpu {
    own: AtomicU32,
    tasks: [AtomicU32; KINDS],
}

/// What there is of each CPU.
pub const BYTES_OF_A_CPU: usize = size_of::<Cpu>();

impl Cpu {
    fn own(&self) -> u32 {
        self.own.load(Ordering::Relaxed)
    }

    /// The breakpoints of the task that has most.
    fn most_of_a_task(&self) -> u32 {
        let is_any = |count: &u32| self.tasks[*count as usize - 1].load(Ordering::Relaxed) > 0;
        (1..=SLOTS).rev().find(is_any).unwrap_or(0)
    }

    /// The counter of tasks with this number of breakpoints. Tasks without any are not counted.
    fn tasks_with(&self, breakpoints: u32) -> Option<&AtomicU32> {
        self.tasks.get(breakpoints.checked_sub(1)? as usize)
    }
}

impl<L: Locking + Default> Slots<L> {
    /// Nothing taken on any of this many CPUs.
    pub fn new(cpus: usize) -> Self {
        let cpus = (0..cpus).map(|_| Cpu::default()).collect();
        Self { locking: L::default(), cpus, violations: AtomicU32::new(0) }
    }
}

impl<L: Locking> Slots<L> {
    /// Has what must be so fail a run where it is not.
    fn must(&self, be: bool) {
        if !be {
            self.violations.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A task has another number of breakpoints on a CPU.
    fn move_task(cpu: &Cpu, from: u32, to: u32) {
        let change = |counter: &AtomicU32, by: u32| {
            if L::CHANGES_TASKS_AT_ONCE {
                counter.fetch_add(by, Ordering::Relaxed);
            } else {
                counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
            }
        };
        if let Some(counter) = cpu.tasks_with(to) {
            change(counter, 1);
        }
        if let Some(counter) = cpu.tasks_with(from) {
            change(counter, 1_u32.wrapping_neg());
        }
    }
}

/// Between a decision and the change that rests on it: where tests let others run, so that a lock that is missing is missed.
fn decided() {
    if cfg!(test) {
        std::thread::yield_now();
    }
}

/// The methods keep their names on stacks: by them a meter knows whose locks are waited for.
impl<L: Locking> Accounting for Slots<L> {
    type TaskLock = L::TaskLock;

    #[inline(never)]
    fn take(&self, task: &Task<L::TaskLock>) -> bool {
        let _held = self.locking.for_task(task);
        let needs = |(at, cpu): (usize, &Cpu)| cpu.own() + (task.on_cpu(at) + 1).max(cpu.most_of_a_task());
        if self.cpus.iter().enumerate().map(needs).any(|slots| slots > SLOTS) {
            return false;
        }
        decided();
        for (at, cpu) in self.cpus.iter().enumerate() {
            let had = task.on_cpu(at);
            Self::move_task(cpu, had, had + 1);
            self.must(cpu.own() + had < SLOTS);
        }
        self.must(task.change(UNUSED, ALL_CPUS));
        true
    }

    #[inline(never)]
    fn give_back(&self, task: &Task<L::TaskLock>) {
        let _held = self.locking.for_task(task);
        for (at, cpu) in self.cpus.iter().enumerate() {
            let had = task.on_cpu(at);
            self.must(had > 0);
            Self::move_task(cpu, had, had.saturating_sub(1));
        }
        self.must(task.change(ALL_CPUS, UNUSED));
    }

    #[inline(never)]
    fn take_on_cpu(&self, cpu: usize) -> bool {
        let _held = self.locking.for_cpu();
        let cpu = &self.cpus[cpu];
        let own = cpu.own() + 1;
        if own + cpu.most_of_a_task() > SLOTS {
            return false;
        }
        decided();
        cpu.own.store(own, Ordering::Relaxed);
        self.must(own + cpu.most_of_a_task() <= SLOTS);
        true
    }

    #[inline(never)]
    fn give_back_on_cpu(&self, cpu: usize) {
        let _held = self.locking.for_cpu();
        let own = self.cpus[cpu].own();
        decided();
        self.must(own > 0);
        self.cpus[cpu].own.store(own.saturating_sub(1), Ordering::Relaxed);
    }

    fn violations(&self) -> u32 {
        self.violations.load(Ordering::Relaxed)
    }

    fn taken(&self) -> u64 {
        let of = |cpu: &Cpu| {
            let tasks = cpu.tasks.iter().map(|tasks| u64::from(tasks.load(Ordering::Relaxed)));
            u64::from(cpu.own()) + tasks.sum::<u64>()
        };
        self.cpus.iter().map(of).sum()
    }
}

/// The ideal: breakpoints, and nobody counts them.
pub struct Unaccounted<M>(std::marker::PhantomData<fn() -> M>);

impl<M> Default for Unaccounted<M> {
    fn default() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<M: RawMutex + Send + Sync> Accounting for Unaccounted<M> {
    type TaskLock = M;

    fn take(&self, _: &Task<M>) -> bool {
        true
    }

    fn give_back(&self, _: &Task<M>) {}

    fn take_on_cpu(&self, _: usize) -> bool {
        true
    }

    fn give_back_on_cpu(&self, _: usize) {}

    fn taken(&self) -> u64 {
        0
    }

    fn violations(&self) -> u32 {
        0
    }
}
