//! Where goroutines wait for locks: at each look, those that Go's runtime has put to sleep.
//!
//! Who waits is read from the memory of the process, ten times a second. Each look stands for the time since the one before it.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use lockmeter_profile::{Happened, Interval, Lock, Parked, SampledWait};
use lockmeter_symbols::{GoRuntime, MappedFile, Origin, ParkedGoroutine, UserWait, heap_lock};

use super::table::{Threads, Who, named_cgroup};
use crate::cgroups::CgroupTree;
use crate::clock::monotonic_ns;
use crate::futex::processes::Processes;
use crate::futex::user_stacks::LockBehind;

/// Goroutines of a process whose stacks a look takes.
const STACKS_A_LOOK: usize = 32;

/// Locks whose names are remembered; beyond, all are forgotten.
const MOST_NAMES: usize = 1 << 14;

/// All processes that run Go.
pub(super) struct Goroutines {
    processes: Rc<RefCell<Processes>>,
    programs: HashMap<u32, Program>,
    /// Those on the heap, by the code that was first seen to use them.
    names: HashMap<(u32, u64), Lock>,
    looks: u64,
}

/// A program that runs Go.
struct Program {
    /// Its mappings, by how often they had changed.
    changes: u32,
    /// `None`: its runtime cannot be found.
    runtime: Option<GoRuntime>,
    /// The name of its first thread, and its control group, when its mappings were last seen to change.
    who: (Who, u64),
    looked_ns: u64,
    looks: Looks,
    waits: HashMap<Place, Waited>,
}

/// Where goroutines wait.
#[derive(PartialEq, Eq, Hash)]
struct Place {
    word: u64,
    stack: Vec<u64>,
}

/// The looks since the last drain: how many, for how long they stand, and the squares of that.
#[derive(Debug, Clone, Copy, Default)]
struct Looks {
    count: u64,
    sum_ns: f64,
    squares_ns2: f64,
}

impl Looks {
    fn add(&mut self, lasted_ns: f64) {
        self.count += 1;
        self.sum_ns += lasted_ns;
        self.squares_ns2 += lasted_ns * lasted_ns;
    }
}

/// For how long goroutines waited at a place, all of them together.
#[derive(Default)]
struct Waited {
    looks: u64,
    last_look: u64,
    /// By the last look, and for how long that stands.
    look_ns: f64,
    lasted_ns: f64,
    sum_ns: f64,
    squares_ns2: f64,
    products_ns2: f64,
}

impl Waited {
    fn add(&mut self, looks: &Looks, lasted_ns: f64, ns: f64) {
        if self.last_look != looks.count {
            self.end_look();
            (self.last_look, self.looks, self.lasted_ns) = (looks.count, self.looks + 1, lasted_ns);
        }
        self.look_ns += ns;
    }

    fn end_look(&mut self) {
        let ns = std::mem::take(&mut self.look_ns);
        self.sum_ns += ns;
        self.squares_ns2 += ns * ns;
        self.products_ns2 += ns * self.lasted_ns;
    }

    /// The variance of the sum: how far each look, also one that found nobody here, is from the mean number that waited.
    fn variance_ns2(&self, looks: &Looks) -> f64 {
        let count = looks.count as f64;
        if looks.count < 2 || looks.sum_ns <= 0.0 {
            return self.squares_ns2;
        }
        let mean = self.sum_ns / looks.sum_ns;
        let squares_ns2 = self.squares_ns2 - 2.0 * mean * self.products_ns2 + mean * mean * looks.squares_ns2;
        squares_ns2.max(0.0) * count / (count - 1.0)
    }
}

impl Program {
    fn new(who: (Who, u64), now_ns: u64) -> Self {
        Self { changes: 0, runtime: None, who, looked_ns: now_ns, looks: Looks::default(), waits: HashMap::new() }
    }

    /// Finds the runtime in the files that the process maps now: it may run another program than before.
    fn learn(&mut self, who: (Who, u64), changes: u32, files: &[MappedFile]) {
        self.runtime = files.iter().find_map(|file| GoRuntime::find(who.0.tgid, file));
        (self.who, self.changes) = (who, changes);
    }

    /// Whether anything could be seen.
    fn look(&mut self, now_ns: u64) -> bool {
        let Some(runtime) = &self.runtime else { return false };
        let Some(parked) = runtime.look() else { return false };
        let lasted_ns = now_ns.saturating_sub(std::mem::replace(&mut self.looked_ns, now_ns)) as f64;
        self.looks.add(lasted_ns);
        let every = parked.len().div_ceil(STACKS_A_LOOK).max(1);
        let first = self.looks.count as usize % every;
        let chosen: Vec<&ParkedGoroutine> = parked.iter().skip(first).step_by(every).collect();
        let each_ns = lasted_ns * parked.len() as f64 / chosen.len().max(1) as f64;
        for parked in chosen {
            let place = Place { word: parked.word, stack: runtime.stack(parked) };
            self.waits.entry(place).or_default().add(&self.looks, lasted_ns, each_ns * parked.stands_for);
        }
        true
    }
}

