//! The same locks, step by step: a discrete-event simulation of what a mutex's word, its waiters and the kernel's CPUs do.
//!
//! A queueing network gives handing over one price. A lock that the one that comes first may take has none: a woken thread arrives
//! tens of microseconds after the lock was free, and by then the thread that woke it has taken it again. What that costs
//! follows from who is where when, so it is played through: glibc's mutex, whose waiters sleep at once (`sleeping.rs`), and
//! lockmeter's, whose waiters spin in a queue before they sleep (`spinning.rs`), on CPUs that threads take turns on (`cpus.rs`).
//! Each thread stays on its CPU, as those do that are compared with it: where the kernel moves threads is not predicted.
//!
//! It is given what one thread needs, and what single steps cost on the machine. Nothing is fitted to a contended lock.

mod cpus;
mod sleeping;
mod spinning;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use lockmeter_predict::network::SECOND_NS;
use lockmeter_statistics::Random;
use serde::Serialize;

/// What a thread does again and again: it computes for a while and takes the lock, this many times.
#[derive(Debug, Clone, PartialEq)]
pub struct Cycle {
    /// Each acquisition: what is computed before it, and how long it holds the lock with its data at hand.
    pub acquisitions: Vec<Acquisition>,
}

/// One acquisition of a cycle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Acquisition {
    /// Computed before it.
    pub think_ns: f64,
    /// The lock is held for so long.
    pub hold_ns: f64,
}

/// What single steps cost here.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Costs {
    /// An atomic instruction on a word that another CPU wrote last.
    pub line_ns: f64,
    /// How much longer a hold takes that finds its data in another CPU's cache.
    pub moved_ns: f64,
    /// One pause of a spinning thread.
    pub pause_ns: f64,
    /// A futex wait that is refused because the word has changed.
    pub refused_ns: f64,
    /// A futex wake that finds nobody.
    pub nobody_ns: f64,
    /// From one thread that goes to sleep to the next on the same CPU.
    pub switch_ns: f64,
    /// How long a thread runs while others want its CPU.
    pub slice_ns: f64,
    /// Threads that were woken on a CPU that had nothing else to do, [shortest sleep first](shortest_sleep_first).
    pub wakes: Vec<Wake>,
    /// Threads that were woken from another CPU while their own had another thread.
    pub busy_wakes: Vec<Wake>,
}

/// A sleeper that was woken.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Wake {
    /// From the sleeper's call to the waker's.
    pub asleep_ns: f64,
    /// The waker's call.
    pub waker_ns: f64,
    /// From the waker's call to the sleeper's return.
    pub sleeper_ns: f64,
}

/// As [`Costs::wakes`] are looked up.
pub fn shortest_sleep_first(mut wakes: Vec<Wake>) -> Vec<Wake> {
    wakes.sort_by(|one, other| one.asleep_ns.total_cmp(&other.asleep_ns));
    wakes
}

/// Which lock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Lock {
    /// glibc's `pthread_mutex`: its waiters sleep at once, and the one that comes first takes it.
    SleepsAtOnce,
    /// lockmeter's `Mutex`: its waiters watch the lock, then spin in a queue, the first of them on the lock, and sleep when that takes long.
    SpinsFirst(SpinTimes),
}

/// How a waiter spins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpinTimes {
    /// From the first look at the clock until it gives up.
    pub spin_ns: f64,
    /// How long it watches the lock before it queues.
    pub watching_ns: f64,
    /// From the first look at the lock until it looks at the clock, and at whether the owner runs.
    pub before_looking_ns: f64,
    /// Between the first look in the queue and the second; each gap is twice the one before.
    pub first_backoff_ns: f64,
    /// The longest gap.
    pub longest_backoff_ns: f64,
}

/// What came of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Acquisitions a second.
    pub per_second: f64,
    /// Share of the acquisitions that came after one of another CPU.
    pub moved: f64,
    /// How often a thread slept for each acquisition.
    pub slept: f64,
}

