//! A discrete-event simulation of threads and locks: what the exact solution is checked against.
//!
//! It makes none of that solution's assumptions: holds have the durations that were measured, readers hold together, waiters
//! are served in the order in which they came. Each step of a thread is a while of computing and one acquisition, of a lock
//! drawn with the chance that its visits give it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use lockmeter_statistics::Random;

use crate::network::{Handoff, Network, SECOND_NS, number};

/// How long something takes.
#[derive(Debug, Clone, PartialEq)]
pub enum Duration {
    /// Always the same.
    Constant(f64),
    /// Exponential with this mean, as the exact solution assumes.
    Exponential(f64),
    /// Drawn from a histogram: means, each with its weight.
    Histogram(Vec<(f64, u64)>),
}

impl Duration {
    fn draw_ns(&self, random: &mut Random) -> f64 {
        match self {
            Self::Constant(ns) => *ns,
            Self::Exponential(mean_ns) => -mean_ns * random.unit().ln(),
            Self::Histogram(buckets) => {
                let total = buckets.iter().fold(0_u64, |sum, (_, weight)| sum.saturating_add(*weight));
                let mut at = random.below(usize::try_from(total).unwrap_or(usize::MAX).max(1)) as u64;
                for (mean_ns, weight) in buckets {
                    if at < *weight {
                        return *mean_ns;
                    }
                    at -= weight;
                }
                0.0
            }
        }
    }
}

/// One way of taking a lock.
#[derive(Debug, Clone, PartialEq)]
pub struct Visit {
    /// Which lock.
    pub lock: usize,
    /// Whether others may hold it the same way at the same time.
    pub shared: bool,
    /// How often in one cycle.
    pub per_cycle: f64,
    /// How long it is held.
    pub hold: Duration,
}

/// Threads and locks to simulate.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    /// What a thread computes in one cycle.
    pub think_ns: f64,
    /// What handing over each lock costs.
    pub locks: Vec<Handoff>,
    /// How they are taken.
    pub visits: Vec<Visit>,
}

impl Scene {
    /// The network's own assumptions, simulated: for checking the simulation and the solution against each other.
    pub fn of(network: &Network) -> Self {
        let visit = |(lock, station): (usize, &crate::network::Station)| Visit {
            lock,
            shared: false,
            per_cycle: station.visits,
            hold: Duration::Exponential(station.hold_ns),
        };
        Self {
            think_ns: network.think_ns,
            locks: network.stations.iter().map(|station| station.handoff).collect(),
            visits: network.stations.iter().enumerate().map(visit).collect(),
        }
    }
}

/// Threads that do the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// How many.
    pub threads: usize,
    /// What each computes before it takes a lock.
    pub think: Duration,
    /// How they take locks.
    pub visits: Vec<Visit>,
}

/// Who gets a lock that is released while others wait.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Passing {
    /// The first waiter, after what handing over costs.
    InOrder,
    /// The first thread to come: the first waiter is woken and tries again after this long, as with glibc's mutex.
    FirstToCome {
        /// From the release until the woken thread tries.
        wake_ns: f64,
    },
}

/// What a simulation saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Cycles a second.
    pub per_second: f64,
    /// Mean wait of one acquisition, of all locks together.
    pub mean_wait_ns: f64,
}

