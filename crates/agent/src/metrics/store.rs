//! Sums of everything metered since the agent began.

use std::collections::{BTreeMap, HashMap};

use lockmeter_profile::latency::LatencyReport;
use lockmeter_profile::{Happened, Kind, Losses, Overhead, Report, Row, Space, ThreadState};

use super::catalog::Metric;
use super::distribution::Distribution;
use super::family::{Exemplar, Family, Labels, Sample, Value};
use super::top_locks::Top;
use crate::identity::Workload;

/// The shared series.
const OTHER: &str = "other";

/// Longest value of a label, in bytes: programs choose the names of their locks.
const LONGEST_LABEL: usize = 160;

/// Series of interrupts and softirqs; a machine has fewer.
const MOST_INTERRUPTS: usize = 256;

const NS: f64 = 1e-9;

/// How many series there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Locks with series of their own.
    pub locks: usize,
    /// Workloads with series of their own.
    pub workloads: usize,
}

/// A lock as metrics tell it from others.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LockKey {
    lock: String,
    space: Space,
    kind: &'static str,
    mode: &'static str,
}

#[derive(Debug, Clone, Default)]
struct LockSums {
    waits: Distribution,
    spin_ns: u64,
    timeouts: u64,
    timeout_ns: u64,
    holds: Distribution,
    contended: Distribution,
    /// Of the waits.
    exemplar: Option<Exemplar>,
}