/// What is simulated.
#[derive(Debug, Clone, Copy)]
pub struct Simulation<'a> {
    /// The lock.
    pub lock: Lock,
    /// What every thread does.
    pub cycle: &'a Cycle,
    /// What its steps cost.
    pub costs: &'a Costs,
    /// Threads.
    pub threads: usize,
    /// CPUs that they share.
    pub cpus: usize,
}

/// Plays this many acquisitions, after a tenth as many that do not count.
pub fn run(simulation: Simulation<'_>, acquisitions: u64, random: &mut Random) -> Outcome {
    if simulation.threads == 0 || simulation.cycle.acquisitions.is_empty() {
        return Outcome { per_second: 0.0, moved: 0.0, slept: 0.0 };
    }
    let mut world = World::new(simulation, random);
    world.advance(acquisitions / 10);
    let (begin_ns, before) = (world.now_ns, world.counts);
    world.advance(acquisitions);
    let done = (world.counts.done - before.done).max(1) as f64;
    Outcome {
        per_second: done / (world.now_ns - begin_ns).max(1.0) * SECOND_NS,
        moved: (world.counts.moved - before.moved) as f64 / done,
        slept: (world.counts.slept - before.slept) as f64 / done,
    }
}

/// What a thread does when what it is at now is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// It asks for the lock.
    Ask,
    /// It releases the lock.
    Release,
    /// It is back from releasing, and from waking another.
    Released,
    /// The kernel compares the lock's word before it lets the thread sleep.
    Compare,
    /// Back in user space without having slept.
    Refused,
    /// The CPU is given up.
    Sleep,
    /// Back in user space, woken.
    Woken,
    /// A spinner looks at the lock before it queues.
    Watch,
    /// It queues.
    Queue,
    /// The first of the spinners looks at the lock.
    Look,
    /// A spinner behind the first has waited too long.
    Impatient,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    done: u64,
    moved: u64,
    slept: u64,
}

/// A spinner's patience.
#[derive(Debug, Clone, Copy, Default)]
struct Patience {
    /// Pauses until the next look.
    backoff: f64,
    /// Spent in pauses.
    paused_ns: f64,
    /// Whether it has looked since it queued.
    has_looked: bool,
    /// Whether the last look found the line where the one before had left it.
    line_stayed: bool,
    /// When it ends; 0 before the first look at the clock.
    until_ns: f64,
}

#[derive(Debug)]
struct Thread {
    cpu: usize,
    /// Its place in the cycle.
    at: usize,
    step: Step,
    /// When the step comes, while the thread is on its CPU; what is left until then while it is not.
    until_ns: f64,
    /// Tells an event that is still to come from one that was called off.
    turn: u32,
    /// When it called to sleep last.
    asleep_at_ns: f64,
    patience: Patience,
    /// Has to see to it that other sleepers are woken one day.
    on_duty: bool,
}

#[derive(Debug, Default)]
struct Cpu {
    current: Option<usize>,
    /// Who could run, in turn.
    queue: VecDeque<usize>,
    picked_at_ns: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Step { thread: usize, turn: u32 },
    Tick { cpu: usize },
}

/// The lock, whichever it is.
#[derive(Debug, Default)]
struct Word {
    holder: Option<usize>,
    /// Somebody may sleep: releasing wakes one. glibc's 2, lockmeter's `WAKE`.
    wake: bool,
    /// Threads that sleep in the kernel, in the order in which they came.
    asleep: VecDeque<usize>,
    /// Threads between deciding to sleep and looking around again.
    sleepers: usize,
    /// Threads that spin, the first first.
    spinners: VecDeque<usize>,
    /// The CPU that wrote the word last, and the data that the lock protects.
    written_by: usize,
    data_at: usize,
}

struct World<'a> {
    simulation: Simulation<'a>,
    random: &'a mut Random,
    now_ns: f64,
    /// By time in picoseconds (whole numbers have a total order), then in the order in which they were made.
    events: BinaryHeap<Reverse<(u128, u64, Event)>>,
    made: u64,
    threads: Vec<Thread>,
    cpus: Vec<Cpu>,
    word: Word,
    /// Whose step it is: it cannot lose its CPU in the middle of that.
    acting: Option<usize>,
    counts: Counts,
}