/// Lets this many threads on this many CPUs take this many steps in all, after a tenth as many that are not counted. Who computes runs in
/// turn; who holds a lock takes the CPU of one who computes; who waits needs none.
pub fn run(scene: &Scene, threads: usize, cpus: usize, steps: u64, random: &mut Random) -> Observed {
    let per_cycle: f64 = scene.visits.iter().map(|visit| visit.per_cycle).sum();
    if threads == 0 || per_cycle <= 0.0 {
        let per_second = if scene.think_ns > 0.0 { number(threads) / scene.think_ns * SECOND_NS } else { 0.0 };
        return Observed { per_second, mean_wait_ns: 0.0 };
    }
    let think = Duration::Exponential(scene.think_ns / per_cycle);
    let group = Group { threads, think, visits: scene.visits.clone() };
    let mut world = World::new(&scene.locks, std::slice::from_ref(&group), Passing::InOrder, cpus.max(1), random);
    world.advance(steps / 10);
    let (begin_ns, waited_ns, done) = (world.now_ns, world.waited_ns, world.done());
    world.advance(steps);
    let taken = (world.done() - done) as f64;
    Observed {
        // Where nothing takes any time, no time has passed.
        per_second: taken / per_cycle / (world.now_ns - begin_ns).max(SHORTEST_NS) * SECOND_NS,
        mean_wait_ns: (world.waited_ns - waited_ns) / taken.max(1.0),
    }
}

/// What each visit of each group does.
pub fn run_groups(
    locks: &[Handoff],
    groups: &[Group],
    passing: Passing,
    cpus: usize,
    steps: u64,
    random: &mut Random,
) -> Vec<Vec<Observed>> {
    let has_work = groups.iter().any(|group| group.threads > 0 && group.per_cycle() > 0.0);
    if !has_work {
        let nothing = Observed { per_second: 0.0, mean_wait_ns: 0.0 };
        return groups.iter().map(|group| vec![nothing; group.visits.len()]).collect();
    }
    let mut world = World::new(locks, groups, passing, cpus.max(1), random);
    world.advance(steps / 10);
    let (begin_ns, before) = (world.now_ns, world.done_of.clone());
    world.advance(steps);
    let passed_ns = (world.now_ns - begin_ns).max(SHORTEST_NS);
    let observed = |(done, before): (&Done, &Done)| {
        let count = (done.count - before.count) as f64;
        let mean_wait_ns = (done.waited_ns - before.waited_ns) / count.max(1.0);
        Observed { per_second: count / passed_ns * SECOND_NS, mean_wait_ns }
    };
    let of_group = |(done, before): (&Vec<Done>, &Vec<Done>)| done.iter().zip(before).map(observed).collect();
    world.done_of.iter().zip(&before).map(of_group).collect()
}

/// What was done of a visit.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    count: u64,
    waited_ns: f64,
}

impl Group {
    fn per_cycle(&self) -> f64 {
        self.visits.iter().map(|visit| visit.per_cycle).sum()
    }
}

/// What happens next to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// It has computed and asks for a lock.
    Ask,
    /// It has held the lock long enough.
    Release,
    /// It slept for a lock that was released, and needs a CPU to try again.
    Wake,
}

struct Lock {
    handoff: Handoff,
    holders: usize,
    exclusive: bool,
    waiting: VecDeque<(usize, f64)>,
}

struct World<'a> {
    groups: &'a [Group],
    passing: Passing,
    random: &'a mut Random,
    locks: Vec<Lock>,
    /// Which group each thread belongs to.
    group_of: Vec<usize>,
    /// Which visit of its group each thread makes.
    visit_of: Vec<usize>,
    /// Since when it waits.
    waits_since: Vec<Option<f64>>,
    /// By time in picoseconds (whole numbers have a total order), then by thread. The last number tells an event that still is to
    /// happen from one of a thread that has lost its CPU since.
    events: BinaryHeap<Reverse<(u128, usize, Event, u32)>>,
    /// CPUs that nobody runs on.
    idle: usize,
    /// Who computes on a CPU, and until when.
    computing: Vec<(usize, f64)>,
    /// Who could run if there were a CPU, and for how long.
    runnable: VecDeque<(usize, f64, Event)>,
    /// How often each thread lost its CPU.
    preempted: Vec<u32>,
    now_ns: f64,
    waited_ns: f64,
    /// Acquisitions of each visit of each group.
    done_of: Vec<Vec<Done>>,
}

