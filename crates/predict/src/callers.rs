//! A lock with several kinds of users: what each caller does to the others, and what the others would do without it.
//!
//! One mean hold says nothing of a lock that is held rarely and long by one caller and often and briefly by another. Here each caller is a
//! class of its own, with its rate and its holds. A recording does not say which threads call from where (but where their waits' stacks
//! begin), who gets the lock next, and how evenly threads come. So several models are tried: callers with threads of their own or all
//! threads calling from everywhere, a lock that is passed on in order or taken by the first to come, threads that take as long each time
//! or by chance, and that compute or sleep. Of each kind of threads the model that comes nearest to what was recorded is used, and none that is too far off. Without a
//! caller, what the others do is then mostly arithmetic: by Little's law, their threads' time less what they waited for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use lockmeter_profile::{Happened, Report, Row, ThreadState};
use lockmeter_statistics::Random;
use serde::Serialize;

use crate::measured::{MeasuredLock, as_f64, ratio, scaled};
use crate::network::{Handoff, SECOND_NS, number};
use crate::simulation::{Duration, Group, Observed, Passing, Visit, run_groups};

/// A model further off than this from the recording that it was made from is not to be trusted elsewhere.
pub const MOST_OFF: f64 = 0.15;

/// Callers beyond these, shortest held and waited, are one class.
const MOST_CALLERS: usize = 6;

/// Of a caller that is rarer than this in a simulation, chance decides the rate.
const LEAST_SEEN: f64 = 400.0;

const FEWEST_STEPS: f64 = 40_000.0;
const MOST_STEPS: f64 = 400_000.0;

/// What a woken thread may take until it tries again: from a CPU that is awake to one that sleeps deeply, or is busy.
const WAKES_NS: [f64; 5] = [1e3, 20e3, 50e3, 100e3, 300e3];

/// Waits that are wrong by more than this of themselves are those of other threads.
const MOST_WRONG_WAITS: f64 = 0.5;

/// More than time measured at two ends can be wrong by: a thread that waits all the time is one thread.
const ROUNDING: f64 = 0.03;

/// Any: a forecast is the same each time for the same recording.
const SEED: u64 = 1;

/// One caller of a lock.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredCaller {
    /// The function that acquires the lock, and those it is inlined into.
    pub name: String,
    /// How often it acquired the lock.
    pub acquisitions: u64,
    /// How long it held it, all acquisitions added up.
    pub held_ns: u64,
    /// How long it waited for it.
    pub waited_ns: u64,
    /// Durations of its holds: means, each with its count.
    pub holds: Vec<(f64, u64)>,
    /// What its threads begin with, where it waited.
    pub begins: BTreeSet<Arc<str>>,
}

/// What every thread of a program begins with: the C library's functions, outside the program's own.
const EVERY_THREAD: [&str; 9] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "__clone",
    "__clone3",
    "start_thread",
];

