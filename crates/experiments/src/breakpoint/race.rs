//! The designs against each other: threads that set up a task with its breakpoints and take it down again.

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use lock_api::{RawMutex, RawRwLock};
use lockmeter_statistics::{Disturbances, Estimate, Random, ThreadsInStep, cpus, median};
use serde::Serialize;

use super::designs::{Accounting, GlobalMutex, SLOTS, Slots, Task, TaskMutexes, Unaccounted};
use crate::cache_padded::CachePadded;
use crate::{arithmetic, step_costs};

/// The four that are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Design {
    /// One mutex around all accounting.
    Before,
    /// Per-task mutexes, and a lock that tasks only read.
    After,
    /// Breakpoints without accounting.
    Ideal,
    /// No breakpoints.
    Floor,
}

impl Design {
    /// In the order in which they are shown.
    pub const ALL: [Self; 4] = [Self::Before, Self::After, Self::Ideal, Self::Floor];

    /// For a table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Before => "before: global mutex",
            Self::After => "after: per-task mutexes, reader lock",
            Self::Ideal => "ideal: no accounting",
            Self::Floor => "floor: no breakpoints",
        }
    }
}

/// How to race.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Threads at once, point by point.
    pub threads: Vec<usize>,
    /// Breakpoints of each task.
    pub breakpoints: u32,
    /// The share of targets that are CPUs; the others are tasks.
    pub cpu_targets_percent: u32,
    /// How long one run lasts.
    pub slice: Duration,
    /// What a task computes besides its breakpoints.
    pub work: Work,
    /// CPUs of the machine that is accounted for.
    pub cpus: usize,
    /// Runs of each design at each point.
    pub rounds: usize,
    /// Where not left to the kernel: the first thread stays on this CPU, the others on those after it, round and round.
    pub first_cpu: Option<usize>,
    /// How long the threads wait after they were made before they begin.
    pub settling: Duration,
}

/// What was measured with this many threads.
#[derive(Debug, Clone, Serialize)]
pub struct Point {
    /// Threads at once.
    pub threads: usize,
    /// Nanoseconds a task of each design, all threads together, in the order of [`Design::ALL`].
    pub task_ns: Vec<Estimate>,
    /// Before over after: how many times faster.
    pub speed_up: Estimate,
    /// After over ideal, less 1.
    pub from_ideal: Estimate,
}

/// Accounting that broke its own rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Broken {
    /// The design.
    pub design: Design,
    /// How often there were more breakpoints than slots, or one was lost.
    pub violations: u32,
    /// Breakpoints that were still accounted for when all had been given back.
    pub left: u64,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the accounting of `{}` is broken: {} times there were more breakpoints than slots, or one was lost, and {} are left at \
             the end; a lock under it does not exclude as it must",
            self.design.title(),
            self.violations,
            self.left
        )
    }
}

/// Races the designs over a mutex and a reader-writer lock. Slices in which other processes took a CPU are repeated. `step` is
/// told how many runs are left, and stops the race by returning `false`.
pub fn race<M, R>(plan: &Plan, random: &mut Random, mut step: impl FnMut(usize) -> bool) -> Result<Vec<Point>, Broken>
where
    M: RawMutex + Send + Sync,
    R: RawRwLock + Send + Sync,
{
    let mut points = Vec::new();
    let runs = plan.threads.len() * plan.rounds * Design::ALL.len();
    let (mut done, mut disturbances) = (0, Disturbances::default());
    for threads in &plan.threads {
        let mut rounds: Vec<[f64; 4]> = Vec::new();
        for _ in 0..plan.rounds {
            let mut order = [0, 1, 2, 3];
            random.shuffle(&mut order);
            let mut took = [0.0; 4];
            for at in order {
                if !step(runs - done) {
                    points.extend(summarise(*threads, &rounds, random));
                    return Ok(points);
                }
                took[at] = disturbances.avoid_unless_failed(|| run_once::<M, R>(Design::ALL[at], plan, *threads))?;
                done += 1;
            }
            rounds.push(took);
        }
        points.extend(summarise(*threads, &rounds, random));
    }
    Ok(points)
}

