//! What samples of running threads say: who spins, where, and for what.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use lockmeter_profile::{
    Cgroup, Frame, Interval, Kind, Lock, Losses, SampledWait, Spin, SpinLoop, StackId, TaskId, ThreadState, ThreadTime,
};
use lockmeter_symbols::{Origin, UserSpin, has_own_spins, heap_lock, lock_without_address};

use super::pause_loop::is_next_in_loop;
use crate::cgroups::CgroupTree;
use crate::futex::processes::{Processes, copied_stack};
use crate::futex::user_stacks::{is_of_preloaded, leave_nameless_out};
use crate::threads::skeleton::types::cpu_sample;
use crate::threads::{Who, fill};

/// The numbers of `enum sample_of` in `tables.h`.
const OF_KERNEL: u32 = 0;
const OF_YIELD: u32 = 2;
const OF_SLEEP: u32 = 3;

/// A task with fewer samples in an interval is counted together with all others that have.
const ENOUGH_SAMPLES: u64 = 10;

/// Sites remembered; beyond, all are forgotten.
const MOST_SITES: usize = 1 << 12;

/// The functions of the preloaded library stand within this many frames of where a thread spins.
const NEAREST_FRAMES: usize = 6;

/// No address of a program is larger.
const END_OF_PROGRAMS: u64 = 1 << 47;

/// What was sampled since the last drain.
pub(super) struct Samples {
    processes: Rc<RefCell<Processes>>,
    sites: HashMap<SiteKey, Option<Rc<Site>>>,
    /// All of a task.
    of_tasks: HashMap<Who, u64>,
    spins: HashMap<SpinKey, (Rc<Site>, u64)>,
    losses: Losses,
}

/// Where a thread spins.
#[derive(PartialEq, Eq, Hash)]
struct SiteKey {
    tgid: u32,
    changes: u32,
    /// `None`: only the function can say that it does.
    spin_loop: Option<SpinLoop>,
    user: Vec<u64>,
    /// If a register holds its address.
    argument: u64,
}

/// What that is.
struct Site {
    how: SpinLoop,
    /// The preloaded library counts its waits.
    is_part: bool,
    frames: Vec<Frame>,
    wait: Option<(UserSpin, Lock, Option<u64>)>,
}

#[derive(PartialEq, Eq, Hash)]
struct SpinKey {
    who: Who,
    cgroup: u64,
    site: *const Site,
}

impl Samples {
    pub(super) fn new(processes: Rc<RefCell<Processes>>) -> Self {
        Self {
            processes,
            sites: HashMap::new(),
            of_tasks: HashMap::new(),
            spins: HashMap::new(),
            losses: Losses::default(),
        }
    }

    pub(super) fn forget(&mut self) {
        self.of_tasks.clear();
        self.spins.clear();
        self.losses = Losses::default();
    }

    /// Takes a sample of the programs' over.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        let mut sample = Box::<cpu_sample>::default();
        // SAFETY: plain integers.
        unsafe { fill(&mut *sample, bytes) };
        let who = Who { tgid: sample.tgid, comm: sample.comm.map(i8::cast_unsigned) };
        *self.of_tasks.entry(who).or_default() += 1;
        if let Some(site) = self.site(&sample) {
            let key = SpinKey { who, cgroup: sample.cgroup, site: Rc::as_ptr(&site) };
            self.spins.entry(key).or_insert((site, 0)).1 += 1;
        }
    }

    /// Where a thread spins, if it does.
    fn site(&mut self, sample: &cpu_sample) -> Option<Rc<Site>> {
        let tgid = sample.tgid;
        let spin_loop = match sample.of {
            OF_KERNEL => return None,
            OF_YIELD => Some(SpinLoop::Yield),
            OF_SLEEP => None,
            _ => is_next_in_loop(&sample.code).then_some(SpinLoop::Pause),
        };
        let mut processes = self.processes.borrow_mut();
        // Only functions of such programs say by themselves that they spin: the names of others are not read for nothing.
        if spin_loop.is_none() && !processes.maps_any(tgid, has_own_spins) {
            return None;
        }
        processes.inherit(tgid, sample.parent);
        let user = processes.unwind(tgid, copied_stack!(&sample.user), &mut self.losses);
        let changes = processes.changes(tgid);
        let key = SiteKey { tgid, changes, spin_loop, user, argument: sample.argument };
        if let Some(known) = self.sites.get(&key) {
            return known.clone();
        }
        if self.sites.len() >= MOST_SITES {
            self.sites.clear();
        }
        let of_sleep = (sample.of == OF_SLEEP).then_some(SpinLoop::Sleep);
        let site = Site::find(&mut processes, &key, of_sleep).map(Rc::new);
        self.sites.insert(key, site.clone());
        site
    }

    /// Adds what was sampled to an interval, scaled by the exact running time of the same threads in it.
    pub(super) fn drain_into(&mut self, interval: &mut Interval, cgroups: &CgroupTree) {
        interval.losses.merge(&std::mem::take(&mut self.losses));
        let of_tasks = std::mem::take(&mut self.of_tasks);
        let spins = std::mem::take(&mut self.spins);
        interval.threads.run_samples += of_tasks.values().sum::<u64>();
        let of_tasks = of_tasks.into_iter().map(|(who, samples)| (who.task(&mut interval.tables), samples)).collect();
        let strata = Strata::new(&interval.threads.times, of_tasks);
        for (SpinKey { who, cgroup, .. }, (site, samples)) in spins {
            let task = who.task(&mut interval.tables);
            let path = || cgroups.path(cgroup).map(str::to_owned);
            let cgroup = (cgroup != 0).then(|| interval.tables.intern_cgroup(Cgroup { id: cgroup, path: path() }));
            let (estimate_ns, variance_ns2) = strata.estimate(task, samples);
            let (how, is_part, stack) = (site.how, site.is_part, site.stack(interval));
            let wait = site.wait.as_ref().map(|(spin, lock, instance)| SampledWait {
                happened: spin.happened(),
                lock: interval.tables.intern_lock(lock.clone()),
                kind: spin.kind(),
                mode: spin.mode(),
                instance: *instance,
            });
            let spin = Spin { task, cgroup, how, wait, is_part, site: stack, samples, estimate_ns, variance_ns2 };
            interval.threads.spins.push(spin);
        }
    }
}