impl Goroutines {
    pub(super) fn new(processes: Rc<RefCell<Processes>>) -> Self {
        Self { processes, programs: HashMap::new(), names: HashMap::new(), looks: 0 }
    }

    /// The first interval begins now.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.looks = 0;
        for program in self.programs.values_mut() {
            program.waits.clear();
            (program.looked_ns, program.looks) = (now_ns, Looks::default());
        }
    }

    /// Looks at the goroutines of these processes.
    pub(super) fn look(&mut self, run_go: &HashSet<u32>, threads: &Threads) {
        let processes = self.processes.borrow();
        self.programs.retain(|tgid, _| run_go.contains(tgid));
        let now_ns = monotonic_ns();
        for tgid in run_go {
            let changes = processes.changes(*tgid);
            let is_other = self.programs.get(tgid).is_none_or(|program| program.changes != changes);
            // It may have ended, or may not have been seen yet.
            if is_other && let Some(who) = threads.process(*tgid) {
                let program = self.programs.entry(*tgid).or_insert_with(|| Program::new(who, now_ns));
                program.learn(who, changes, processes.files(*tgid));
            }
            if let Some(program) = self.programs.get_mut(tgid) {
                self.looks += u64::from(program.look(now_ns));
            }
        }
    }

    /// Adds what was seen to an interval.
    pub(super) fn drain_into(&mut self, interval: &mut Interval, cgroups: &CgroupTree) {
        interval.threads.goroutine_looks += std::mem::take(&mut self.looks);
        if self.names.len() > MOST_NAMES {
            self.names.clear();
        }
        let mut processes = self.processes.borrow_mut();
        for (tgid, program) in &mut self.programs {
            let (looks, (who, cgroup)) = (std::mem::take(&mut program.looks), program.who);
            // The last look comes a moment after the interval's end.
            let within = (interval.duration_ns as f64 / looks.sum_ns.max(1.0)).min(1.0);
            for (place, mut waited) in std::mem::take(&mut program.waits) {
                waited.end_look();
                let frames = processes.frames(*tgid, &place.stack);
                let Some(wait) = UserWait::tell_parked(&frames).filter(|wait| wait.happened == Happened::Wait) else {
                    continue;
                };
                let found = LockBehind::find(&mut processes, (*tgid, place.word, false), wait, &frames);
                let address = found.address.unwrap_or(place.word);
                let on_heap = || heap_lock(&frames, Origin::FirstSeen);
                let lock =
                    found.lock.unwrap_or_else(|| self.names.entry((*tgid, address)).or_insert_with(on_heap).clone());
                let tables = &mut interval.tables;
                let wait = SampledWait {
                    happened: wait.happened,
                    lock: tables.intern_lock(lock),
                    kind: wait.kind,
                    mode: wait.mode,
                    instance: Some(address),
                };
                let stack: Vec<_> = frames.into_iter().map(|frame| tables.intern_frame(frame)).collect();
                interval.threads.parked.push(Parked {
                    task: who.task(tables),
                    cgroup: named_cgroup(cgroup, cgroups, tables),
                    wait,
                    site: (!stack.is_empty()).then(|| tables.intern_stack(stack)),
                    looks: waited.looks,
                    estimate_ns: (within * waited.sum_ns) as u64,
                    variance_ns2: within * within * waited.variance_ns2(&looks),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the looks say of a place at which so many waited in each of them, by how long it stands for.
    fn told(found: &[(f64, u32)]) -> (f64, f64) {
        let (mut looks, mut waited) = (Looks::default(), Waited::default());
        for (lasted_ns, waiting) in found {
            looks.add(*lasted_ns);
            for _ in 0..*waiting {
                waited.add(&looks, *lasted_ns, *lasted_ns);
            }
        }
        waited.end_look();
        (waited.sum_ns, waited.variance_ns2(&looks))
    }

    #[test]
    fn looks_that_all_find_as_many_are_sure_however_long_each_stands_for() {
        let (sum_ns, variance_ns2) = told(&[(100.0, 7), (300.0, 7), (50.0, 7)]);
        assert_eq!(sum_ns, 3_150.0);
        assert!(variance_ns2 < 1e-6, "{variance_ns2}");
    }

    #[test]
    fn looks_that_find_nobody_count_as_well() {
        // Found in one of ten: the standard deviation of the mean of such numbers is 0.1.
        let mut found = [(100.0, 0); 10];
        found[3].1 = 1;
        let (sum_ns, variance_ns2) = told(&found);
        assert_eq!(sum_ns, 100.0);
        assert!((variance_ns2.sqrt() - 100.0).abs() < 1e-6, "{variance_ns2}");
    }
}