impl<'a> World<'a> {
    fn new(simulation: Simulation<'a>, random: &'a mut Random) -> Self {
        let cpus = simulation.cpus.max(1);
        let thread = |number: usize| Thread {
            cpu: number % cpus,
            at: 0,
            step: Step::Ask,
            until_ns: 0.0,
            turn: 0,
            asleep_at_ns: 0.0,
            patience: Patience::default(),
            on_duty: false,
        };
        let mut world = Self {
            simulation,
            random,
            now_ns: 0.0,
            events: BinaryHeap::new(),
            made: 0,
            threads: (0..simulation.threads).map(thread).collect(),
            cpus: (0..cpus).map(|_| Cpu::default()).collect(),
            word: Word::default(),
            acting: None,
            counts: Counts::default(),
        };
        for number in 0..simulation.threads {
            world.threads[number].at = world.random.below(simulation.cycle.acquisitions.len());
            world.make_ready(number, 0.0, Step::Ask);
        }
        for cpu in 0..cpus {
            let offset_ns = world.random.unit() * simulation.costs.slice_ns;
            world.push(offset_ns, Event::Tick { cpu });
        }
        world
    }

    fn advance(&mut self, acquisitions: u64) {
        let until = self.counts.done + acquisitions;
        while self.counts.done < until {
            let Some(Reverse((when, _, event))) = self.events.pop() else { return };
            self.now_ns = when as f64 / PICOSECONDS;
            match event {
                Event::Tick { cpu } => self.tick(cpu),
                Event::Step { thread, turn } if self.threads[thread].turn == turn => {
                    self.acting = Some(thread);
                    self.step(thread);
                    self.acting = None;
                }
                // Called off.
                Event::Step { .. } => {}
            }
        }
    }

    fn step(&mut self, thread: usize) {
        match self.threads[thread].step {
            Step::Release => self.counts.done += 1,
            Step::Released => return self.think(thread),
            Step::Sleep => return self.leave_cpu(thread),
            _ => {}
        }
        match self.simulation.lock {
            Lock::SleepsAtOnce => self.step_of_sleeping(thread),
            Lock::SpinsFirst(times) => self.step_of_spinning(thread, times),
        }
    }

    /// Computes, and then asks for the lock.
    fn think(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.at = (state.at + 1) % self.simulation.cycle.acquisitions.len();
        let think_ns = self.simulation.cycle.acquisitions[state.at].think_ns;
        let think_ns = self.about(think_ns);
        self.occupy(thread, think_ns, Step::Ask);
    }

    /// Takes the lock, after what taking cost.
    fn hold(&mut self, thread: usize, after_ns: f64) {
        let Thread { cpu, at, .. } = self.threads[thread];
        self.word.holder = Some(thread);
        let mut hold_ns = self.about(self.simulation.cycle.acquisitions[at].hold_ns);
        if self.word.data_at != cpu {
            self.word.data_at = cpu;
            self.counts.moved += 1;
            hold_ns += self.simulation.costs.moved_ns;
        }
        self.occupy(thread, after_ns + hold_ns, Step::Release);
    }

    /// What an atomic instruction on the word costs this thread now.
    fn write_word(&mut self, thread: usize) -> f64 {
        let cpu = self.threads[thread].cpu;
        let own = std::mem::replace(&mut self.word.written_by, cpu) == cpu;
        if own { 0.0 } else { self.simulation.costs.line_ns }
    }

    /// A tenth more or less: threads that take exactly as long each time fall into step with each other.
    fn about(&mut self, ns: f64) -> f64 {
        const SPREAD: f64 = 0.2;
        ns * (1.0 + SPREAD * (self.random.unit() - 0.5))
    }