impl<'a> World<'a> {
    fn new(locks: &[Handoff], groups: &'a [Group], passing: Passing, cpus: usize, random: &'a mut Random) -> Self {
        let lock =
            |handoff: &Handoff| Lock { handoff: *handoff, holders: 0, exclusive: false, waiting: VecDeque::new() };
        let of_group = |(at, group): (usize, &Group)| {
            // Threads that take no lock do nothing that counts.
            std::iter::repeat_n(at, if group.per_cycle() > 0.0 { group.threads } else { 0 })
        };
        let group_of: Vec<usize> = groups.iter().enumerate().flat_map(of_group).collect();
        let threads = group_of.len();
        let mut world = Self {
            groups,
            passing,
            random,
            locks: locks.iter().map(lock).collect(),
            group_of,
            visit_of: vec![0; threads],
            waits_since: vec![None; threads],
            events: BinaryHeap::new(),
            idle: cpus,
            computing: Vec::new(),
            runnable: VecDeque::new(),
            preempted: vec![0; threads],
            now_ns: 0.0,
            waited_ns: 0.0,
            done_of: groups.iter().map(|group| vec![Done::default(); group.visits.len()]).collect(),
        };
        (0..threads).for_each(|thread| world.think(thread));
        world
    }

    fn done(&self) -> u64 {
        self.done_of.iter().flatten().map(|done| done.count).sum()
    }

