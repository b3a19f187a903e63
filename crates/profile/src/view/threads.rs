//! Where the time of the threads of a window went, and who waits at its end.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::names::{IntervalNames, LockName, Names, StackName, TaskName, TextName};
use super::query::Query;
use crate::Happened;
use crate::interval::{Interval, StackId, TaskId};
use crate::report::{
    OpenWaitRow, RowHolder, RowTask, RowWaker, SampledSpin, SleepRow, SpinRow, StateTime, ThreadsReport, add_waits,
};
use crate::sample::{HoldBasis, Kind};
use crate::thread_time::{OpenWait, SpinLoop, ThreadState};

/// Waits that ended with their threads, told one by one.
const MOST_CUT_WAITS: usize = 1000;

/// What a sum takes, its names apart.
const SUM_BYTES: usize = 160;

/// Sums of what the intervals say of threads.
#[derive(Debug, Clone, Default)]
pub(super) struct ThreadSums {
    /// Exact, as the system calls tell the reasons.
    exact: HashMap<(TaskName, ThreadState), u64>,
    /// What stacks say of these reasons.
    sleeps: HashMap<SleepKey, SleepSum>,
    spins: HashMap<SpinKey, SampledSpin>,
    run_samples: u64,
    watched_ns: u64,
    /// Who ended sleeps at a place that are no waits for locks, and how long these were.
    wakers: HashMap<StackName, HashMap<Waker, u64>>,
    /// Of the last interval of the window.
    open_waits: Vec<OpenWaitRow>,
    /// Of all intervals.
    cut_waits: Vec<OpenWaitRow>,
    last_unix_ns: u64,
    text_bytes: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SpinKey {
    comm: TextName,
    how: SpinLoop,
    wait: Option<(Happened, Kind, LockName)>,
    site: Option<StackName>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct SleepKey {
    task: TaskName,
    counted_as: ThreadState,
    reason: ThreadState,
    lock: Option<LockName>,
    at_rest: bool,
    site: Option<StackName>,
}

/// The thread's name, and where it wakes others.
type Waker = (TextName, StackName);

#[derive(Debug, Clone, Copy, Default)]
struct SleepSum {
    looks: u64,
    estimate_ns: u64,
    variance_ns2: f64,
}

/// Time, and how sure it is.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    ns: f64,
    variance_ns2: f64,
    looks: u64,
}

impl Part {
    fn add(&mut self, other: Part) {
        self.ns += other.ns;
        self.variance_ns2 += other.variance_ns2;
        self.looks = self.looks.saturating_add(other.looks);
    }