    /// Asks the kernel to sleep. A wait that is refused spends half of its time before the kernel compares.
    fn call_to_sleep(&mut self, thread: usize, after_ns: f64) {
        self.threads[thread].asleep_at_ns = self.now_ns + after_ns;
        self.occupy(thread, after_ns + self.simulation.costs.refused_ns / 2.0, Step::Compare);
    }

    /// The kernel has compared the word, and the thread may sleep or not.
    fn compared(&mut self, thread: usize, may_sleep: bool) {
        if may_sleep {
            self.counts.slept += 1;
            self.word.asleep.push_back(thread);
            // Until then its CPU is not free for others.
            self.occupy(thread, self.simulation.costs.switch_ns / 2.0, Step::Sleep);
        } else {
            self.occupy(thread, self.simulation.costs.refused_ns / 2.0, Step::Refused);
        }
    }

    /// Wakes the one who has slept longest: what the call takes.
    fn wake_one(&mut self) -> f64 {
        let Some(sleeper) = self.word.asleep.pop_front() else { return self.simulation.costs.nobody_ns };
        let home = self.threads[sleeper].cpu;
        if let Some(current) = self.cpus[home].current.filter(|current| *current != sleeper) {
            return self.wake_beside(sleeper, current);
        }
        let asleep_ns = self.now_ns - self.threads[sleeper].asleep_at_ns;
        let Wake { waker_ns, sleeper_ns, .. } = self.draw_wake(asleep_ns);
        self.cpus[home].current = Some(sleeper);
        self.cpus[home].picked_at_ns = self.now_ns;
        self.occupy(sleeper, sleeper_ns, Step::Woken);
        waker_ns
    }

    /// Its CPU has another thread.
    fn wake_beside(&mut self, sleeper: usize, current: usize) -> f64 {
        let alike = &self.simulation.costs.busy_wakes;
        if self.acting == Some(current) || alike.is_empty() {
            self.make_ready(sleeper, 0.0, Step::Woken);
            // Of a switch between two threads that wake each other most is the waking.
            return self.simulation.costs.switch_ns;
        }
        let Wake { waker_ns, sleeper_ns, .. } = alike[self.random.below(alike.len())];
        // One that is on its way to sleep makes room by itself.
        if sleeper_ns < self.simulation.costs.slice_ns * AT_ONCE && self.threads[current].step != Step::Sleep {
            self.run_instead(sleeper, current);
        } else {
            self.make_ready(sleeper, 0.0, Step::Woken);
        }
        waker_ns
    }

    /// One of those that had slept about as long.
    fn draw_wake(&mut self, asleep_ns: f64) -> Wake {
        const ALIKE: usize = 50;
        let wakes = &self.simulation.costs.wakes;
        let after = wakes.partition_point(|wake| wake.asleep_ns < asleep_ns);
        let first = after.saturating_sub(ALIKE / 2).min(wakes.len().saturating_sub(ALIKE));
        let alike = wakes.len().min(ALIKE);
        if alike == 0 {
            return Wake {
                asleep_ns,
                waker_ns: self.simulation.costs.nobody_ns,
                sleeper_ns: self.simulation.costs.switch_ns,
            };
        }
        wakes[first + self.random.below(alike)]
    }
}