    fn visit(&self, thread: usize) -> &'a Visit {
        &self.groups[self.group_of[thread]].visits[self.visit_of[thread]]
    }

    fn advance(&mut self, steps: u64) {
        for _ in 0..steps {
            if !self.advance_to_release() {
                return;
            }
        }
    }

    /// Until a lock is released. Whether one was: nothing more happens where all wait.
    fn advance_to_release(&mut self) -> bool {
        loop {
            let Some(Reverse((when, thread, event, preempted))) = self.events.pop() else { return false };
            if preempted != self.preempted[thread] {
                continue;
            }
            self.now_ns = when as f64 / PICOSECONDS;
            if event == Event::Wake {
                self.schedule(0.0, thread, event);
                continue;
            }
            self.idle += 1;
            self.computing.retain(|(other, _)| *other != thread);
            match event {
                Event::Ask => self.ask(thread),
                Event::Release => self.release(thread),
                Event::Wake => {}
            }
            while self.idle > 0
                && let Some((next, left_ns, event)) = self.runnable.pop_front()
            {
                self.start(next, left_ns, event);
            }
            if event == Event::Release {
                return true;
            }
        }
    }

    /// Gives the thread a CPU that is idle.
    fn start(&mut self, thread: usize, left_ns: f64, event: Event) {
        self.idle -= 1;
        if event == Event::Ask {
            self.computing.push((thread, self.now_ns + left_ns));
        }
        let when = (self.now_ns + left_ns) * PICOSECONDS;
        // Simulated times are positive and far below the limit.
        self.events.push(Reverse((when as u128, thread, event, self.preempted[thread])));
    }

    fn schedule(&mut self, after_ns: f64, thread: usize, event: Event) {
        // A thread that is woken takes the CPU of one that computes, and asks.
        let (is_woken, event) = (event == Event::Wake, if event == Event::Wake { Event::Ask } else { event });
        if self.idle > 0 {
            return self.start(thread, after_ns, event);
        }
        match (is_woken || event == Event::Release, self.computing.pop()) {
            (true, Some((loser, until_ns))) => {
                self.preempted[loser] += 1;
                self.runnable.push_front((loser, until_ns - self.now_ns, Event::Ask));
                self.idle += 1;
                self.start(thread, after_ns, event);
            }
            (true, None) => self.runnable.push_front((thread, after_ns, event)),
            (false, computing) => {
                self.computing.extend(computing);
                self.runnable.push_back((thread, after_ns, event));
            }
        }
    }

    fn think(&mut self, thread: usize) {
        let group = &self.groups[self.group_of[thread]];
        self.visit_of[thread] = self.draw_visit(group);
        let think_ns = group.think.draw_ns(self.random);
        self.schedule(think_ns, thread, Event::Ask);
    }

    fn draw_visit(&mut self, group: &Group) -> usize {
        let mut left = self.random.unit() * group.per_cycle();
        for (at, visit) in group.visits.iter().enumerate() {
            left -= visit.per_cycle;
            if left <= 0.0 {
                return at;
            }
        }
        group.visits.len() - 1
    }

    fn ask(&mut self, thread: usize) {
        let visit = self.visit(thread);
        let lock = &mut self.locks[visit.lock];
        // A thread that was woken does not queue behind those that still sleep.
        let comes_first = self.passing != Passing::InOrder || lock.waiting.is_empty();
        let free = lock.holders == 0 || visit.shared && !lock.exclusive && comes_first;
        let since_ns = *self.waits_since[thread].get_or_insert(self.now_ns);
        if free {
            self.grant(thread, 0.0);
        } else {
            lock.waiting.push_back((thread, since_ns));
        }
    }

    fn grant(&mut self, thread: usize, handoff_ns: f64) {
        let visit = self.visit(thread);
        let lock = &mut self.locks[visit.lock];
        lock.holders += 1;
        lock.exclusive = !visit.shared;
        if let Some(since_ns) = self.waits_since[thread].take() {
            let waited_ns = self.now_ns + handoff_ns - since_ns;
            self.waited_ns += waited_ns;
            self.done_of[self.group_of[thread]][self.visit_of[thread]].waited_ns += waited_ns;
        }
        let hold_ns = visit.hold.draw_ns(self.random);
        self.schedule(handoff_ns + hold_ns, thread, Event::Release);
    }

    fn release(&mut self, thread: usize) {
        let at = self.visit(thread).lock;
        self.locks[at].holders -= 1;
        self.done_of[self.group_of[thread]][self.visit_of[thread]].count += 1;
        if self.locks[at].holders == 0 {
            match self.passing {
                Passing::InOrder => self.pass_on(at),
                Passing::FirstToCome { wake_ns } => self.wake_first(at, wake_ns),
            }
        }
        self.think(thread);
    }

    /// Gives the lock to the first waiter, or to all readers that are first.
    fn pass_on(&mut self, at: usize) {
        let handoff_ns = self.locks[at].handoff.cost_ns(1 + self.locks[at].waiting.len());
        let mut first_shared = None;
        while let Some((next, _)) = self.locks[at].waiting.front().copied() {
            let shared = self.visit(next).shared;
            if first_shared.is_some_and(|first: bool| !first || !shared) {
                break;
            }
            first_shared = Some(shared);
            self.locks[at].waiting.pop_front();
            self.grant(next, handoff_ns);
        }
    }

    /// Wakes the first waiter, which then tries again.
    fn wake_first(&mut self, at: usize, wake_ns: f64) {
        if let Some((next, _)) = self.locks[at].waiting.pop_front() {
            let when = (self.now_ns + wake_ns) * PICOSECONDS;
            self.events.push(Reverse((when as u128, next, Event::Wake, self.preempted[next])));
        }
    }
}

const PICOSECONDS: f64 = 1e3;

