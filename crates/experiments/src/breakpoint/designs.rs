//! The accounting before and after, over any locks.
//!
//! Each CPU has four slots. A task that runs takes as many slots of its CPU as it has breakpoints, and a breakpoint of a CPU
//! takes one of that CPU's for whichever task runs there. So on every CPU its own breakpoints and those of the task that has most
//! must fit into the slots together.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};

use lock_api::{Mutex, RawMutex, RawRwLock, RwLock};

/// Slots of each CPU, as on x86.
pub const SLOTS: u32 = 4;

const KINDS: usize = SLOTS as usize;

/// How often a breakpoint found more slots taken than there are, which must never happen.
#[derive(Debug, Default)]
pub struct Violations(AtomicU32);

impl Violations {
    fn see(&self, taken: u32) {
        if taken > SLOTS {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// So far.
    pub fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A task, with its own lock and the breakpoints counted under that, where the design has one.
pub struct Task<M> {
    breakpoints: Mutex<M, u32>,
}

impl<M: RawMutex> Default for Task<M> {
    fn default() -> Self {
        Self { breakpoints: Mutex::new(0) }
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
    /// Breakpoints that are still accounted for.
    fn taken(&self) -> u64;
    /// How often there were more than slots.
    fn violations(&self) -> u32;
}

/// Before: one mutex around everything, and for each CPU the task's breakpoints looked up in a table and counted anew: once to see
/// whether there is room, once more to note the change.
pub struct GlobalMutex<M> {
    state: Mutex<M, State>,
    violations: Violations,
}

struct State {
    cpus: Vec<Cpu>,
    /// The breakpoints of each task, each with the CPU that it is for; `None` is for all.
    tasks: HashMap<usize, Vec<Option<usize>>>,
}

impl State {
    /// Breakpoints of the task on one CPU. Never inlined: the look-up for every CPU is what this design costs.
    #[inline(never)]
    fn of_task(&self, cpu: usize, task: usize) -> u32 {
        let breakpoints = self.tasks.get(&black_box(task)).map_or(&[][..], |breakpoints| breakpoints);
        let here = breakpoints.iter().filter(|on| on.is_none_or(|on| on == cpu)).count();
        u32::try_from(here).unwrap_or(u32::MAX)
    }

    fn has_room(&self, task: usize) -> bool {
        let fits = |(at, cpu): (usize, &Cpu)| cpu.own + (self.of_task(at, task) + 1).max(cpu.most_of_a_task()) <= SLOTS;
        self.cpus.iter().enumerate().all(fits)
    }
}

/// A CPU's own breakpoints, and how many tasks have one, two, … breakpoints.
#[derive(Debug, Clone, Copy, Default)]
struct Cpu {
    own: u32,
    tasks: [u32; KINDS],
}

impl Cpu {
    fn most_of_a_task(&self) -> u32 {
        most(self.tasks)
    }
}

/// The breakpoints of the task that has most.
fn most(tasks: [u32; KINDS]) -> u32 {
    (1..=SLOTS).rev().find(|count| tasks[*count as usize - 1] > 0).unwrap_or(0)
}

/// What the mutex protects of each CPU.
pub const BYTES_OF_A_CPU: usize = size_of::<Cpu>();

impl<M: RawMutex> GlobalMutex<M> {
    /// Nothing taken on any of so many CPUs.
    pub fn new(cpus: usize) -> Self {
        let state = State { cpus: vec![Cpu::default(); cpus], tasks: HashMap::new() };
        Self { state: Mutex::new(state), violations: Violations::default() }
    }
}

/// A task as the table knows it: by its address.
fn key<M>(task: &Task<M>) -> usize {
    std::ptr::from_ref(task).addr()
}

impl<M: RawMutex + Send + Sync> Accounting for GlobalMutex<M> {
    type TaskLock = M;

    fn take(&self, task: &Task<M>) -> bool {
        let mut state = self.state.lock();
        let task = key(task);
        if !state.has_room(task) {
            return false;
        }
        for at in 0..state.cpus.len() {
            let had = state.of_task(at, task);
            let cpu = &mut state.cpus[at];
            move_task(&mut cpu.tasks, had, had + 1);
            self.violations.see(cpu.own + cpu.most_of_a_task());
        }
        state.tasks.entry(task).or_default().push(None);
        true
    }

    fn give_back(&self, task: &Task<M>) {
        let mut state = self.state.lock();
        let task = key(task);
        for at in 0..state.cpus.len() {
            let had = state.of_task(at, task);
            move_task(&mut state.cpus[at].tasks, had, had - 1);
        }
        if let Some(breakpoints) = state.tasks.get_mut(&task) {
            breakpoints.pop();
            if breakpoints.is_empty() {
                state.tasks.remove(&task);
            }
        }
    }

    fn take_on_cpu(&self, cpu: usize) -> bool {
        let mut state = self.state.lock();
        let cpu = &mut state.cpus[cpu];
        let room = cpu.own + 1 + cpu.most_of_a_task() <= SLOTS;
        cpu.own += u32::from(room);
        self.violations.see(cpu.own + cpu.most_of_a_task());
        room
    }

    fn give_back_on_cpu(&self, cpu: usize) {
        self.state.lock().cpus[cpu].own -= 1;
    }

    fn taken(&self) -> u64 {
        let of = |cpu: &Cpu| u64::from(cpu.own) + cpu.tasks.iter().map(|tasks| u64::from(*tasks)).sum::<u64>();
        let state = self.state.lock();
        state.cpus.iter().map(of).sum::<u64>() + state.tasks.len() as u64
    }

    fn violations(&self) -> u32 {
        self.violations.count()
    }
}

fn move_task(tasks: &mut [u32; KINDS], from: u32, to: u32) {
    if from > 0 {
        tasks[from as usize - 1] -= 1;
    }
    if to > 0 {
        tasks[to as usize - 1] += 1;
    }
}

/// After: a task's breakpoints change under its own mutex and the read side of a lock whose write side is for CPUs' breakpoints;
/// what readers change together is atomic, and counted where they run, so that no line is shared by tasks that only change their own.
pub struct TaskMutexes<M, R> {
    cpus: RwLock<R, Vec<u32>>,
    /// The most breakpoints that any CPU has of its own: all that a task must know of the CPUs.
    most_of_a_cpu: AtomicU32,
    tasks: Vec<Counted>,
    violations: Violations,
    task_lock: std::marker::PhantomData<fn() -> M>,
}

/// How many tasks have at least one, two, … breakpoints, as changed from one CPU: the sum over all CPUs is the number, and a part alone
/// may be below nought, since tasks move. A breakpoint more or less changes one counter.
#[derive(Default)]
#[repr(align(128))]
struct Counted([AtomicU32; KINDS]);

impl<M, R: RawRwLock> TaskMutexes<M, R> {
    /// Nothing taken on any of so many CPUs.
    pub fn new(cpus: usize) -> Self {
        let here = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpus: RwLock::new(vec![0; cpus]),
            most_of_a_cpu: AtomicU32::new(0),
            tasks: (0..here).map(|_| Counted::default()).collect(),
            violations: Violations::default(),
            task_lock: std::marker::PhantomData,
        }
    }

    /// Where tasks with at least so many breakpoints are counted on this CPU.
    fn counter(&self, breakpoints: u32) -> &AtomicU32 {
        // SAFETY: reads the number of the CPU. A thread that has moved on by the time it counts only shares a line.
        let cpu = usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0);
        &self.tasks[cpu % self.tasks.len()].0[breakpoints as usize - 1]
    }

    /// Tasks with at least one, two, … breakpoints. Exact while no task may change any.
    fn count_tasks(&self) -> [u32; KINDS] {
        let on = |kind: usize| self.tasks.iter().map(move |counted| counted.0[kind].load(Ordering::Relaxed));
        std::array::from_fn(|kind| on(kind).fold(0, u32::wrapping_add))
    }
}

impl<M: RawMutex + Send + Sync, R: RawRwLock + Send + Sync> Accounting for TaskMutexes<M, R> {
    type TaskLock = M;

    fn take(&self, task: &Task<M>) -> bool {
        let mut breakpoints = task.breakpoints.lock();
        let _no_cpu_changes = self.cpus.read();
        let wanted = *breakpoints + 1;
        let taken = self.most_of_a_cpu.load(Ordering::Relaxed) + wanted;
        if taken > SLOTS {
            return false;
        }
        self.counter(wanted).fetch_add(1, Ordering::Relaxed);
        *breakpoints = wanted;
        self.violations.see(taken);
        true
    }

    fn give_back(&self, task: &Task<M>) {
        let mut breakpoints = task.breakpoints.lock();
        let _no_cpu_changes = self.cpus.read();
        self.counter(*breakpoints).fetch_sub(1, Ordering::Relaxed);
        *breakpoints -= 1;
    }

    fn take_on_cpu(&self, cpu: usize) -> bool {
        let mut cpus = self.cpus.write();
        let taken = cpus[cpu] + 1 + most(self.count_tasks());
        if taken > SLOTS {
            return false;
        }
        cpus[cpu] += 1;
        self.most_of_a_cpu.store(cpus.iter().copied().max().unwrap_or(0), Ordering::Relaxed);
        self.violations.see(taken);
        true
    }

    fn give_back_on_cpu(&self, cpu: usize) {
        let mut cpus = self.cpus.write();
        cpus[cpu] -= 1;
        self.most_of_a_cpu.store(cpus.iter().copied().max().unwrap_or(0), Ordering::Relaxed);
    }

    fn taken(&self) -> u64 {
        let own = self.cpus.write().iter().map(|own| u64::from(*own)).sum::<u64>();
        own + self.count_tasks().iter().map(|tasks| u64::from(*tasks)).sum::<u64>()
    }

    fn violations(&self) -> u32 {
        self.violations.count()
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