    fn error_ns(&self) -> u64 {
        // No part is less than nothing or more than all.
        (HoldBasis::OF_95_PERCENT * self.variance_ns2.max(0.0).sqrt()).min(self.ns) as u64
    }
}

impl ThreadSums {
    pub(super) fn add(
        &mut self,
        names: &mut Names,
        interval_names: &mut IntervalNames<'_>,
        interval: &Interval,
        query: &Query,
    ) {
        let tables = &interval.tables;
        let wanted = |names: &mut Names, interval_names: &mut IntervalNames<'_>, id: TaskId| {
            tables.task(id).filter(|task| query.wants_task(task))?;
            interval_names.task_name(names, Some(id))
        };
        for time in &interval.threads.times {
            let Some(task) = wanted(names, interval_names, time.task) else { continue };
            for (state, ns) in &time.spent {
                let sum = self.exact.entry((task, *state)).or_default();
                *sum = sum.saturating_add(*ns);
            }
        }
        for sleep in &interval.threads.sleeps {
            let Some(task) = wanted(names, interval_names, sleep.task) else { continue };
            let site = sleep.site.and_then(|site| interval_names.stack(names, site, true)).map(|stack| stack.all);
            let lock = sleep.lock.and_then(|lock| interval_names.lock_name(lock));
            let (counted_as, reason, at_rest) = (sleep.counted_as, sleep.reason, sleep.at_rest);
            let key = SleepKey { task, counted_as, reason, lock, at_rest, site };
            let sum = self.sleeps.entry(key).or_default();
            let (looks, estimate_ns, variance_ns2) = (sleep.looks, sleep.estimate_ns, sleep.variance_ns2);
            sum.add(&SleepSum { looks, estimate_ns, variance_ns2 });
        }
        self.run_samples = self.run_samples.saturating_add(interval.threads.run_samples);
        // Older recordings do not say.
        let watched_ns = Some(interval.threads.watched_ns).filter(|ns| *ns > 0).unwrap_or(interval.duration_ns);
        self.watched_ns = self.watched_ns.saturating_add(watched_ns);
        for spin in &interval.threads.spins {
            let Some(task) = wanted(names, interval_names, spin.task) else { continue };
            let site = spin.site.and_then(|site| interval_names.stack(names, site, true)).map(|stack| stack.all);
            let wait =
                spin.wait.and_then(|wait| Some((wait.happened, wait.kind, interval_names.lock_name(wait.lock)?)));
            let (samples, total_ns, variance_ns2) = (spin.samples, spin.estimate_ns, spin.variance_ns2);
            let key = SpinKey { comm: names.comm_of(task), how: spin.how, wait, site };
            let spun = SampledSpin { samples, total_ns, added_ns: 0, variance_ns2 };
            self.spins.entry(key).or_default().merge(&spun);
        }
        self.add_wakers(names, interval_names, interval);
        // Intervals come in any order.
        if interval.start_unix_ns >= self.last_unix_ns {
            self.last_unix_ns = interval.start_unix_ns;
            let waits = interval.threads.open_waits.iter().filter(|wait| !wait.is_cut);
            self.open_waits =
                waits.filter_map(|wait| open_wait(names, interval_names, interval, wait, query)).collect();
        }
        let cut = interval.threads.open_waits.iter().filter(|wait| wait.is_cut);
        let cut = cut.take(MOST_CUT_WAITS.saturating_sub(self.cut_waits.len()));
        let rows = cut.filter_map(|wait| open_wait(names, interval_names, interval, wait, query));
        add_waits(&mut self.cut_waits, rows);
        self.text_bytes = self.open_waits.iter().chain(&self.cut_waits).map(row_bytes).sum();
    }

    fn add_wakers(&mut self, names: &mut Names, interval_names: &mut IntervalNames<'_>, interval: &Interval) {
        for sampled in interval.sampled.iter().filter(|sampled| sampled.key.happened == Happened::Idle) {
            let blocker = &sampled.blocker;
            let (Some(site), Some(by)) = (sampled.site, blocker.stack) else { continue };
            let Some(task) = interval_names.task_name(names, blocker.task) else { continue };
            let mut all = |id| interval_names.stack(names, id, true).map(|stack| stack.all);
            let (Some(site), Some(by)) = (all(site), all(by)) else { continue };
            let sum = self.wakers.entry(site).or_default().entry((names.comm_of(task), by)).or_default();
            *sum = sum.saturating_add(sampled.estimate.total_ns);
        }
    }

    /// Who has ended most of the sleeps at a place.
    fn waker(&self, names: &Names, site: StackName) -> Option<RowWaker> {
        let wakers = self.wakers.get(&site)?;
        let total_ns = wakers.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        let ((comm, stack), ns) = wakers.iter().max_by_key(|(waker, ns)| (**ns, std::cmp::Reverse(**waker)))?;
        let ppm = u64::try_from(u128::from(*ns) * 1_000_000 / u128::from(total_ns.max(1))).unwrap_or(0);
        Some(RowWaker { comm: names.text_of(*comm).as_ref().to_owned(), stack: names.functions(*stack), ppm })
    }

    /// What the sums take, about.
    pub(super) fn memory_bytes(&self) -> usize {
        let wakers: usize = self.wakers.values().map(HashMap::len).sum();
        (self.exact.len() + self.sleeps.len() + self.spins.len() + wakers) * SUM_BYTES + self.text_bytes
    }