/// The resolution of simulated time.
const SHORTEST_NS: f64 = 1.0 / PICOSECONDS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convolution;
    use crate::network::Station;
    use crate::processors::{self, Waiters};

    const STEPS: u64 = 300_000;

    fn network(handoff: Handoff) -> Network {
        let station = |visits, hold_ns| Station { name: "lock".into(), visits, hold_ns, handoff };
        Network { think_ns: 2_000.0, stations: vec![station(1.0, 150.0), station(2.0, 40.0)] }
    }

    /// Under the assumptions of the exact solution the two must agree, with and without a price for handing over.
    #[test]
    fn the_simulation_and_the_exact_solution_agree_on_exponential_holds() {
        for handoff in [Handoff::default(), Handoff { base_ns: 100.0, per_waiter_ns: 10.0 }] {
            let network = network(handoff);
            for threads in [1, 2, 8, 32] {
                let exact = convolution::solve(&network, threads).per_second;
                let simulated = run(&Scene::of(&network), threads, threads, STEPS, &mut Random::new(5)).per_second;
                // The one price that is charged in another place: a handoff that the simulation charges when a lock is
                // passed on, the solution for as long as others are there.
                let allowed = if handoff == Handoff::default() { 0.01 } else { 0.08 };
                let error = (simulated / exact - 1.0).abs();
                assert!(
                    error < allowed,
                    "{threads} threads, {handoff:?}: exact {exact:.0}/s, simulated {simulated:.0}/s"
                );
            }
        }
    }

    /// Makes sure of the same where threads outnumber CPUs: another derivation, by events instead of by states.
    #[test]
    fn the_simulation_and_the_chain_agree_on_few_cpus() {
        for (threads, cpus) in [(2, 2), (4, 2), (8, 2), (32, 8)] {
            for base_ns in [0.0, 100.0] {
                let mut network = network(Handoff { base_ns, per_waiter_ns: 0.0 });
                network.stations.truncate(1);
                let chain = processors::per_second(&network, 0, threads, cpus, Waiters::Yield);
                let simulated = run(&Scene::of(&network), threads, cpus, STEPS, &mut Random::new(5)).per_second;
                let allowed = if base_ns > 0.0 { 0.08 } else { 0.01 };
                let error = (simulated / chain - 1.0).abs();
                assert!(error < allowed, "{threads} on {cpus}, {base_ns} ns: {chain:.0}/s, simulated {simulated:.0}/s");
            }
        }
    }

    #[test]
    fn constant_holds_wait_less_than_exponential_ones() {
        let mut scene =
            Scene::of(&Network { think_ns: 500.0, stations: vec![network(Handoff::default()).stations.remove(0)] });
        let exponential = run(&scene, 4, 4, STEPS, &mut Random::new(5));
        scene.visits[0].hold = Duration::Constant(150.0);
        let constant = run(&scene, 4, 4, STEPS, &mut Random::new(5));
        assert!(constant.mean_wait_ns < exponential.mean_wait_ns * 0.9);
        assert!(constant.per_second > exponential.per_second);
    }

    #[test]
    fn a_histogram_is_drawn_from_by_weight() {
        let holds = Duration::Histogram(vec![(10.0, 3), (100.0, 1)]);
        let mut random = Random::new(9);
        let mean = (0..40_000).map(|_| holds.draw_ns(&mut random)).sum::<f64>() / 40_000.0;
        assert!((mean - 32.5).abs() < 1.0, "{mean}");
    }

    #[test]
    fn readers_hold_together_and_writers_alone() {
        let visit = |shared| Visit { lock: 0, shared, per_cycle: 1.0, hold: Duration::Constant(1_000.0) };
        let scene = |shared| Scene { think_ns: 1.0, locks: vec![Handoff::default()], visits: vec![visit(shared)] };
        let per_second = |shared| run(&scene(shared), 8, 8, STEPS, &mut Random::new(3)).per_second;
        assert!((per_second(false) / 1e6 - 1.0).abs() < 0.01, "writers: {}", per_second(false));
        assert!((per_second(true) / 8e6 - 1.0).abs() < 0.01, "readers: {}", per_second(true));
    }

    #[test]
    fn nobody_waits_where_there_are_no_locks() {
        let scene = Scene { think_ns: 1_000.0, locks: vec![], visits: vec![] };
        assert!((run(&scene, 3, 3, STEPS, &mut Random::new(1)).per_second - 3e6).abs() < 1e-3);
    }
}