fn summarise(threads: usize, rounds: &[[f64; 4]], random: &mut Random) -> Option<Point> {
    let mut estimate = |of: &dyn Fn(&[f64; 4]) -> f64| Estimate::of(&rounds.iter().map(of).collect::<Vec<_>>(), random);
    let task_ns = (0..Design::ALL.len()).map(|at| estimate(&|round| round[at])).collect::<Option<_>>()?;
    let speed_up = estimate(&|[before, after, ..]| before / after)?;
    let from_ideal = estimate(&|[_, after, ideal, _]| after / ideal - 1.0)?;
    Some(Point { threads, task_ns, speed_up, from_ideal })
}

/// One design, once: nanoseconds a task.
pub fn run_once<M, R>(design: Design, plan: &Plan, threads: usize) -> Result<f64, Broken>
where
    M: RawMutex + Send + Sync,
    R: RawRwLock + Send + Sync,
{
    let plan = &Plan { breakpoints: if design == Design::Floor { 0 } else { plan.breakpoints }, ..plan.clone() };
    match design {
        Design::Before => timed(&Slots::<GlobalMutex<M>>::new(plan.cpus), design, plan, threads),
        Design::After => timed(&Slots::<TaskMutexes<M, R>>::new(plan.cpus), design, plan, threads),
        Design::Ideal | Design::Floor => timed(&Unaccounted::<M>::default(), design, plan, threads),
    }
}

fn timed<A: Accounting>(accounting: &A, design: Design, plan: &Plan, threads: usize) -> Result<f64, Broken> {
    let get_ready = |number: usize| {
        if let Some(first) = plan.first_cpu {
            cpus::stay_on(first + number);
        }
    };
    let work = |(), stop: &AtomicBool| {
        let (mut targets, mut percent) = (0_usize, 0);
        while !stop.load(Ordering::Relaxed) {
            percent += plan.cpu_targets_percent;
            if percent >= 100 {
                percent -= 100;
                let cpu = targets % plan.cpus;
                one_target(plan, || accounting.take_on_cpu(cpu), || accounting.give_back_on_cpu(cpu));
            } else {
                let task = Task::default();
                one_target(plan, || accounting.take(&task), || accounting.give_back(&task));
            }
            targets += 1;
        }
        targets as u64
    };
    let done = ThreadsInStep { threads, length: plan.slice, settling: plan.settling }.run(get_ready, work);
    let (violations, left) = (accounting.violations(), accounting.taken());
    if violations > 0 || left > 0 {
        return Err(Broken { design, violations, left });
    }
    Ok(done.until_ended.as_secs_f64() * 1e9 / done.results.iter().sum::<u64>().max(1) as f64)
}

/// Changes of the old accounting where its lock is not contended, by tasks of two threads.
struct Changes<M: RawMutex> {
    accounting: Slots<GlobalMutex<M>>,
    tasks: [Task<M>; 2],
    steps: [CachePadded<AtomicU32>; 2],
    breakpoints: u32,
}

impl<M: RawMutex + Send + Sync> Changes<M> {
    fn new(cpus: usize, breakpoints: u32) -> Self {
        Self {
            accounting: Slots::new(cpus),
            tasks: [Task::default(), Task::default()],
            steps: [const { CachePadded(AtomicU32::new(0)) }; 2],
            breakpoints,
        }
    }

    /// A thread's next one: it takes all its slots, and gives all of them back.
    fn make(&self, thread: usize) {
        let step = self.steps[thread].0.fetch_add(1, Ordering::Relaxed);
        if step % (2 * self.breakpoints) < self.breakpoints {
            self.accounting.take(&self.tasks[thread]);
        } else {
            self.accounting.give_back(&self.tasks[thread]);
        }
    }
}