    pub(super) fn report(&self, names: &Names) -> Option<ThreadsReport> {
        if self.exact.is_empty() && self.open_waits.is_empty() && self.cut_waits.is_empty() {
            return None;
        }
        let mut states = BTreeMap::<ThreadState, Part>::new();
        let mut rest = Part::default();
        for ((_, (reason, at_rest)), part) in self.parts(names, |place| (place.reason, place.at_rest)) {
            let sum = if at_rest { &mut rest } else { states.entry(reason).or_default() };
            sum.add(part);
        }
        let mut sleeps = BTreeMap::<(TextName, SleepPlace), Part>::new();
        for ((task, place), part) in self.parts(names, |place| place) {
            if place.reason.is_blocked() {
                sleeps.entry((names.comm_of(task), place)).or_default().add(part);
            }
        }
        let states = states.into_iter().map(|(state, part)| StateTime {
            state,
            total_ns: part.ns.round() as u64,
            error_ns: part.error_ns(),
        });
        let states = states.filter(|time| time.total_ns > 0).collect();
        let sleeps = sleeps.into_iter().map(|((comm, place), part)| SleepRow {
            state: place.reason,
            lock: place.lock.map(|lock| names.lock(lock).name.clone()),
            at_rest: place.at_rest,
            comm: names.text_of(comm).as_ref().to_owned(),
            stack: place.site.map(|site| names.functions(site)).unwrap_or_default(),
            total_ns: part.ns.round() as u64,
            error_ns: part.error_ns(),
            looks: part.looks,
            woken_by: place.site.and_then(|site| self.waker(names, site)),
        });
        let sleeps = sleeps.filter(|row| row.total_ns > 0).collect();
        let total_ns = self.exact.values().fold(0, |sum: u64, ns| sum.saturating_add(*ns));
        let rest_ns = rest.ns.round() as u64;
        let mut report = ThreadsReport {
            total_ns,
            watched_ns: self.watched_ns,
            rest_ns,
            states,
            sleeps,
            open_waits: self.open_waits.clone(),
            cut_waits: self.cut_waits.clone(),
            spins: self.spin_rows(names),
            run_samples: self.run_samples,
        };
        report.put_in_order();
        Some(report)
    }

    fn spin_rows(&self, names: &Names) -> Vec<SpinRow> {
        self.spins
            .iter()
            .map(|(key, spun)| SpinRow {
                how: key.how,
                happened: key.wait.map(|(happened, ..)| happened),
                kind: key.wait.map(|(_, kind, _)| kind),
                lock: key
                    .wait
                    .filter(|(happened, ..)| *happened == Happened::Wait)
                    .map(|(.., lock)| names.lock(lock).name.clone()),
                comm: names.text_of(key.comm).as_ref().to_owned(),
                stack: key.site.map(|site| names.functions(site)).unwrap_or_default(),
                spun: *spun,
            })
            .collect()
    }

    /// Shares each exact time out among what the looks found in it, told apart as asked: the parts add up to it again.
    fn parts<Key: std::hash::Hash + Eq + Copy>(
        &self,
        names: &Names,
        told_apart: impl Fn(SleepPlace) -> Key,
    ) -> HashMap<(TaskName, Key), Part> {
        // Threads of a name do alike: where no look has met one of a process, those of others stand for it.
        let mut of_tasks = HashMap::<(TaskName, ThreadState), Found<Key>>::new();
        let mut of_names = HashMap::<(TextName, ThreadState), Found<Key>>::new();
        for (key, sum) in &self.sleeps {
            let place = key.place();
            let found = of_tasks.entry((key.task, key.counted_as)).or_default();
            found.add(told_apart(place), place.site.is_some(), sum);
            let found = of_names.entry((names.comm_of(key.task), key.counted_as)).or_default();
            found.add(told_apart(place), place.site.is_some(), sum);
        }
        let mut parts = HashMap::<_, Part>::new();
        for ((task, state), exact_ns) in &self.exact {
            let exact_ns = *exact_ns as f64;
            let of_name = || of_names.get(&(names.comm_of(*task), *state));
            let found = of_tasks.get(&(*task, *state)).filter(|found| found.has_stacks()).or_else(of_name);
            let Some(found) = found.filter(|found| found.estimated_ns() > 0.0) else {
                let place = SleepPlace { reason: *state, lock: None, at_rest: false, site: None };
                let part = Part { ns: exact_ns, ..Part::default() };
                parts.entry((*task, told_apart(place))).or_default().add(part);
                continue;
            };
            let estimated_ns = found.estimated_ns();
            let scale = exact_ns / estimated_ns;
            for (key, sum) in found.counted() {
                let share = sum.estimate_ns as f64 / estimated_ns;
                // The whole is known: what is the whole has no error.
                let variance_ns2 = sum.variance_ns2 * scale * scale * (1.0 - share);
                let part = Part { ns: exact_ns * share, variance_ns2, looks: sum.looks };
                parts.entry((*task, *key)).or_default().add(part);
            }
        }
        parts
    }
}