const PICOSECONDS: f64 = 1e3;
/// A thread that was back within so much of a slice took the place of the one that ran.
const AT_ONCE: f64 = 0.1;

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: SpinTimes = SpinTimes {
        spin_ns: 20_000.0,
        watching_ns: 1_500.0,
        before_looking_ns: 300.0,
        first_backoff_ns: 60.0,
        longest_backoff_ns: 1_000.0,
    };
    const LOCKS: [Lock; 2] = [Lock::SleepsAtOnce, Lock::SpinsFirst(TIMES)];

    fn cycle(think_ns: f64, hold_ns: f64) -> Cycle {
        Cycle { acquisitions: vec![Acquisition { think_ns, hold_ns }] }
    }

    /// About what a virtual machine has: waking takes tens of microseconds.
    fn costs() -> Costs {
        let wake = |asleep_ns: u32| Wake { asleep_ns: f64::from(asleep_ns), waker_ns: 12_000.0, sleeper_ns: 21_000.0 };
        Costs {
            line_ns: 30.0,
            moved_ns: 400.0,
            pause_ns: 12.0,
            refused_ns: 200.0,
            nobody_ns: 130.0,
            switch_ns: 1_300.0,
            slice_ns: 4e6,
            wakes: (0..100).map(|number| wake(number * 400)).collect(),
            busy_wakes: vec![Wake { asleep_ns: 3_000.0, waker_ns: 1_300.0, sleeper_ns: 2e6 }],
        }
    }

    fn per_second(lock: Lock, cycle: &Cycle, costs: &Costs, (threads, cpus): (usize, usize)) -> Outcome {
        run(Simulation { lock, cycle, costs, threads, cpus }, 50_000, &mut Random::new(3))
    }

    fn is_near(found: f64, expected: f64, share: f64) {
        assert!((found / expected - 1.0).abs() < share, "{found} instead of {expected}");
    }

    #[test]
    fn one_thread_takes_its_own_time() {
        for lock in LOCKS {
            is_near(per_second(lock, &cycle(900.0, 100.0), &costs(), (1, 2)).per_second, 1e6, 0.01);
        }
    }

    /// Makes sure of it without a lock to speak of: threads beyond the CPUs add nothing.
    #[test]
    fn threads_that_hardly_hold_are_limited_by_the_cpus() {
        for lock in LOCKS {
            is_near(per_second(lock, &cycle(100_000.0, 1.0), &costs(), (8, 2)).per_second, 2e4, 0.05);
        }
    }

    /// Threads that only hold pass the lock to nobody while waking takes longer than holding: the one that runs keeps it.
    #[test]
    fn who_runs_takes_a_sleeping_lock_again_before_the_one_it_woke_is_there() {
        let seen = per_second(Lock::SleepsAtOnce, &cycle(10.0, 1_500.0), &costs(), (2, 2));
        assert!(seen.moved < 0.05 && seen.slept > 0.02, "{seen:?}");
        // 12 µs of waking, 9 alone until the sleeper is there, and half a hold until the release that wakes it again.
        is_near(seen.per_second, 9_750.0 / 1_510.0 / 21.75e-6, 0.1);
    }

    /// Who spins gets the lock as soon as its holder computes, for the price of the lines.
    #[test]
    fn spinners_take_turns_without_sleep() {
        let seen = per_second(LOCKS[1], &cycle(5_000.0, 3_000.0), &costs(), (2, 2));
        assert!(seen.slept < 0.01 && seen.moved > 0.9, "{seen:?}");
        is_near(seen.per_second, 2.0 / 8.4e-6, 0.1);
    }

    /// A thread that was woken by one that lost its CPU for it ran twice and never again.
    #[test]
    fn no_thread_is_lost_however_many_share_the_cpus() {
        for lock in LOCKS {
            for threads in [2, 3, 4, 8, 16] {
                for (think_ns, hold_ns) in [(250.0, 1_500.0), (2_500.0, 1_500.0), (2_500.0, 6_000.0)] {
                    let alone = 1e9 / (think_ns + hold_ns);
                    let seen = per_second(lock, &cycle(think_ns, hold_ns), &costs(), (threads, 2));
                    assert!(seen.per_second > alone * 0.3, "{lock:?}, {threads} threads, {hold_ns} ns: {seen:?}");
                    assert!(seen.per_second < alone * 2.0 && seen.per_second < 1e9 / hold_ns * 1.1, "{seen:?}");
                }
            }
        }
    }

    #[test]
    fn nobody_does_nothing() {
        assert!(per_second(LOCKS[0], &cycle(1.0, 1.0), &costs(), (0, 2)).per_second.abs() < f64::EPSILON);
        let none = Cycle { acquisitions: vec![] };
        assert!(per_second(LOCKS[1], &none, &costs(), (2, 2)).per_second.abs() < f64::EPSILON);
    }
}