impl MeasuredCaller {
    /// The callers of a lock, in a report by lock and caller, longest held and waited first.
    pub fn of(lock: &MeasuredLock, report: &Report) -> Vec<Self> {
        let is_of_lock = |row: &&Row| {
            row.lock.as_deref() == Some(lock.name.as_str())
                && row.kind == Some(lock.kind)
                && row.mode == Some(lock.mode)
        };
        let rows_that = |happened| report.rows.iter().filter(is_of_lock).filter(move |row| row.happened == happened);
        let off_ns = rows_that(Happened::Hold).map(|row| row.off_ns).min().unwrap_or(0);
        let duration_ns = report.duration_ns.saturating_sub(off_ns);
        let scale = |row: &Row, amount| scaled(amount, duration_ns, report.duration_ns.saturating_sub(row.off_ns));
        let mut callers: Vec<(&[Arc<str>], Self)> = Vec::new();
        for row in rows_that(Happened::Hold).filter(|row| row.value.count > 0) {
            let functions = row.caller.as_deref().unwrap_or_default();
            let name = if functions.is_empty() { "[unknown caller]".to_owned() } else { functions.join(" < ") };
            let means = row.histogram.iter().filter(|(_, count, _)| *count > 0);
            let caller = Self {
                name,
                acquisitions: scale(row, row.value.count),
                held_ns: scale(row, row.value.total_ns),
                waited_ns: 0,
                begins: BTreeSet::new(),
                holds: means.map(|(_, count, ns)| (ratio(*ns, *count), *count)).collect(),
            };
            callers.push((functions, caller));
        }
        for row in rows_that(Happened::Wait) {
            let stack = row.caller.as_deref().unwrap_or_default();
            // A wait has the whole stack, a hold the call that acquires: the caller that says most of the stack.
            let best = callers.iter_mut().filter(|(functions, _)| stack.starts_with(functions));
            if let Some((_, caller)) = best.max_by_key(|(functions, _)| functions.len()) {
                caller.waited_ns = caller.waited_ns.saturating_add(scale(row, row.value.total_ns));
                let begin = stack.iter().rev().find(|function| !EVERY_THREAD.contains(&&***function));
                caller.begins.extend(begin.cloned());
            }
        }
        let mut callers: Vec<Self> = callers.into_iter().map(|(_, caller)| caller).collect();
        callers.retain(|caller| caller.acquisitions > 0);
        callers.sort_by_key(|caller| std::cmp::Reverse(caller.busy_ns()));
        if callers.len() > MOST_CALLERS {
            let rest = callers.split_off(MOST_CALLERS - 1);
            callers.extend(rest.into_iter().reduce(Self::with));
        }
        callers
    }

    const fn busy_ns(&self) -> u64 {
        self.held_ns.saturating_add(self.waited_ns)
    }

    fn with(mut self, other: Self) -> Self {
        "all others".clone_into(&mut self.name);
        self.acquisitions = self.acquisitions.saturating_add(other.acquisitions);
        self.held_ns = self.held_ns.saturating_add(other.held_ns);
        self.waited_ns = self.waited_ns.saturating_add(other.waited_ns);
        self.holds.extend(other.holds);
        self.begins.extend(other.begins);
        self
    }

    fn visit(&self, per_cycle: f64) -> Visit {
        Visit { lock: 0, shared: false, per_cycle, hold: Duration::Histogram(self.holds.clone()) }
    }

    fn per_second(&self, duration_ns: u64) -> f64 {
        as_f64(self.acquisitions) / as_f64(duration_ns.max(1)) * SECOND_NS
    }
}

/// Whose threads call from where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "of_callers")]
pub enum Threads {
    /// As many call from there only, for each caller.
    OfTheirOwn(Vec<usize>),
    /// This many call from everywhere.
    ForAll(usize),
}

/// What each caller of a lock does to the others.
#[derive(Debug, Clone, Serialize)]
pub struct ByCaller {
    /// Whose threads call from where, as the nearest model has it.
    pub threads: Threads,
    /// What a woken waiter takes until it tries again, where the first to come takes the lock; `None` if it is passed on in order.
    pub wake_ns: Option<f64>,
    /// How far the rate of the caller that the model knows worst is from the recording, as a ratio less 1.
    pub off: f64,
    /// Whether callers with threads of their own and threads that call from everywhere both give what was recorded.
    pub is_ambiguous: bool,
    /// Why there is no forecast.
    pub refused: Option<String>,
    /// Longest held and waited first.
    pub callers: Vec<CallerForecast>,
}

/// One caller, here and left out.
#[derive(Debug, Clone, Serialize)]
pub struct CallerForecast {
    /// Its functions, innermost first.
    pub caller: String,
    /// Mean hold.
    pub hold_ns: f64,
    /// Mean wait over all its acquisitions.
    pub wait_ns: f64,
    /// Acquisitions a second in the recording.
    pub recorded_per_second: f64,
    /// The same by the model.
    pub modelled_per_second: f64,
    /// What all others did in the recording, in acquisitions a second.
    pub others_recorded_per_second: f64,
    /// What they do without this one: at least, if their threads then wait for a CPU twice as long as in the recording each time, and at
    /// most, if they do not wait for one at all; where it is not known whose threads call from where, of both answers. `None` if there is no
    /// forecast.
    pub others_without_it_per_second: Option<(f64, f64)>,
}