/// What the agent says of itself; it is told anew for each interval.
#[derive(Debug, Clone, Default)]
pub struct AgentState {
    /// `lockmeter_agent_info`.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// CPUs that are online.
    pub cpus: u32,
    /// Memory in bytes, by part.
    pub memory: Vec<(&'static str, u64)>,
    /// How much of each budget is used.
    pub budgets: Vec<(&'static str, f64)>,
    /// Whether what the configuration asks for is metered.
    pub details: Vec<(&'static str, bool)>,
    /// What the flight recorder keeps: for how long in nanoseconds, and in how many bytes. `None` without one.
    pub recorder: Option<(u64, u64)>,
}

/// Sums of everything metered.
pub struct Store {
    locks: Top<LockKey, LockSums>,
    other_locks: BTreeMap<Space, LockSums>,
    workloads: Option<Top<(Workload, Space), (u64, u64)>>,
    other_workloads: BTreeMap<Space, (u64, u64)>,
    merged: BTreeMap<&'static str, u64>,
    threads: BTreeMap<(&'static str, &'static str), u64>,
    open: BTreeMap<Space, (u64, u64)>,
    deadlocked: u64,
    interrupts: BTreeMap<(Kind, String), (u64, u64)>,
    losses: Losses,
    overhead: Overhead,
    own_wait_ns: u64,
    intervals: u64,
    last_end_unix_ns: u64,
    shed: BTreeMap<&'static str, u64>,
    recordings: BTreeMap<(&'static str, &'static str), (u64, Option<Exemplar>)>,
    reloads: BTreeMap<&'static str, u64>,
    requests: BTreeMap<&'static str, u64>,
    state: AgentState,
}

impl Store {
    /// Nothing yet.
    pub fn new(limits: Limits, with_workloads: bool) -> Self {
        Self {
            locks: Top::new(limits.locks),
            other_locks: BTreeMap::new(),
            workloads: with_workloads.then(|| Top::new(limits.workloads)),
            other_workloads: BTreeMap::new(),
            merged: BTreeMap::new(),
            threads: BTreeMap::new(),
            open: BTreeMap::new(),
            deadlocked: 0,
            interrupts: BTreeMap::new(),
            losses: Losses::default(),
            overhead: Overhead::default(),
            own_wait_ns: 0,
            intervals: 0,
            last_end_unix_ns: 0,
            shed: BTreeMap::new(),
            recordings: BTreeMap::new(),
            reloads: BTreeMap::new(),
            requests: BTreeMap::new(),
            state: AgentState::default(),
        }
    }

    /// Takes an interval in: its report by lock, or by lock and control group where workloads are told apart.
    pub fn add(&mut self, report: &Report, mut workload_of: impl FnMut(&str) -> Workload) {
        let mut by_lock = HashMap::<LockKey, Vec<&Row>>::new();
        let mut by_workload = HashMap::<(Workload, Space), (u64, u64)>::new();
        for row in report.rows.iter().filter(|row| !row.own) {
            let Some(key) = LockKey::of(row) else { continue };
            if row.happened == Happened::Wait && self.workloads.is_some() {
                let workload = workload_of(row.cgroup.as_deref().unwrap_or(""));
                let sum = by_workload.entry((workload, key.space)).or_default();
                *sum = (sum.0.saturating_add(row.value.count), sum.1.saturating_add(row.value.total_ns));
            }
            by_lock.entry(key).or_default().push(row);
        }
        self.add_locks(by_lock);
        self.add_workloads(by_workload);
        self.add_threads(report);
        self.own_wait_ns = self.own_wait_ns.saturating_add(report.own_waits.total_ns);
        self.losses.merge(&report.losses);
        self.overhead.merge(&report.overhead);
        self.intervals += 1;
        self.last_end_unix_ns = report.start_unix_ns.saturating_add(report.duration_ns);
    }

    fn add_locks(&mut self, by_lock: HashMap<LockKey, Vec<&Row>>) {
        let weight = |rows: &[&Row]| rows.iter().fold(0_u64, |sum, row| sum.saturating_add(row.value.total_ns));
        let mut by_lock: Vec<_> = by_lock.into_iter().map(|(key, rows)| (weight(&rows), key, rows)).collect();
        by_lock.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        for (weight, key, rows) in by_lock {
            let sums = match self.locks.of(&key, weight as f64) {
                Some(sums) => sums,
                None => {
                    let merged = self.merged.entry("other_lock").or_default();
                    *merged += rows.iter().map(|row| row.value.count).sum::<u64>();
                    self.other_locks.entry(key.space).or_default()
                }
            };
            rows.iter().for_each(|row| sums.add(row));
        }
        self.locks.end_interval();
    }

    fn add_workloads(&mut self, by_workload: HashMap<(Workload, Space), (u64, u64)>) {
        let Some(workloads) = &mut self.workloads else { return };
        let mut by_workload: Vec<_> = by_workload.into_iter().collect();
        by_workload.sort_by(|a, b| b.1.1.cmp(&a.1.1).then_with(|| a.0.cmp(&b.0)));
        for (key, (count, total_ns)) in by_workload {
            let sum = match workloads.of(&key, total_ns as f64) {
                Some(sum) => sum,
                None => {
                    *self.merged.entry("other_workload").or_default() += count;
                    self.other_workloads.entry(key.1).or_default()
                }
            };
            *sum = (sum.0.saturating_add(count), sum.1.saturating_add(total_ns));
        }
        workloads.end_interval();
    }

    fn add_threads(&mut self, report: &Report) {
        self.open = BTreeMap::from([(Space::Kernel, (0, 0)), (Space::User, (0, 0))]);
        self.deadlocked = 0;
        let Some(threads) = &report.threads else { return };
        let states = threads.states.iter().map(|time| (thread_labels(time.state), time.total_ns));
        for (labels, ns) in states.chain([(("blocked", "at-rest"), threads.rest_ns)]) {
            let sum = self.threads.entry(labels).or_default();
            *sum = sum.saturating_add(ns);
        }
        for wait in &threads.open_waits {
            let space = if wait.is_kernel { Space::Kernel } else { Space::User };
            let (count, oldest_ns) = self.open.entry(space).or_default();
            (*count, *oldest_ns) = (*count + 1, (*oldest_ns).max(wait.age_ns));
            self.deadlocked += u64::from(wait.deadlock.is_some() || wait.ended_holder.is_some());
        }
    }

    /// Takes in what ran and kept CPUs from their tasks. Only interrupts and softirqs are told apart by name.
    pub fn add_latency(&mut self, report: &LatencyReport) {
        for row in &report.rows {
            let named = matches!(row.kind, Kind::Irq | Kind::Softirq);
            let name = if named { bounded(&row.name) } else { String::new() };
            let mut key = (row.kind, name);
            if !self.interrupts.contains_key(&key) && self.interrupts.len() >= MOST_INTERRUPTS {
                *self.merged.entry("other_interrupt").or_default() += row.runs.count;
                key.1 = OTHER.to_owned();
            }
            let (count, ns) = self.interrupts.entry(key).or_default();
            (*count, *ns) = (count.saturating_add(row.runs.count), ns.saturating_add(row.runs.spin_ns));
        }
    }

    /// What the agent says of itself from now on.
    pub fn set_state(&mut self, state: AgentState) {
        self.state = state;
    }

    /// A detail was shed for this budget.
    pub fn count_shed(&mut self, budget: &'static str) {
        *self.shed.entry(budget).or_default() += 1;
    }

    /// A recording that a trigger asked for was written, suppressed or failed. Where to find it, and of which wait it is.
    pub fn count_recording(
        &mut self,
        trigger: &'static str,
        result: &'static str,
        exemplar: Option<Exemplar>,
        wait: Option<&(LockKey, f64)>,
    ) {
        if let (Some((lock, seconds)), Some(exemplar)) = (wait, &exemplar) {
            let sums = self.locks.shown_of(lock).or_else(|| self.other_locks.get_mut(&lock.space));
            let exemplar = Exemplar { value: *seconds, ..exemplar.clone() };
            sums.into_iter().for_each(|sums| sums.exemplar = Some(exemplar.clone()));
        }
        let counted = self.recordings.entry((trigger, result)).or_default();
        counted.0 += 1;
        counted.1 = exemplar.or_else(|| counted.1.take());
    }

    /// The configuration was read again.
    pub fn count_reload(&mut self, result: &'static str) {
        *self.reloads.entry(result).or_default() += 1;
    }

    /// A request ended so.
    pub fn count_request(&mut self, result: &'static str) {
        *self.requests.entry(result).or_default() += 1;
    }

    /// CPU time of metering since the agent began.
    pub const fn cpu_ns(&self) -> u64 {
        self.overhead.own_cpu_ns.saturating_add(self.overhead.program_run_ns)
    }

    /// All metrics as they are now.
    pub fn families(&self) -> Vec<Family> {
        let families = Metric::ALL.iter().map(|metric| Family { metric: *metric, samples: self.samples(*metric) });
        families.filter(|family| !family.samples.is_empty()).collect()
    }

    fn samples(&self, metric: Metric) -> Vec<Sample> {
        let one = |value: f64| vec![number(vec![], value)];
        let seconds = |ns: u64| ns as f64 * NS;
        match metric {
            Metric::LockWait => self.distributions(|sums| (&sums.waits, sums.exemplar.as_ref())),
            Metric::LockHold => self.distributions(|sums| (&sums.holds, None)),
            Metric::LockContendedHold => self.distributions(|sums| (&sums.contended, None)),
            Metric::LockSpin => self.numbers(|sums| (sums.waits.count > 0).then(|| seconds(sums.spin_ns))),
            Metric::LockTimeouts => self.numbers(|sums| (sums.timeouts > 0).then_some(sums.timeouts as f64)),
            Metric::LockTimeoutWait => self.numbers(|sums| (sums.timeouts > 0).then(|| seconds(sums.timeout_ns))),
            Metric::Threads => {
                let labels = |state: &str, reason: &str| vec![state.to_owned(), reason.to_owned()];
                self.threads.iter().map(|((state, reason), ns)| number(labels(state, reason), seconds(*ns))).collect()
            }
            Metric::WorkloadWaits => self.of_workloads(|(count, _)| count as f64),
            Metric::WorkloadWait => self.of_workloads(|(_, ns)| seconds(ns)),
            Metric::OpenWaits => {
                self.open.iter().map(|(space, open)| number(vec![space.name().into()], open.0 as f64)).collect()
            }
            Metric::OldestOpenWait => {
                self.open.iter().map(|(space, open)| number(vec![space.name().into()], seconds(open.1))).collect()
            }
            Metric::Deadlocked => one(self.deadlocked as f64),
            Metric::Interrupts => self.of_interrupts(|(count, _)| count as f64),
            Metric::InterruptTime => self.of_interrupts(|(_, ns)| seconds(ns)),
            Metric::Cpus => one(f64::from(self.state.cpus)),
            Metric::AgentInfo => vec![number(vec![self.state.version.clone(), self.state.kernel.clone()], 1.0)],
            Metric::AgentCpu => vec![
                number(vec!["process".into()], seconds(self.overhead.own_cpu_ns)),
                number(vec!["kernel_programs".into()], seconds(self.overhead.program_run_ns)),
            ],
            Metric::AgentMemory => {
                self.state.memory.iter().map(|(part, bytes)| number(vec![(*part).into()], *bytes as f64)).collect()
            }
            Metric::AgentBudgetUsed => {
                self.state.budgets.iter().map(|(budget, ratio)| number(vec![(*budget).into()], *ratio)).collect()
            }
            Metric::AgentDetail => {
                let value = |metered: bool| f64::from(u8::from(metered));
                self.state
                    .details
                    .iter()
                    .map(|(detail, metered)| number(vec![(*detail).into()], value(*metered)))
                    .collect()
            }
            Metric::AgentShed => counted(&self.shed),
            Metric::AgentLost => {
                self.losses.iter().map(|(loss, count)| number(vec![loss.name().into()], count as f64)).collect()
            }
            Metric::AgentMerged => counted(&self.merged),
            Metric::AgentOwnWait => one(seconds(self.own_wait_ns)),
            Metric::AgentIntervals => one(self.intervals as f64),
            Metric::AgentLastInterval => one(seconds(self.last_end_unix_ns)),
            Metric::AgentRecordings => {
                let labels = |(trigger, result): &(&str, &str)| vec![(*trigger).to_owned(), (*result).to_owned()];
                let sample = |(key, (count, exemplar)): (_, &(u64, Option<Exemplar>))| Sample {
                    exemplar: exemplar.clone(),
                    ..number(labels(key), *count as f64)
                };
                self.recordings.iter().map(sample).collect()
            }
            Metric::AgentRecorderKept => self.state.recorder.iter().flat_map(|(ns, _)| one(seconds(*ns))).collect(),
            Metric::AgentRecorderBytes => {
                self.state.recorder.iter().flat_map(|(_, bytes)| one(*bytes as f64)).collect()
            }
            Metric::AgentReloads => counted(&self.reloads),
            Metric::AgentRequests => counted(&self.requests),
        }
    }

    fn all_locks(&self) -> impl Iterator<Item = (Labels, &LockSums)> {
        let labels = |key: &LockKey| vec![key.lock.clone(), key.space.name().into(), key.kind.into(), key.mode.into()];
        let others = self.other_locks.iter();
        let others =
            others.map(|(space, sums)| (vec![OTHER.into(), space.name().into(), String::new(), String::new()], sums));
        self.locks.shown().into_iter().map(move |(key, sums)| (labels(key), sums)).chain(others)
    }

    fn distributions(&self, of: impl Fn(&LockSums) -> (&Distribution, Option<&Exemplar>)) -> Vec<Sample> {
        let seen = self.all_locks().map(|(labels, sums)| (labels, of(sums))).filter(|(_, (seen, _))| seen.count > 0);
        seen.map(|(labels, (seen, exemplar))| Sample {
            labels,
            value: Value::Histogram(seen.clone()),
            exemplar: exemplar.cloned(),
        })
        .collect()
    }

    fn numbers(&self, of: impl Fn(&LockSums) -> Option<f64>) -> Vec<Sample> {
        self.all_locks().filter_map(|(labels, sums)| Some(number(labels, of(sums)?))).collect()
    }

    fn of_workloads(&self, of: impl Fn((u64, u64)) -> f64) -> Vec<Sample> {
        let Some(workloads) = &self.workloads else { return Vec::new() };
        let labels = |workload: &Workload, space: &Space| {
            let Workload { unit, namespace, pod, container } = workload;
            [unit, namespace, pod, container]
                .into_iter()
                .map(|text| bounded(text))
                .chain([space.name().into()])
                .collect()
        };
        let own =
            workloads.shown().into_iter().map(|((workload, space), sum)| number(labels(workload, space), of(*sum)));
        let other = Workload { unit: OTHER.into(), ..Workload::default() };
        let others = self.other_workloads.iter().map(|(space, sum)| number(labels(&other, space), of(*sum)));
        own.chain(others).collect()
    }

    fn of_interrupts(&self, of: impl Fn((u64, u64)) -> f64) -> Vec<Sample> {
        let labels = |kind: &Kind, name: &str| vec![kind.name().to_owned(), name.to_owned()];
        self.interrupts.iter().map(|((kind, name), sum)| number(labels(kind, name), of(*sum))).collect()
    }
}

impl LockSums {
    fn add(&mut self, row: &Row) {
        let (value, histogram) = (&row.value, row.histogram.as_slice());
        match row.happened {
            Happened::Wait => {
                self.waits.add(histogram, value.count, value.total_ns);
                self.spin_ns = self.spin_ns.saturating_add(value.spin_ns);
            }
            Happened::TimedOut => {
                self.timeouts = self.timeouts.saturating_add(value.count);
                self.timeout_ns = self.timeout_ns.saturating_add(value.total_ns);
            }
            Happened::Hold => self.holds.add(histogram, value.count, value.total_ns),
            Happened::ContendedHold => self.contended.add(histogram, value.count, value.total_ns),
            _ => {}
        }
    }
}

impl LockKey {
    /// `None` for what is no lock.
    pub fn of(row: &Row) -> Option<Self> {
        let is_lock =
            matches!(row.happened, Happened::Wait | Happened::TimedOut | Happened::Hold | Happened::ContendedHold);
        let lock = bounded(row.lock.as_deref().filter(|_| is_lock)?);
        let (kind, mode) = (row.kind.map_or("", Kind::name), row.mode.map_or("", |mode| mode.name()));
        Some(Self { lock, space: row.naming?.space(), kind, mode })
    }
}

const fn thread_labels(state: ThreadState) -> (&'static str, &'static str) {
    match state {
        ThreadState::Running => ("running", ""),
        ThreadState::Runnable | ThreadState::Woken => ("runnable", ""),
        blocked => ("blocked", blocked.name()),
    }
}

fn number(labels: Labels, value: f64) -> Sample {
    Sample { labels, value: Value::Number(value), exemplar: None }
}

fn counted(counts: &BTreeMap<&'static str, u64>) -> Vec<Sample> {
    counts.iter().map(|(label, count)| number(vec![(*label).to_owned()], *count as f64)).collect()
}

/// A name as a label may have it: cut, and without control characters.
fn bounded(text: &str) -> String {
    let end = (0..=LONGEST_LABEL.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text[..end].chars().map(|letter| if letter.is_control() { char::REPLACEMENT_CHARACTER } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockmeter_profile::view::{Query, ReportBuilder};
    use lockmeter_profile::{
        About, Bucket, Cgroup, Dimension, Interval, Key, Lock, Mode, Naming, Task, Total, Value as Counted,
    };

    const LIMITS: Limits = Limits { locks: 2, workloads: 1 };

    /// An interval in which each of these locks was waited for so often, 1 µs each, in the control group.
    fn report(waits: &[(&str, u64)], cgroup: &str, own: bool) -> Report {
        let mut interval = Interval { start_unix_ns: 1_000_000_000, duration_ns: 1_000_000_000, ..Interval::default() };
        let cgroup = interval.tables.intern_cgroup(Cgroup { id: 1, path: Some(cgroup.to_owned()) });
        let task = interval.tables.intern_task(Task { tgid: 1, comm: "t".into(), own });
        for (name, count) in waits {
            let lock = Lock { name: (*name).into(), object: None, naming: Naming::Symbol, detail: String::new() };
            let key = Key {
                happened: Happened::Wait,
                lock: interval.tables.intern_lock(lock),
                kind: Kind::Mutex,
                mode: Mode::Exclusive,
                task: Some(task),
                cgroup: Some(cgroup),
                context: None,
                cpu: None,
                bucket: Bucket::of(1_000),
            };
            let value = Counted { count: *count, total_ns: count * 1_000, max_ns: 1_000, spin_ns: 0 };
            interval.totals.push(Total { key, value });
        }
        let mut builder = ReportBuilder::new(&About::default(), &Query::by([Dimension::Lock, Dimension::Cgroup]));
        builder.add(&interval);
        builder.finish()
    }

    fn workload(path: &str) -> Workload {
        Workload { unit: path.to_owned(), ..Workload::default() }
    }

    /// `lock` or `unit` of each series, with its count.
    fn counts(store: &Store, metric: Metric) -> Vec<(String, u64)> {
        let count = |value: &Value| match value {
            Value::Number(number) => *number as u64,
            Value::Histogram(distribution) => distribution.count,
        };
        store.samples(metric).iter().map(|sample| (sample.labels[0].clone(), count(&sample.value))).collect()
    }

    #[test]
    fn every_wait_is_in_one_series_and_what_was_merged_is_counted() {
        let mut store = Store::new(LIMITS, true);
        store.add(&report(&[("a", 30), ("b", 20), ("c", 10), ("d", 5)], "/one", false), workload);
        store.add(&report(&[("c", 15)], "/two", false), workload);
        let waits = counts(&store, Metric::LockWait);
        assert_eq!(waits, [("a".into(), 30), ("b".into(), 20), ("other".into(), 30)]);
        assert_eq!(counts(&store, Metric::AgentMerged), [("other_lock".into(), 30), ("other_workload".into(), 15)]);
        let of_workloads = counts(&store, Metric::WorkloadWaits);
        assert_eq!(of_workloads.iter().map(|(_, count)| count).sum::<u64>(), 80, "{of_workloads:?}");
    }

    #[test]
    fn a_lock_that_becomes_busy_gets_a_series_and_no_counter_goes_back() {
        let mut store = Store::new(LIMITS, false);
        let mut before = HashMap::<(Metric, Labels), f64>::new();
        for round in 0..50 {
            let busy = format!("lock-{}", round / 10);
            store.add(&report(&[("a", 3), ("b", 2), (&busy, 1_000)], "/", false), workload);
            for family in store.families().iter().filter(|family| family.metric.kind() != crate::metrics::Type::Gauge) {
                for sample in &family.samples {
                    let now = match &sample.value {
                        Value::Number(value) => *value,
                        Value::Histogram(distribution) => distribution.count as f64,
                    };
                    let last = before.insert((family.metric, sample.labels.clone()), now).unwrap_or(0.0);
                    assert!(now >= last, "{:?} {:?} went from {last} to {now}", family.metric, sample.labels);
                }
            }
        }
        let waits = counts(&store, Metric::LockWait);
        assert!(waits.iter().any(|(lock, _)| lock == "lock-4"), "{waits:?}");
    }

    #[test]
    fn lockmeters_own_waits_are_in_no_locks_series() {
        let mut store = Store::new(LIMITS, false);
        store.add(&report(&[("a", 3)], "/", true), workload);
        assert!(counts(&store, Metric::LockWait).is_empty());
        let own = &store.samples(Metric::AgentOwnWait)[0].value;
        assert_eq!(*own, Value::Number(3_000.0 * NS));
    }

    #[test]
    fn a_recording_is_counted_and_its_wait_points_to_it() {
        let mut store = Store::new(LIMITS, false);
        let report = report(&[("a", 3)], "/", false);
        store.add(&report, workload);
        let wait = (LockKey::of(&report.rows[0]).unwrap(), 1e-6);
        let exemplar_of = |value| Exemplar { recording: "flight-1".into(), value, unix_seconds: 2.0 };
        store.count_recording("long-wait", "written", Some(exemplar_of(1.0)), Some(&wait));
        store.count_recording("long-wait", "suppressed", None, None);
        let exemplar = |metric| store.samples(metric)[0].exemplar.clone();
        assert_eq!(exemplar(Metric::LockWait), Some(exemplar_of(1e-6)));
        let recordings = store.samples(Metric::AgentRecordings);
        assert_eq!(
            recordings.iter().map(|sample| sample.labels[1].as_str()).collect::<Vec<_>>(),
            ["suppressed", "written"]
        );
        assert_eq!(recordings[1].exemplar, Some(exemplar_of(1.0)));
    }

    #[test]
    fn names_are_cut_and_cleaned() {
        assert_eq!(bounded("a\nb\x1b"), "a\u{fffd}b\u{fffd}");
        assert_eq!(bounded(&"ä".repeat(200)).len(), LONGEST_LABEL);
    }
}