/// What taking a slot costs, and giving one back, by one thread alone.
pub fn alone_ns<M: RawMutex + Send + Sync>(cpus: usize, breakpoints: u32) -> [f64; 2] {
    const SPANS: usize = 101;
    let changes = Changes::<M>::new(cpus, breakpoints);
    let each_ns = || {
        let begin = Instant::now();
        (0..breakpoints).for_each(|_| changes.make(0));
        begin.elapsed().as_secs_f64() * 1e9 / f64::from(breakpoints.max(1))
    };
    let mut alone_ns = [const { Vec::new() }; 2];
    for _ in 0..SPANS {
        alone_ns.iter_mut().for_each(|taken| taken.push(each_ns()));
    }
    alone_ns.map(median)
}

/// What it costs to be the next on another CPU.
#[derive(Debug, Clone, Copy)]
pub struct Passing {
    /// A line that was written there.
    pub line_ns: f64,
    /// What a change of the accounting takes longer where that CPU made the last one.
    pub moved_ns: f64,
}

/// By two threads that take turns, so that none ever waits for the lock. What a change takes drifts with the machine by more than the
/// difference looked for: so turns of none, of one change and of two come right after each other.
pub fn passing<M: RawMutex + Send + Sync>(cpus: usize, breakpoints: u32) -> Passing {
    const SPANS: usize = 41;
    const IN_TURN: usize = 3;
    let changes = Changes::<M>::new(cpus, breakpoints);
    let some_changes = |thread: usize, span: usize| (0..span % IN_TURN).for_each(|_| changes.make(thread));
    let spans = step_costs::turns_ns(some_changes, IN_TURN * SPANS);
    let over_spans = |of: fn(&[f64]) -> f64| median(spans.chunks_exact(IN_TURN).map(of).collect());
    Passing {
        line_ns: step_costs::line_ns(over_spans(|turns| turns[0])),
        // A turn of one change is a turn of none, the change, and what is looked for; the second change finds all at hand.
        moved_ns: over_spans(|turns| (turns[1] - turns[0]) - (turns[2] - turns[1])).max(0.0),
    }
}

/// Steps of arithmetic that take as long as something else does.
#[derive(Debug, Clone, Copy)]
pub struct Work(u64);

impl Work {
    /// None at all.
    pub const NONE: Self = Self(0);

    /// As many steps as fill this time on a CPU that does nothing else.
    pub fn lasting(time: Duration) -> Self {
        // So short that some of them have their CPU for themselves on a busy machine, too.
        const STEPS: u64 = 50_000;
        const SPANS: usize = 100;
        let fastest = (0..SPANS)
            .map(|_| {
                let begin = Instant::now();
                arithmetic::steps(STEPS);
                begin.elapsed()
            })
            .min();
        let step_ns = fastest.map_or(1.0, |fastest| fastest.as_secs_f64() * 1e9 / STEPS as f64);
        Self((time.as_secs_f64() * 1e9 / step_ns) as u64)
    }

    /// Does it.
    pub fn run(self) {
        arithmetic::steps(self.0);
    }
}

/// A breakpoint's record, as large as the kernel's.
type Record = [u64; 24];

/// A target is set up with its breakpoints, and taken down.
fn one_target(plan: &Plan, take: impl Fn() -> bool, give_back: impl Fn()) {
    let Work(steps) = plan.work;
    arithmetic::steps(steps / 2);
    let records: Vec<Box<Record>> =
        (0..plan.breakpoints.min(SLOTS)).filter(|_| take()).map(|at| Box::new([u64::from(at); 24])).collect();
    arithmetic::steps(steps / 2);
    for record in records {
        drop(black_box(record));
        give_back();
    }
}