impl Site {
    fn find(processes: &mut Processes, key: &SiteKey, of_sleep: Option<SpinLoop>) -> Option<Self> {
        let mut frames = processes.frames(key.tgid, &key.user);
        let is_part = frames.iter().take(NEAREST_FRAMES).any(is_of_preloaded);
        frames.retain(|frame| !is_of_preloaded(frame));
        let spin = UserSpin::tell(&frames, key.spin_loop.is_some());
        let how = key.spin_loop.or_else(|| spin.map(|_| of_sleep.unwrap_or(SpinLoop::Function)))?;
        if is_part && spin.is_none_or(|spin| spin.kind() == Kind::Spin) {
            // The library spins in the program's place, and counts for how long.
            return None;
        }
        let address = spin.filter(|spin| spin.has_address()).map(|_| key.argument);
        let address = address.filter(|address| (1..END_OF_PROGRAMS).contains(address));
        leave_nameless_out(&mut frames);
        let wait = spin.map(|spin| {
            let place = address.and_then(|address| processes.static_place(key.tgid, address));
            let lock = spin.lock(&frames).or_else(|| place.map(|place| place.lock()));
            let nameless = || match address {
                Some(_) => heap_lock(&frames, Origin::FirstSeen),
                None => lock_without_address(&frames),
            };
            (spin, lock.unwrap_or_else(nameless), address)
        });
        Some(Self { how, is_part, frames, wait })
    }

    fn stack(&self, interval: &mut Interval) -> Option<StackId> {
        let frames = self.frames.iter().map(|frame| interval.tables.intern_frame(frame.clone()));
        let frames: Vec<_> = frames.collect();
        (!frames.is_empty()).then(|| interval.tables.intern_stack(frames))
    }
}

/// How long the threads of tasks ran, exactly, and how many samples of that there are. What is estimated of one is never more.
struct Strata {
    own: HashMap<TaskId, Stratum>,
    others: Stratum,
}

#[derive(Clone, Copy, Default)]
struct Stratum {
    running_ns: u64,
    samples: u64,
}

impl Strata {
    fn new(times: &[ThreadTime], of_tasks: Vec<(TaskId, u64)>) -> Self {
        let mut own = HashMap::<TaskId, Stratum>::new();
        for time in times {
            let running = time.spent.iter().filter(|(state, _)| *state == ThreadState::Running);
            own.entry(time.task).or_default().running_ns += running.map(|(_, ns)| *ns).sum::<u64>();
        }
        for (task, samples) in of_tasks {
            own.entry(task).or_default().samples += samples;
        }
        let mut others = Stratum::default();
        let has_few = |stratum: &Stratum| stratum.samples < ENOUGH_SAMPLES || stratum.running_ns == 0;
        for (_, few) in own.extract_if(|_, stratum| has_few(stratum)) {
            others.running_ns += few.running_ns;
            others.samples += few.samples;
        }
        Self { own, others }
    }

    /// The CPU time that this many samples of a task stand for, and its variance: a binomial share of a known whole.
    fn estimate(&self, task: TaskId, hits: u64) -> (u64, f64) {
        let Stratum { running_ns, samples } = self.own.get(&task).copied().unwrap_or(self.others);
        let (running_ns, samples) = (running_ns as f64, samples.max(1) as f64);
        let share = hits as f64 / samples;
        ((running_ns * share) as u64, running_ns * running_ns * share * (1.0 - share) / samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(running_ns: &[u64]) -> Vec<ThreadTime> {
        let time = |(task, ns): (u32, &u64)| ThreadTime {
            task: TaskId(task),
            cgroup: None,
            threads: 1,
            spent: vec![(ThreadState::Running, *ns), (ThreadState::Runnable, 1_000_000_000)],
        };
        (0..).zip(running_ns).map(time).collect()
    }

    #[test]
    fn samples_are_scaled_to_what_their_threads_ran_and_never_beyond() {
        // The third ran too shortly to be met often: the fourth stands for both.
        let times = times(&[1_000_000_000, 400_000_000, 10_000_000, 30_000_000]);
        let strata = Strata::new(&times, vec![(TaskId(0), 100), (TaskId(1), 39), (TaskId(3), 4)]);
        assert_eq!(strata.estimate(TaskId(0), 25).0, 250_000_000);
        assert_eq!(strata.estimate(TaskId(1), 39), (400_000_000, 0.0));
        assert_eq!(strata.estimate(TaskId(3), 2).0, 20_000_000);
        let (_, variance_ns2) = strata.estimate(TaskId(0), 50);
        assert_eq!(variance_ns2.sqrt() as u64, 50_000_000, "a half of a hundred samples is known to a twentieth");
    }
}