/// A model, and what it says of the recording.
struct Candidate {
    threads: Threads,
    manner: Manner,
    modelled: Vec<f64>,
    off: f64,
    /// How much the waits of a caller are wrong, from 0 to 1: throughput alone does not tell whose threads they are.
    wrong_waits: f64,
}

impl Candidate {
    fn distance(&self) -> f64 {
        self.off.abs() + self.wrong_waits
    }
}

/// Who was at work while a lock was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Workers {
    /// For how long.
    pub duration_ns: u64,
    /// How many threads.
    pub threads: usize,
    /// On how many CPUs.
    pub cpus: usize,
    /// How long each of them waited for a CPU, as far as is known.
    pub cpu_wait_ns: f64,
}

impl Workers {
    /// How long a thread waited for a CPU in so much of a recording, all threads alike that were not at rest; 0 if nobody looked.
    pub fn cpu_wait_ns(report: &Report, duration_ns: u64) -> f64 {
        let Some(threads) = &report.threads else { return 0.0 };
        // No more threads than one are as long at work as the recording lasts.
        let at_work_ns = threads.total_ns.saturating_sub(threads.rest_ns).max(report.duration_ns);
        let share =
            ratio(threads.spent_ns(|state| matches!(state, ThreadState::Woken | ThreadState::Runnable)), at_work_ns);
        share * as_f64(duration_ns)
    }
}

/// What a lock's callers do, with this many threads on this many CPUs. `None` if there are not several.
pub fn by_caller(callers: &[MeasuredCaller], workers: Workers) -> Option<ByCaller> {
    let threads = workers.threads;
    if callers.len() < 2 {
        return None;
    }
    let scene = Scene::new(callers, workers);
    let fewest = scene.fewest_threads();
    let all = threads.max(fewest.iter().sum());
    let nearest = |threads: &dyn Fn(Manner) -> Threads| {
        let candidates = Manner::all().map(|manner| scene.candidate(threads(manner), manner));
        candidates.min_by(|one, other| one.distance().total_cmp(&other.distance()))
    };
    let of_their_own = nearest(&|manner| scene.dealt_out(fewest.clone(), all, manner));
    let for_all = if begin_with_different_functions(callers) { None } else { nearest(&|_| Threads::ForAll(threads)) };
    let mut models: Vec<Candidate> = [of_their_own, for_all].into_iter().flatten().collect();
    models.sort_by(|one, other| one.distance().total_cmp(&other.distance()));
    let is_near = |model: &Candidate| model.off.abs() <= MOST_OFF && model.wrong_waits <= MOST_WRONG_WAITS;
    let refused = (!models.iter().any(is_near)).then(|| scene.reason(&models[0]));
    if refused.is_none() {
        models.retain(is_near);
    }
    let total: f64 = scene.recorded.iter().sum();
    let without = |at: usize| {
        let rates = models.iter().flat_map(|model| {
            // They may not wait for a CPU any more, or twice as long: a thread that slept for the lock is let in before one that did not.
            [-workers.cpu_wait_ns, workers.cpu_wait_ns].map(|less_ns| {
                let observed = scene.observe(&model.threads, model.manner, Some(at), less_ns);
                observed.iter().map(|rest| rest.per_second).sum::<f64>()
            })
        });
        rates.fold((f64::INFINITY, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)))
    };
    let forecast = |(at, caller): (usize, &MeasuredCaller)| CallerForecast {
        caller: caller.name.clone(),
        hold_ns: ratio(caller.held_ns, caller.acquisitions),
        wait_ns: ratio(caller.waited_ns, caller.acquisitions),
        recorded_per_second: scene.recorded[at],
        modelled_per_second: models[0].modelled[at],
        others_recorded_per_second: total - scene.recorded[at],
        others_without_it_per_second: refused.is_none().then(|| without(at)),
    };
    let callers = callers.iter().enumerate().map(forecast).collect();
    let is_ambiguous = models.len() > 1;
    let best = models.swap_remove(0);
    let wake_ns = match best.manner.passing {
        Passing::InOrder => None,
        Passing::FirstToCome { wake_ns } => Some(wake_ns),
    };
    Some(ByCaller { off: best.off, is_ambiguous, refused, callers, wake_ns, threads: best.threads })
}