/// The result as a table.
pub struct Table<'a>(pub &'a [Point]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>7} {:>12} {:>12} {:>12} {:>12}  {:<26} AFTER FROM IDEAL",
            "THREADS", "BEFORE", "AFTER", "IDEAL", "FLOOR", "SPEED-UP"
        )?;
        for point in self.0 {
            write!(f, "{:>7}", point.threads)?;
            for time in &point.task_ns {
                write!(f, " {:>12}", format!("{:.2} µs/op", time.median / 1e3))?;
            }
            let Estimate { median, low, high, .. } = point.speed_up;
            let speed_up = format!("{median:.2} × [{low:.2}, {high:.2}]");
            let Estimate { median, low, high, .. } = point.from_ideal.map(|share| share * 100.0);
            writeln!(f, "  {speed_up:<26} {median:+.1} % [{low:+.1}, {high:+.1}]")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::breakpoint::designs::Locking;
    use crate::pthread_locks::{PthreadMutex, PthreadRwLock};
    use std::sync::atomic::AtomicUsize;

    fn plan() -> Plan {
        Plan {
            threads: vec![1, 4],
            breakpoints: 4,
            slice: Duration::from_millis(5),
            cpus: 8,
            rounds: 2,
            work: Work(100),
            cpu_targets_percent: 10,
            first_cpu: None,
            settling: Duration::ZERO,
        }
    }

    #[test]
    fn work_lasts_about_as_long_as_asked() {
        let Work(steps) = Work::lasting(Duration::from_millis(20));
        let begin = Instant::now();
        arithmetic::steps(steps);
        // Other load can only make it longer.
        assert!(begin.elapsed() > Duration::from_millis(10), "{:?}", begin.elapsed());
    }

    #[test]
    fn all_designs_give_back_what_they_take() {
        let points = race::<PthreadMutex, PthreadRwLock>(&plan(), &mut Random::new(1), |_| true).unwrap();
        assert_eq!(points.len(), 2);
        assert!(points.iter().all(|point| point.task_ns.iter().all(|time| time.median > 0.0)));
    }

    #[test]
    fn a_race_that_is_broken_off_gives_the_rounds_it_has() {
        let mut left = 6;
        let go_on = |_| {
            left -= 1;
            left > 0
        };
        let points = race::<PthreadMutex, PthreadRwLock>(&plan(), &mut Random::new(1), go_on).unwrap();
        assert_eq!((points.len(), points[0].task_ns[0].samples), (1, 1));
    }

    /// An accounting that only counts what is asked of it: of tasks, and of CPUs.
    #[derive(Default)]
    struct Asked([AtomicUsize; 2]);

    impl Accounting for Asked {
        type TaskLock = PthreadMutex;

        fn take(&self, _: &Task<PthreadMutex>) -> bool {
            self.0[0].fetch_add(1, Ordering::Relaxed);
            true
        }

        fn give_back(&self, _: &Task<PthreadMutex>) {}

        fn take_on_cpu(&self, _: usize) -> bool {
            self.0[1].fetch_add(1, Ordering::Relaxed);
            true
        }

        fn give_back_on_cpu(&self, _: usize) {}

        fn violations(&self) -> u32 {
            0
        }

        fn taken(&self) -> u64 {
            0
        }
    }

    #[test]
    fn so_many_of_the_targets_are_cpus_as_asked() {
        for percent in [0, 10, 100] {
            let asked = Asked::default();
            timed(&asked, Design::Before, &Plan { cpu_targets_percent: percent, ..plan() }, 1).unwrap();
            let [tasks, cpus] = asked.0.map(|count| count.into_inner() / 4);
            let expected = (tasks + cpus) * percent as usize / 100;
            assert!(tasks + cpus >= 10 && cpus == expected, "{percent} % CPUs: {cpus} beside {tasks} tasks");
        }
    }

    /// Tasks and CPUs at once, all that fits and more, from four threads that share some tasks. Returns how often a rule was broken, or
    /// a breakpoint was left.
    fn crowd<L: Locking + Default>(rounds: usize) -> u64 {
        let (slots, shared) = (Slots::<L>::new(2), Task::default());
        let refused = AtomicUsize::new(0);
        // On a busy machine the first would be done before the last begins.
        let all_are_there = std::sync::Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (slots, shared, refused, all_are_there) = (&slots, &shared, &refused, &all_are_there);
                scope.spawn(move || {
                    all_are_there.wait();
                    for round in 0..rounds {
                        let cpu = (thread + round) % 2;
                        let on_cpu = (round % 3 == 0) && slots.take_on_cpu(cpu);
                        let own = Task::default();
                        let task = if round % 2 == 0 { &own } else { shared };
                        let taken = (0..SLOTS + 1).filter(|_| slots.take(task)).count();
                        refused.fetch_add(SLOTS as usize + 1 - taken, Ordering::Relaxed);
                        (0..taken).for_each(|_| slots.give_back(task));
                        if on_cpu {
                            slots.give_back_on_cpu(cpu);
                        }
                    }
                });
            }
        });
        assert!(refused.load(Ordering::Relaxed) >= 4 * rounds, "the fifth breakpoint of a task found room");
        u64::from(slots.violations()) + slots.taken()
    }

    type Before = GlobalMutex<PthreadMutex>;
    type After = TaskMutexes<PthreadMutex, PthreadRwLock>;

    #[test]
    fn neither_design_gives_out_more_than_the_slots() {
        assert_eq!((crowd::<Before>(2_000), crowd::<After>(2_000)), (0, 0));
    }

    /// A design without one of its locks, which the rules must show.
    #[derive(Default)]
    struct Without<L, const LOCK: u8>(L);
    const MUTEX_OF_TASKS: u8 = 0;
    const MUTEX_OF_CPUS: u8 = 4;
    const TASK_MUTEX: u8 = 1;
    const READ_SIDE: u8 = 2;
    const WRITE_SIDE: u8 = 3;

    impl<const LOCK: u8> Locking for Without<Before, LOCK> {
        type TaskLock = PthreadMutex;
        const CHANGES_TASKS_AT_ONCE: bool = Before::CHANGES_TASKS_AT_ONCE;

        fn for_task<'a>(&'a self, task: &'a Task<PthreadMutex>) -> impl Sized + 'a {
            (LOCK != MUTEX_OF_TASKS).then(|| self.0.for_task(task))
        }

        fn for_cpu(&self) -> impl Sized + '_ {
            (LOCK != MUTEX_OF_CPUS).then(|| self.0.for_cpu())
        }
    }

    impl<const LOCK: u8> Locking for Without<After, LOCK> {
        type TaskLock = PthreadMutex;
        const CHANGES_TASKS_AT_ONCE: bool = After::CHANGES_TASKS_AT_ONCE;

        fn for_task<'a>(&'a self, task: &'a Task<PthreadMutex>) -> impl Sized + 'a {
            let mutex = (LOCK != TASK_MUTEX).then(|| task.lock.lock());
            (mutex, (LOCK != READ_SIDE).then(|| self.0.cpus.read()))
        }

        fn for_cpu(&self) -> impl Sized + '_ {
            (LOCK != WRITE_SIDE).then(|| self.0.cpus.write())
        }
    }

    #[test]
    fn without_any_of_its_locks_a_design_breaks_the_rules() {
        fn breaks<L: Locking + Default>() -> bool {
            (0..200).any(|_| crowd::<L>(2_000) > 0)
        }
        assert!(breaks::<Without<Before, MUTEX_OF_TASKS>>());
        assert!(breaks::<Without<Before, MUTEX_OF_CPUS>>());
        assert!(breaks::<Without<After, TASK_MUTEX>>());
        assert!(breaks::<Without<After, READ_SIDE>>());
        assert!(breaks::<Without<After, WRITE_SIDE>>());
    }

    /// Both designs decide alike, one after another: CPUs that are full leave tasks no room, and the other way round.
    #[test]
    fn both_designs_agree_on_what_fits() {
        fn transcript<A: Accounting>(accounting: &A) -> Vec<bool> {
            let (one, other) = (Task::default(), Task::default());
            let mut said = vec![accounting.take_on_cpu(3), accounting.take_on_cpu(3)];
            said.extend([accounting.take(&one), accounting.take(&one), accounting.take(&one), accounting.take(&other)]);
            said.extend([accounting.take_on_cpu(3), accounting.take_on_cpu(0), accounting.take_on_cpu(0)]);
            accounting.give_back_on_cpu(3);
            said.extend([accounting.take_on_cpu(0), accounting.take(&one)]);
            said
        }
        let before = transcript(&Slots::<Before>::new(8));
        assert_eq!(before, transcript(&Slots::<After>::new(8)));
        assert_eq!(before, [true, true, true, true, false, true, false, true, true, false, false]);
    }
}
