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

/// What a simulation saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Observed {
    /// Cycles a second.
    pub per_second: f64,
    /// Mean wait of one acquisition, of all locks together.
    pub mean_wait_ns: f64,
}

/// Lets so many threads on so many CPUs take so many steps in all, after a tenth as many that are not counted. Who computes runs in
/// turn; who holds a lock takes the CPU of one who computes; who waits needs none.
pub fn run(scene: &Scene, threads: usize, cpus: usize, steps: u64, random: &mut Random) -> Observed {
    let per_cycle: f64 = scene.visits.iter().map(|visit| visit.per_cycle).sum();
    if threads == 0 || per_cycle <= 0.0 {
        let per_second = if scene.think_ns > 0.0 { number(threads) / scene.think_ns * SECOND_NS } else { 0.0 };
        return Observed { per_second, mean_wait_ns: 0.0 };
    }
    let mut world = World::new(scene, per_cycle, threads, cpus.max(1), random);
    world.advance(steps / 10);
    let (begin_ns, waited_ns, done) = (world.now_ns, world.waited_ns, world.done);
    world.advance(steps);
    let taken = (world.done - done) as f64;
    Observed {
        // Where nothing takes any time, no time has passed.
        per_second: taken / per_cycle / (world.now_ns - begin_ns).max(SHORTEST_NS) * SECOND_NS,
        mean_wait_ns: (world.waited_ns - waited_ns) / taken.max(1.0),
    }
}

/// What happens next to a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// It has computed and asks for a lock.
    Ask,
    /// It has held the lock long enough.
    Release,
}

struct Lock {
    handoff: Handoff,
    holders: usize,
    exclusive: bool,
    waiting: VecDeque<(usize, f64)>,
}

struct World<'a> {
    scene: &'a Scene,
    think: Duration,
    per_cycle: f64,
    random: &'a mut Random,
    locks: Vec<Lock>,
    /// Which visit each thread makes.
    visit_of: Vec<usize>,
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
    done: u64,
}

impl<'a> World<'a> {
    fn new(scene: &'a Scene, per_cycle: f64, threads: usize, cpus: usize, random: &'a mut Random) -> Self {
        let lock =
            |handoff: &Handoff| Lock { handoff: *handoff, holders: 0, exclusive: false, waiting: VecDeque::new() };
        let mut world = Self {
            scene,
            think: Duration::Exponential(scene.think_ns / per_cycle),
            per_cycle,
            random,
            locks: scene.locks.iter().map(lock).collect(),
            visit_of: vec![0; threads],
            events: BinaryHeap::new(),
            idle: cpus,
            computing: Vec::new(),
            runnable: VecDeque::new(),
            preempted: vec![0; threads],
            now_ns: 0.0,
            waited_ns: 0.0,
            done: 0,
        };
        (0..threads).for_each(|thread| world.think(thread));
        world
    }

    fn advance(&mut self, steps: u64) {
        let until = self.done + steps;
        while self.done < until {
            let Some(Reverse((when, thread, event, preempted))) = self.events.pop() else { return };
            if preempted != self.preempted[thread] {
                continue;
            }
            self.now_ns = when as f64 / PICOSECONDS;
            self.idle += 1;
            self.computing.retain(|(other, _)| *other != thread);
            match event {
                Event::Ask => self.ask(thread),
                Event::Release => self.release(thread),
            }
            while self.idle > 0
                && let Some((next, left_ns, event)) = self.runnable.pop_front()
            {
                self.start(next, left_ns, event);
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
        if self.idle > 0 {
            return self.start(thread, after_ns, event);
        }
        match (event, self.computing.pop()) {
            (Event::Release, Some((loser, until_ns))) => {
                self.preempted[loser] += 1;
                self.runnable.push_front((loser, until_ns - self.now_ns, Event::Ask));
                self.idle += 1;
                self.start(thread, after_ns, event);
            }
            (Event::Release, None) => self.runnable.push_front((thread, after_ns, event)),
            (Event::Ask, computing) => {
                self.computing.extend(computing);
                self.runnable.push_back((thread, after_ns, event));
            }
        }
    }

    fn think(&mut self, thread: usize) {
        self.visit_of[thread] = self.draw_visit();
        let think_ns = self.think.draw_ns(self.random);
        self.schedule(think_ns, thread, Event::Ask);
    }

    fn draw_visit(&mut self) -> usize {
        let mut left = self.random.unit() * self.per_cycle;
        for (at, visit) in self.scene.visits.iter().enumerate() {
            left -= visit.per_cycle;
            if left <= 0.0 {
                return at;
            }
        }
        self.scene.visits.len() - 1
    }

    fn ask(&mut self, thread: usize) {
        let visit = &self.scene.visits[self.visit_of[thread]];
        let lock = &mut self.locks[visit.lock];
        let free = lock.holders == 0 || visit.shared && !lock.exclusive && lock.waiting.is_empty();
        if free {
            self.grant(thread, 0.0);
        } else {
            lock.waiting.push_back((thread, self.now_ns));
        }
    }

    fn grant(&mut self, thread: usize, handoff_ns: f64) {
        let visit = &self.scene.visits[self.visit_of[thread]];
        let lock = &mut self.locks[visit.lock];
        lock.holders += 1;
        lock.exclusive = !visit.shared;
        let hold_ns = visit.hold.draw_ns(self.random);
        self.schedule(handoff_ns + hold_ns, thread, Event::Release);
    }

    fn release(&mut self, thread: usize) {
        let visits = &self.scene.visits;
        let at = visits[self.visit_of[thread]].lock;
        self.locks[at].holders -= 1;
        self.done += 1;
        if self.locks[at].holders == 0 {
            let handoff_ns = self.locks[at].handoff.cost_ns(1 + self.locks[at].waiting.len());
            let mut first_shared = None;
            while let Some((next, since_ns)) = self.locks[at].waiting.front().copied() {
                let shared = visits[self.visit_of[next]].shared;
                if first_shared.is_some_and(|first: bool| !first || !shared) {
                    break;
                }
                first_shared = Some(shared);
                self.locks[at].waiting.pop_front();
                self.waited_ns += self.now_ns + handoff_ns - since_ns;
                self.grant(next, handoff_ns);
            }
        }
        self.think(thread);
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