/// Whether the threads of no two callers begin with the same function: then they are others. Not known of callers that did not wait.
fn begin_with_different_functions(callers: &[MeasuredCaller]) -> bool {
    let mut seen = BTreeSet::new();
    callers.iter().all(|caller| !caller.begins.is_empty())
        && callers.iter().flat_map(|caller| &caller.begins).all(|begin| seen.insert(begin))
}

/// What a recording does not say of a lock and its threads.
#[derive(Debug, Clone, Copy)]
struct Manner {
    passing: Passing,
    /// How long a thread computes each time, on average so long.
    think: fn(f64) -> Duration,
    /// Whether threads sleep where they do not wait, so that they need no CPU.
    sleeps: bool,
}

impl Manner {
    fn all() -> impl Iterator<Item = Self> {
        let passings =
            std::iter::once(Passing::InOrder).chain(WAKES_NS.map(|wake_ns| Passing::FirstToCome { wake_ns }));
        let thinks: [fn(f64) -> Duration; 2] = [Duration::Exponential, Duration::Constant];
        let all = move |passing| {
            thinks.into_iter().flat_map(move |think| [false, true].map(|sleeps| Self { passing, think, sleeps }))
        };
        passings.flat_map(all)
    }
}

struct Scene<'a> {
    callers: &'a [MeasuredCaller],
    duration_ns: u64,
    cpus: usize,
    /// Acquisitions a second of each caller.
    recorded: Vec<f64>,
    steps: u64,
}

impl<'a> Scene<'a> {
    fn new(callers: &'a [MeasuredCaller], Workers { duration_ns, cpus, .. }: Workers) -> Self {
        let all: f64 = callers.iter().map(|caller| as_f64(caller.acquisitions)).sum();
        let rarest = callers.iter().map(|caller| as_f64(caller.acquisitions)).fold(f64::INFINITY, f64::min);
        let steps = (LEAST_SEEN * all / rarest.max(1.0)).clamp(FEWEST_STEPS, MOST_STEPS);
        let recorded = callers.iter().map(|caller| caller.per_second(duration_ns)).collect();
        Self { callers, duration_ns, cpus, recorded, steps: steps as u64 }
    }

    /// The fewest threads of its own that each caller can have held and waited with as long as it did.
    fn fewest_threads(&self) -> Vec<usize> {
        let busy = |caller: &MeasuredCaller| as_f64(caller.busy_ns()) / as_f64(self.duration_ns.max(1));
        self.callers.iter().map(|caller| ((busy(caller) - ROUNDING).ceil() as usize).max(1)).collect()
    }

    /// Gives each thread that is left to the caller with which the model comes nearest to the recording.
    fn dealt_out(&self, mut threads: Vec<usize>, all: usize, manner: Manner) -> Threads {
        /// More are dealt out at once: each deal takes a simulation for each caller.
        const SINGLE_DEALS: usize = 8;
        let mut left = all.saturating_sub(threads.iter().sum());
        let at_once = left.div_ceil(SINGLE_DEALS).max(1);
        while left > 0 {
            let more = at_once.min(left);
            let with = |at: usize| {
                let mut threads = threads.clone();
                threads[at] += more;
                threads
            };
            let off = |at: &usize| self.candidate(Threads::OfTheirOwn(with(*at)), manner).distance();
            let nearest = (0..threads.len()).min_by(|one, other| off(one).total_cmp(&off(other)));
            threads = with(nearest.unwrap_or(0));
            left -= more;
        }
        Threads::OfTheirOwn(threads)
    }