/// Where and for what a thread sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SleepPlace {
    reason: ThreadState,
    lock: Option<LockName>,
    at_rest: bool,
    site: Option<StackName>,
}

impl SleepKey {
    const fn place(&self) -> SleepPlace {
        SleepPlace { reason: self.reason, lock: self.lock, at_rest: self.at_rest, site: self.site }
    }
}

/// What looks found of threads in one state.
struct Found<Key> {
    with_stacks: HashMap<Key, SleepSum>,
    without: HashMap<Key, SleepSum>,
}

impl<Key> Default for Found<Key> {
    fn default() -> Self {
        Self { with_stacks: HashMap::new(), without: HashMap::new() }
    }
}

impl<Key: std::hash::Hash + Eq + Copy> Found<Key> {
    fn add(&mut self, key: Key, has_stack: bool, sum: &SleepSum) {
        let sums = if has_stack { &mut self.with_stacks } else { &mut self.without };
        sums.entry(key).or_default().add(sum);
    }

    fn has_stacks(&self) -> bool {
        !self.with_stacks.is_empty()
    }

    /// Those of which no stack was taken were like those of which one was.
    fn counted(&self) -> &HashMap<Key, SleepSum> {
        if self.has_stacks() { &self.with_stacks } else { &self.without }
    }

    fn estimated_ns(&self) -> f64 {
        self.counted().values().map(|sum| sum.estimate_ns as f64).sum()
    }
}

impl SleepSum {
    fn add(&mut self, other: &SleepSum) {
        self.looks = self.looks.saturating_add(other.looks);
        self.estimate_ns = self.estimate_ns.saturating_add(other.estimate_ns);
        self.variance_ns2 += other.variance_ns2;
    }
}

fn open_wait(
    names: &mut Names,
    interval_names: &mut IntervalNames<'_>,
    interval: &Interval,
    wait: &OpenWait,
    query: &Query,
) -> Option<OpenWaitRow> {
    let tables = &interval.tables;
    let (lock, task) = (tables.lock(wait.lock)?, tables.task(wait.task)?);
    if !query.wants_wait(lock, wait.kind, wait.mode, task) {
        return None;
    }
    let who = |id: TaskId| tables.task(id).map(|task| RowTask { tgid: Some(task.tgid), comm: task.comm.clone() });
    let mut functions = |site: Option<StackId>| {
        let stack = site.and_then(|site| interval_names.stack(names, site, true));
        stack.map_or_else(Arc::default, |stack| names.functions(stack.all))
    };
    Some(OpenWaitRow {
        task: who(wait.task)?,
        tid: wait.tid,
        is_kernel: wait.reason == ThreadState::KernelLock,
        lock: lock.name.clone(),
        kind: wait.kind,
        mode: wait.mode,
        instance: wait.instance,
        stack: functions(wait.site),
        age_ns: wait.age_ns,
        is_older: wait.is_older,
        is_timed: wait.is_timed,
        holder: wait.holder.and_then(|holder| {
            let stack = functions(holder.site);
            Some(RowHolder { task: who(holder.task)?, tid: holder.tid, state: holder.state, stack })
        }),
        ended_holder: wait.ended_holder,
        deadlock: wait.deadlock,
    })
}

fn row_bytes(row: &OpenWaitRow) -> usize {
    let holder = row.holder.as_ref().map_or(0, |holder| holder.task.comm.len() + 16 * holder.stack.len());
    size_of::<OpenWaitRow>() + row.task.comm.len() + row.lock.len() + 16 * row.stack.len() + holder
}