    fn candidate(&self, threads: Threads, manner: Manner) -> Candidate {
        let observed = self.observe(&threads, manner, None, 0.0);
        let off = observed.iter().zip(&self.recorded).map(|(observed, recorded)| observed.per_second / recorded - 1.0);
        let off = off.fold(0.0, |worst: f64, off| if off.abs() > worst.abs() { off } else { worst });
        let (held_ns, acquisitions) = self.callers.iter().fold((0.0, 0.0), |(held_ns, acquisitions), caller| {
            (held_ns + as_f64(caller.held_ns), acquisitions + as_f64(caller.acquisitions))
        });
        // Waits that are short beside a hold are alike.
        let hold_ns = held_ns / acquisitions;
        let wrong = observed.iter().zip(self.callers).map(|(observed, caller)| {
            let (modelled_ns, recorded_ns) = (observed.mean_wait_ns, ratio(caller.waited_ns, caller.acquisitions));
            (modelled_ns - recorded_ns).abs() / (modelled_ns + recorded_ns + hold_ns)
        });
        let wrong = wrong.fold(0.0, f64::max);
        let modelled = observed.iter().map(|observed| observed.per_second).collect();
        Candidate { threads, manner, modelled, off, wrong_waits: wrong }
    }

    /// What each caller does, one of them perhaps left out, if each thread spent so much less time elsewhere than was recorded.
    fn observe(&self, threads: &Threads, manner: Manner, without: Option<usize>, less_ns: f64) -> Vec<Observed> {
        let think_ns = |callers: &[MeasuredCaller], threads: usize| {
            (self.think_ns(callers, threads) - number(threads) * less_ns).max(0.0)
        };
        let is_there = |at: usize| without != Some(at);
        let run = |groups: &[Group]| {
            let threads: usize = groups.iter().map(|group| group.threads).sum();
            let cpus = if manner.sleeps { threads } else { self.cpus };
            run_groups(&[Handoff::default()], groups, manner.passing, cpus, self.steps, &mut Random::new(SEED))
        };
        match threads {
            Threads::OfTheirOwn(threads) => {
                let group = |(at, (caller, threads)): (usize, (&MeasuredCaller, &usize))| Group {
                    threads: if is_there(at) { *threads } else { 0 },
                    think: (manner.think)(
                        think_ns(std::slice::from_ref(caller), *threads) / as_f64(caller.acquisitions),
                    ),
                    visits: vec![caller.visit(1.0)],
                };
                let groups: Vec<Group> = self.callers.iter().zip(threads).enumerate().map(group).collect();
                run(&groups).into_iter().flatten().collect()
            }
            Threads::ForAll(threads) => {
                let visit = |(at, caller): (usize, &MeasuredCaller)| {
                    caller.visit(if is_there(at) { as_f64(caller.acquisitions) } else { 0.0 })
                };
                let visits: Vec<Visit> = self.callers.iter().enumerate().map(visit).collect();
                let acquisitions: f64 = visits.iter().map(|visit| visit.per_cycle).sum();
                let think = (manner.think)(think_ns(self.callers, *threads) / acquisitions);
                let group = Group { threads: *threads, think, visits };
                run(&[group]).into_iter().flatten().collect()
            }
        }
    }

    /// What this many threads did elsewhere, all of them together.
    fn think_ns(&self, callers: &[MeasuredCaller], threads: usize) -> f64 {
        let busy_ns: f64 = callers.iter().map(|caller| as_f64(caller.busy_ns())).sum();
        (number(threads) * as_f64(self.duration_ns) - busy_ns).max(0.0)
    }

    /// Why the nearest model is not near enough.
    fn reason(&self, best: &Candidate) -> String {
        let off = |at: &usize| (best.modelled[*at] / self.recorded[*at] - 1.0).abs();
        let worst = (0..self.callers.len()).max_by(|one, other| off(one).total_cmp(&off(other))).unwrap_or(0);
        if best.off.abs() <= MOST_OFF {
            return "no model gives the recorded waits; give the number of working threads with --threads".to_owned();
        }
        format!(
            "the nearest model is off by {:+.0} % for {}, more than the {:.0} % that a forecast needs; give the number of \
            working threads with --threads, or record for longer",
            best.off * 100.0,
            self.callers[worst].name,
            MOST_OFF * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DURATION_NS: u64 = 10_000_000_000;

    /// None of whom waits for a CPU.
    fn workers(threads: usize, cpus: usize) -> Workers {
        Workers { duration_ns: DURATION_NS, threads, cpus, cpu_wait_ns: 0.0 }
    }

    /// What threads of their own do, as the simulation has it, as if it had been recorded.
    fn recorded(groups: &[(usize, f64, f64)], passing: Passing, cpus: usize) -> Vec<MeasuredCaller> {
        let group = |(threads, think_ns, hold_ns): &(usize, f64, f64)| Group {
            threads: *threads,
            think: Duration::Exponential(*think_ns),
            visits: vec![Visit { lock: 0, shared: false, per_cycle: 1.0, hold: Duration::Constant(*hold_ns) }],
        };
        let all: Vec<Group> = groups.iter().map(group).collect();
        let rates = run_groups(&[Handoff::default()], &all, passing, cpus, 400_000, &mut Random::new(3));
        let caller = |(at, (threads, think_ns, hold_ns)): (usize, &(usize, f64, f64))| {
            let acquisitions = rates[at][0].per_second * as_f64(DURATION_NS) / SECOND_NS;
            // Where each thread has a CPU, what it does not compute or hold it waits.
            let waited_ns = number(*threads) * as_f64(DURATION_NS) - acquisitions * (think_ns + hold_ns);
            MeasuredCaller {
                name: format!("caller_{at}"),
                acquisitions: acquisitions as u64,
                held_ns: (acquisitions * hold_ns) as u64,
                waited_ns: waited_ns.max(0.0) as u64,
                holds: vec![(*hold_ns, acquisitions as u64)],
                begins: BTreeSet::from([format!("thread_{at}").into()]),
            }
        };
        groups.iter().enumerate().map(caller).collect()
    }

    /// Makes sure that the others are forecast as they are alone: a rare long holder and one who holds often and briefly.
    #[test]
    fn without_the_caller_that_holds_long_the_other_does_what_it_does_alone() {
        let (think_ns, hold_ns) = (20_000.0, 2_000.0);
        for passing in [Passing::InOrder, Passing::FirstToCome { wake_ns: 50e3 }] {
            let callers = recorded(&[(1, 100_000.0, 5_000_000.0), (1, think_ns, hold_ns)], passing, 2);
            let forecast = by_caller(&callers, workers(2, 2)).unwrap();
            assert!(forecast.refused.is_none() && forecast.off.abs() < MOST_OFF, "{forecast:?}");
            let long = &forecast.callers[0];
            let alone = SECOND_NS / (think_ns + hold_ns);
            let (found, most) = long.others_without_it_per_second.unwrap();
            assert!(!forecast.is_ambiguous && found >= most, "{forecast:?}");
            assert!((found / alone - 1.0).abs() < 0.1, "{passing:?}: {found} instead of {alone}");
            assert!(found > 20.0 * long.others_recorded_per_second, "{long:?}");
            let short = &forecast.callers[1];
            let times = short.others_without_it_per_second.unwrap().0 / short.others_recorded_per_second;
            assert!((0.95..1.1).contains(&times), "{short:?}");
        }
    }

    /// Makes sure that the answer goes from twice the waits for a CPU that were recorded to none.
    #[test]
    fn what_threads_waited_for_a_cpu_is_the_width_of_the_answer() {
        let (think_ns, hold_ns) = (20_000.0, 2_000.0);
        let callers = recorded(&[(1, 100_000.0, 5_000_000.0), (1, think_ns, hold_ns)], Passing::InOrder, 2);
        let short = &callers[1];
        // A quarter of what the short one spends elsewhere.
        let cpu_wait_ns = as_f64(DURATION_NS - short.busy_ns()) / 4.0;
        let forecast = by_caller(&callers, Workers { cpu_wait_ns, ..workers(2, 2) }).unwrap();
        let (least, most) = forecast.callers[0].others_without_it_per_second.unwrap();
        let alone = |think_ns: f64| SECOND_NS / (think_ns + hold_ns);
        assert!((least / alone(think_ns * 1.25) - 1.0).abs() < 0.1, "{least}: {forecast:?}");
        assert!((most / alone(think_ns * 0.75) - 1.0).abs() < 0.1, "{most}: {forecast:?}");
    }

    #[test]
    fn threads_that_call_from_everywhere_go_on_without_one_of_their_calls() {
        let visit = |hold_ns, per_cycle| Visit { lock: 0, shared: false, per_cycle, hold: Duration::Constant(hold_ns) };
        let group = Group {
            threads: 4,
            think: Duration::Exponential(40_000.0),
            visits: vec![visit(500_000.0, 0.05), visit(2_000.0, 0.95)],
        };
        let in_order = Passing::InOrder;
        let rates = run_groups(&[Handoff::default()], &[group], in_order, 8, 400_000, &mut Random::new(3)).remove(0);
        let callers: Vec<MeasuredCaller> = [(0, 500_000.0), (1, 2_000.0)]
            .map(|(at, hold_ns)| {
                let acquisitions = rates[at].per_second * 10.0;
                let waited = acquisitions * rates[at].mean_wait_ns;
                MeasuredCaller {
                    name: format!("caller_{at}"),
                    acquisitions: acquisitions as u64,
                    held_ns: (acquisitions * hold_ns) as u64,
                    waited_ns: waited as u64,
                    holds: vec![(hold_ns, acquisitions as u64)],
                    begins: BTreeSet::from(["worker".into()]),
                }
            })
            .into();
        let forecast = by_caller(&callers, workers(4, 8)).unwrap();
        assert!(forecast.refused.is_none(), "{forecast:?}");
        let long = forecast.callers.iter().find(|caller| caller.hold_ns > 100_000.0).unwrap();
        // Four threads that compute 42.1 µs for each short hold.
        let alone = 4.0 * SECOND_NS / (40_000.0 / 0.95 + 2_000.0);
        let (least, most) = long.others_without_it_per_second.unwrap();
        assert!(least <= alone * 1.15 && most >= alone * 0.85, "{least} to {most} instead of {alone}: {forecast:?}");
    }

    /// Makes sure that a recording that no model meets is refused, with the reason.
    #[test]
    fn what_no_model_meets_is_refused() {
        let mut callers = recorded(&[(1, 100_000.0, 5_000_000.0), (1, 20_000.0, 2_000.0)], Passing::InOrder, 2);
        // Nobody waited for a lock that was held all the time.
        callers[1].waited_ns = 0;
        let forecast = by_caller(&callers, workers(2, 2)).unwrap();
        let reason = forecast.refused.unwrap();
        assert!(reason.contains("caller_") && reason.contains("15 %"), "{reason}");
        assert!(forecast.callers.iter().all(|caller| caller.others_without_it_per_second.is_none()));
    }

    #[test]
    fn a_lock_with_one_caller_has_no_others() {
        let callers = recorded(&[(2, 10_000.0, 1_000.0)], Passing::InOrder, 2);
        assert!(by_caller(&callers, workers(2, 2)).is_none());
    }
}
