//! Groups a recording into a [`Report`].
//!
//! Rows by exact dimensions (lock, kind, mode, task, cgroup, object, context, CPU) are sums of exact totals. Rows by sampled dimensions
//! (instance, caller, blocker, file system) share out those totals among the stacks that were taken: `scaling.rs` says how. Either way
//! the rows add up to what was counted, to the nanosecond.
//!
//! Intervals are taken in one by one; memory grows with the groups, not with the recording.

mod buckets;
mod folding;
mod groups;
mod names;
mod query;
mod rows;
mod scaling;
mod slow_holds;
mod threads;
mod worst;

use std::collections::HashMap;

use crate::filesystem::OfFilesystem;
use crate::interval::{Basis, BlockerSource, CgroupId, Interval, Overhead, Sampled, StackId, TaskId, Total};
use crate::limits::{Limits, TooLarge};
use crate::lock::Space;
use crate::loss::{Loss, Losses};
use crate::report::{About, Dimension, Goroutines, ParkedTime, Report, SampledSpin, Spinning};
use crate::sample::{Happened, Key, Kind, Value};
use crate::swap::Swaps;
use crate::switched_off::SwitchedOff;
use crate::thread_time::{Parked, SampledWait, Spin};
pub use folding::SMALL_ONES;
use groups::{
    Blamed, Group, HolderStates, LockGroup, Measured, RunDelay, Samples, Site, SiteEstimate, SomeSamples, Uniform,
    merge_samples,
};
use names::{IntervalNames, LockName, NamedStack, Names, StackName, TextName};
pub use query::{NamePattern, Query, TaskPattern};
use slow_holds::SlowHolds;
use threads::ThreadSums;
use worst::Blame;

/// Groups these intervals.
pub fn report(about: &About, intervals: impl Iterator<Item = Interval>, query: &Query) -> Report {
    let mut builder = ReportBuilder::new(about, query);
    for interval in intervals {
        builder.add(&interval);
    }
    builder.finish()
}

/// A report in the making: take intervals in with [`add`](Self::add), in any order, and look at it at any time.
#[derive(Debug, Clone)]
pub struct ReportBuilder {
    about: About,
    query: Query,
    has_head: bool,
    names: Names,
    /// What the rows are made of, with the query's filters applied.
    groups: HashMap<Group, Measured>,
    /// All waits but lockmeter's own, unfiltered.
    locks: HashMap<LockGroup, Value>,
    timed_out: HashMap<LockGroup, Value>,
    /// Who is to blame for waits that timed out.
    timed_out_blame: HashMap<LockGroup, Blame>,
    blame: HashMap<LockGroup, Blame>,
    slow_holds: SlowHolds,
    threads: ThreadSums,
    waits: Value,
    user_waits: Value,
    own_waits: Value,
    spinning: Spinning,
    goroutines: Goroutines,
    /// What the groups take, about; names apart.
    groups_bytes: usize,
    /// How many groups and sites were added up to others because memory was short; `None` if that is not wanted.
    folded: Option<u64>,
    /// When the first interval that was seen began.
    begun_unix_ns: Option<u64>,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    intervals: u64,
    losses: Losses,
    swaps: Swaps,
    off: SwitchedOff,
    overhead: Overhead,
}

/// What a group takes, its text apart, until it is the row that is shown.
const GROUP_BYTES: usize = 1000;

/// What each site of a group takes until it is a row.
const SITE_BYTES: usize = 400;

/// And what it takes besides where rows tell blockers apart.
const BLAMED_BYTES: usize = 110;

/// What a lock takes in the head of a report.
const HEAD_BYTES: usize = 150;

/// What each name takes that is blamed for a lock.
const BLAME_BYTES: usize = 64;

/// Waits for a lock that samples have met.
struct Met {
    who: (TaskId, Option<CgroupId>),
    wait: SampledWait,
    site: Option<StackId>,
    samples: Samples,
    /// Why it is not known who was to blame.
    source: BlockerSource,
}

impl ReportBuilder {
    /// An empty report.
    pub fn new(about: &About, query: &Query) -> Self {
        Self {
            about: about.clone(),
            query: query.clone(),
            has_head: true,
            names: Names::default(),
            groups: HashMap::new(),
            locks: HashMap::new(),
            timed_out: HashMap::new(),
            timed_out_blame: HashMap::new(),
            blame: HashMap::new(),
            slow_holds: SlowHolds::default(),
            threads: ThreadSums::default(),
            waits: Value::default(),
            user_waits: Value::default(),
            own_waits: Value::default(),
            spinning: Spinning::default(),
            goroutines: Goroutines::default(),
            groups_bytes: 0,
            folded: None,
            begun_unix_ns: None,
            start_unix_ns: None,
            duration_ns: 0,
            intervals: 0,
            losses: Losses::default(),
            swaps: Swaps::default(),
            off: SwitchedOff::default(),
            overhead: Overhead::default(),
        }
    }

    /// One of rows alone, which takes less time the more the query leaves out: nothing is said of what has no row, nor of threads and slow
    /// holds.
    pub fn of_rows(about: &About, query: &Query) -> Self {
        Self { has_head: false, ..Self::new(about, query) }
    }

    /// One that adds up what is small where memory is short, as [`SMALL_ONES`]: stacks, whoever is to blame, and threads.
    pub fn folding(about: &About, query: &Query) -> Self {
        Self { folded: Some(0), ..Self::new(about, query) }
    }

    /// How many of them were added up so far; one that came back later is counted again.
    pub fn folded(&self) -> u64 {
        self.folded.unwrap_or(0)
    }

    /// Takes an interval in, if it lies in the query's window.
    pub fn add(&mut self, interval: &Interval) {
        // Nothing is too large for no limits.
        let _ = self.add_within(interval, &Limits::NONE);
    }

    /// Takes in an interval of a file that may be anybody's. After an error the report is of no use.
    pub fn add_within(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        // Not since the file was made: until everything was attached, nothing was metered.
        let begun_unix_ns = *self.begun_unix_ns.get_or_insert(interval.start_unix_ns);
        let offset_ns = interval.start_unix_ns.saturating_sub(begun_unix_ns);
        if !self.query.covers(offset_ns, interval.duration_ns) {
            return Ok(());
        }
        let first_ns = self.start_unix_ns.map_or(interval.start_unix_ns, |ns| ns.min(interval.start_unix_ns));
        self.start_unix_ns = Some(first_ns);
        self.duration_ns = self.duration_ns.saturating_add(interval.duration_ns);
        self.intervals += 1;
        self.losses.merge(&interval.losses);
        self.swaps.merge(&interval.swaps);
        self.off.merge(&interval.off);
        self.overhead.merge(&interval.overhead);
        let mut interval_names = self.names.interval_names(&interval.tables);
        for total in &interval.totals {
            self.add_total(&mut interval_names, total);
            self.keep_within(limits)?;
        }
        for basis in &interval.bases {
            self.add_basis(&mut interval_names, basis);
            self.keep_within(limits)?;
        }
        for sampled in &interval.sampled {
            self.add_sampled(&mut interval_names, sampled);
            self.keep_within(limits)?;
        }
        for spin in &interval.threads.spins {
            self.add_spin(&mut interval_names, spin);
            self.keep_within(limits)?;
        }
        for parked in &interval.threads.parked {
            self.add_parked(&mut interval_names, parked);
            self.keep_within(limits)?;
        }
        let looks = &mut self.goroutines.looks;
        *looks = looks.saturating_add(interval.threads.goroutine_looks);
        if self.has_head {
            for hold in &interval.slow_holds {
                self.slow_holds.add(&mut self.names, &mut interval_names, interval, hold, &self.query);
                self.keep_within(limits)?;
            }
            self.threads.add(&mut self.names, &mut interval_names, interval, &self.query);
            self.keep_within(limits)?;
        }
        let dangling = interval_names.dangling();
        self.losses.add(Loss::DanglingReference, dangling);
        self.keep_within(limits)
    }

    /// What the report takes so far, about.
    fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.groups_bytes + self.slow_holds.memory_bytes() + self.threads.memory_bytes()
    }

    /// Adds losses that no interval knows of: those of the [reader](crate::recording::RecordingReader::losses).
    pub fn add_losses(&mut self, losses: &Losses) {
        self.losses.merge(losses);
    }

    /// The report, with the intervals taken in so far.
    pub fn report(&self) -> Report {
        self.clone().finish()
    }

    /// The report.
    pub fn finish(self) -> Report {
        self.build(&Limits::NONE).0
    }

    /// The report of a file that may be anybody's.
    pub fn finish_within(mut self, limits: &Limits) -> Result<Report, TooLarge> {
        self.make_room_for_rows(limits)?;
        match self.build(limits) {
            (report, Ok(())) => Ok(report),
            (_, Err(error)) => Err(error),
        }
    }

    /// A report, without rows if they are too large.
    fn build(mut self, limits: &Limits) -> (Report, Result<(), TooLarge>) {
        let offset_ns = self.query.window.map_or(0, |(from_ns, _)| from_ns);
        let begun_unix_ns = self.begun_unix_ns.unwrap_or(self.about.start_unix_ns);
        let start_unix_ns = self.start_unix_ns.unwrap_or_else(|| begun_unix_ns.saturating_add(offset_ns));
        let head = worst::head(&self);
        let of_holds = self.groups.iter().filter(|(group, _)| group.happened == Happened::Hold);
        let holds = of_holds.fold((0_u64, 0_u64), |(all, untimed), (_, measured)| {
            let count = measured.exact.values().fold(0, |sum: u64, value| sum.saturating_add(value.count));
            (all.saturating_add(count), untimed.saturating_add(measured.basis.untimed))
        });
        let groups = std::mem::take(&mut self.groups);
        let (rows, outcome) = match rows::rows(&self, groups, limits) {
            Ok(rows) => (rows, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        let report = Report {
            by: self.query.by.clone(),
            leaves_locks_out: self.query.leaves_locks_out(),
            about: self.about.clone(),
            start_unix_ns,
            duration_ns: self.duration_ns,
            intervals: self.intervals,
            waits: self.waits,
            user_waits: self.user_waits,
            spinning: self.spinning,
            goroutines: self.goroutines,
            own_waits: self.own_waits,
            named_ns: head.named_ns,
            worst: head.worst,
            timed_out: head.timed_out,
            holds: holds.0,
            untimed_holds: holds.1,
            rows,
            slow_holds: self.slow_holds.rows(&self.names),
            threads: self.threads.report(&self.names),
            losses: self.losses.clone(),
            swaps: self.swaps.clone(),
            off: self.off.clone(),
            overhead: self.overhead,
        };
        (report, outcome)
    }

    /// Adds what samples say of the spinning in waits for locks.
    fn add_spin(&mut self, interval_names: &mut IntervalNames<'_>, spin: &Spin) {
        let Some(wait) = spin.wait else { return };
        let added_ns = if spin.is_part { 0 } else { spin.estimate_ns };
        let (samples, total_ns, variance_ns2) = (spin.samples, spin.estimate_ns, spin.variance_ns2);
        let spun = SampledSpin { samples, total_ns, added_ns, variance_ns2 };
        let met = Met {
            who: (spin.task, spin.cgroup),
            wait,
            site: spin.site,
            samples: Samples { spun, ..Samples::default() },
            source: BlockerSource::NeverSlept,
        };
        self.add_met(interval_names, &met);
    }

    /// Adds what looks say of goroutines that waited for locks.
    fn add_parked(&mut self, interval_names: &mut IntervalNames<'_>, parked: &Parked) {
        let Parked { looks, estimate_ns, variance_ns2, .. } = *parked;
        let met = Met {
            who: (parked.task, parked.cgroup),
            wait: parked.wait,
            site: parked.site,
            samples: Samples {
                parked: ParkedTime { looks, total_ns: estimate_ns, variance_ns2 },
                ..Samples::default()
            },
            source: BlockerSource::WakeupNotSeen,
        };
        self.add_met(interval_names, &met);
    }

    fn add_met(&mut self, interval_names: &mut IntervalNames<'_>, met: &Met) {
        let SampledWait { happened, lock, kind, mode, instance } = met.wait;
        if happened != Happened::Wait {
            return;
        }
        let (task, cgroup) = met.who;
        let key = Key { task: Some(task), cgroup, ..Key::of(happened, lock, kind, mode) };
        let Some(lock) = interval_names.lock(&key) else { return };
        interval_names.check(&key);
        let (source, value) = (met.source, met.samples.added());
        let task = interval_names.task(key.task);
        let (own, tgid) = (task.is_some_and(|task| task.own), task.map(|task| task.tgid));
        if !self.has_head && self.leaves_out(interval_names, &key, lock, own) {
            return;
        }
        let whole = self.query.is_sampled();
        let site = met.site.and_then(|stack| interval_names.stack(&mut self.names, stack, whole));
        if own {
            self.own_waits.merge(&value);
        } else {
            self.waits.merge(&value);
            self.user_waits.merge(&value);
            self.spinning.sampled.merge(&met.samples.spun);
            self.goroutines.parked.merge(&met.samples.parked);
            self.locks.entry(lock).or_insert_with(|| {
                self.groups_bytes += HEAD_BYTES;
                Value::default()
            });
            self.locks.entry(lock).and_modify(|sum| sum.merge(&value));
            let blame = self.blame.entry(lock).or_default();
            let before = blame.len();
            blame.add_wait(RunDelay::of(source, value.total_ns), met.samples.number());
            blame.add(site.and_then(|stack| stack.main), None, None, met.samples.whole_ns());
            self.groups_bytes += (blame.len() - before) * BLAME_BYTES;
        }
        let Some(group) = self.group(interval_names, &key, lock, own) else { return };
        let measured = self.measured(group);
        measured.samples.merge(&met.samples);
        measured.owner.see(tgid);
        if whole {
            let nobody = Blamed::nobody(source);
            // Of programs' locks alone.
            let key = self.site(site, nobody, (None, nobody), instance, OfFilesystem::None);
            let estimate = self.at_site(group, key);
            merge_samples(&mut estimate.samples, Some(&met.samples));
            estimate.stacks = estimate.stacks.saturating_add(met.samples.number());
        }
    }

    fn add_total(&mut self, interval_names: &mut IntervalNames<'_>, total: &Total) {
        // What ran is no wait: the latency view shows it.
        if matches!(total.key.happened, Happened::Run | Happened::Delay) {
            return;
        }
        let Some(lock) = interval_names.lock(&total.key) else {
            return;
        };
        interval_names.check(&total.key);
        let task = interval_names.task(total.key.task);
        let own = task.is_some_and(|task| task.own);
        if !self.has_head && self.leaves_out(interval_names, &total.key, lock, own) {
            return;
        }
        let is_user = interval_names.space(total.key.lock) == Space::User;
        let of_head = match total.key.happened {
            Happened::Wait if own => {
                self.own_waits.merge(&total.value);
                None
            }
            Happened::Wait => {
                self.waits.merge(&total.value);
                if is_user {
                    self.user_waits.merge(&total.value);
                }
                // A program's own spinlock may have its waiters sleep, and then none of their time is known to be spinning.
                if total.key.kind == Kind::Spin && total.value.spin_ns > 0 {
                    let preempted_ns = &mut self.spinning.preempted_ns;
                    *preempted_ns = preempted_ns.saturating_add(total.value.sleep_ns());
                }
                Some(&mut self.locks)
            }
            Happened::TimedOut if !own => Some(&mut self.timed_out),
            _ => None,
        };
        if let Some(of_head) = of_head {
            let sum = of_head.entry(lock).or_insert_with(|| {
                self.groups_bytes += HEAD_BYTES;
                Value::default()
            });
            sum.merge(&total.value);
        }
        if let Some(group) = self.group(interval_names, &total.key, lock, own) {
            let measured = self.measured(group);
            measured.exact.entry(total.key.bucket.0).merge(&total.value);
            measured.owner.see(task.filter(|_| is_user).map(|task| task.tgid));
        }
    }

    fn add_basis(&mut self, interval_names: &mut IntervalNames<'_>, basis: &Basis) {
        let Some(lock) = interval_names.lock(&basis.key) else {
            return;
        };
        let own = interval_names.task(basis.key.task).is_some_and(|task| task.own);
        let Some(group) = self.group(interval_names, &basis.key, lock, own) else {
            return;
        };
        self.measured(group).basis.merge(&basis.value);
        // What is not told apart is that of the whole group alone.
        if self.query.is_sampled() && (basis.site.is_some() || basis.instance.is_some()) {
            let site = basis.site.and_then(|stack| interval_names.stack(&mut self.names, stack, true));
            let nobody = Blamed::nobody(BlockerSource::NotSampled);
            // Only of programs' locks.
            let key = self.site(site, nobody, (None, nobody), basis.instance, OfFilesystem::None);
            self.at_site(group, key).basis.get_or_insert_default().merge(&basis.value);
        }
    }

    /// What the query asks of these stacks and this lock.
    fn site(
        &mut self,
        site: Option<NamedStack>,
        blocker: Blamed<NamedStack, TextName>,
        (root_lock, root): (Option<LockName>, Blamed<NamedStack, TextName>),
        instance: Option<u64>,
        filesystem: OfFilesystem<TextName>,
    ) -> Site<StackName, TextName> {
        let by = |dimension| self.query.groups_by(dimension);
        let nothing = self.names.no_stack();
        let all = |stack: Option<NamedStack>| stack.map_or(nothing, |stack| stack.all);
        let asked = |blamed: Blamed<NamedStack, TextName>, by_stack, by_task| {
            (by(by_stack) || by(by_task)).then(|| Blamed {
                source: blamed.source,
                stack: by(by_stack).then(|| all(blamed.stack)),
                task: blamed.task.filter(|_| by(by_task)),
            })
        };
        Site {
            caller: by(Dimension::Caller).then(|| all(site)),
            blocker: asked(blocker, Dimension::Blocker, Dimension::BlockerTask),
            root: asked(root, Dimension::Root, Dimension::RootTask).map(|root| (root_lock, root)),
            instance: by(Dimension::Instance).then_some(instance),
            filesystem: by(Dimension::Filesystem).then_some(filesystem),
        }
    }

    /// What is measured at a site of a group, which is added if it is new.
    fn at_site(&mut self, group: Group, site: Site<StackName, TextName>) -> &mut SiteEstimate {
        let row_bytes = self.site_bytes(&group);
        self.groups.entry(group).or_default().sites.entry(site).or_insert_with(|| {
            self.groups_bytes += row_bytes;
            SiteEstimate::default()
        })
    }

    fn add_sampled(&mut self, interval_names: &mut IntervalNames<'_>, sampled: &Sampled) {
        let Some(lock) = interval_names.lock(&sampled.key) else {
            return;
        };
        let own = interval_names.task(sampled.key.task).is_some_and(|task| task.own);
        if !self.has_head && self.leaves_out(interval_names, &sampled.key, lock, own) {
            return;
        }
        // Whole stacks take more than all else: without rows by stack, the head's functions are enough.
        let whole = self.query.is_sampled();
        let mut named = |stack: Option<StackId>| interval_names.stack(&mut self.names, stack?, whole);
        let (site, blocker_stack) = (named(sampled.site), named(sampled.blocker.stack));
        let (source, root) = (sampled.blocker.source, sampled.blocker.root);
        let root_task = root.and_then(|root| root.task);
        let root = root.and_then(|root| Some((interval_names.lock_name(root.lock)?, root.stack)));
        let root = root
            .map(|(lock, stack)| (lock, stack.and_then(|stack| interval_names.stack(&mut self.names, stack, whole))));
        let mut labelled = |task| interval_names.task_name(&mut self.names, task).map(|task| self.names.label_of(task));
        let (blocker_task, root_task) = (labelled(sampled.blocker.task), labelled(root_task));
        let releaser = blocker_task.map(|(_, comm)| comm);
        let run_delay = RunDelay::of(source, sampled.estimate.total_ns);
        let blame = match sampled.key.happened {
            Happened::Wait if !own => Some(self.blame.entry(lock)),
            Happened::TimedOut if !own => Some(self.timed_out_blame.entry(lock)),
            _ => None,
        };
        if let Some(blame) = blame {
            let blame = blame.or_default();
            let is_blamed = matches!(source, BlockerSource::Releaser | BlockerSource::Holder);
            let blocker = blocker_stack.filter(|_| is_blamed).and_then(|stack| stack.main);
            let task = releaser.filter(|_| is_blamed);
            let before = blame.len();
            let waited_ns = sampled.estimate.total_ns;
            blame.add_wait(run_delay, sampled.stacks);
            if let Some(blocker) = blocker {
                let blocker_state = sampled.blocker.root.map_or(sampled.blocker.state, |root| root.state);
                blame.add_state(blocker, blocker_state, waited_ns);
            }
            blame.add(site.and_then(|stack| stack.main), blocker, task, waited_ns);
            if let (Some(blocker), Some((lock, stack))) = (blocker, root) {
                blame.add_root(blocker, (lock, stack.and_then(|stack| stack.main)), waited_ns);
            }
            self.groups_bytes += (blame.len() - before) * BLAME_BYTES;
        }
        let Some(group) = self.group(interval_names, &sampled.key, lock, own) else {
            return;
        };
        if !self.query.is_sampled() {
            if sampled.key.happened == Happened::Wait {
                self.measured(group).run_delay.merge(run_delay);
            }
            return;
        }
        let tells_holders_apart = self.query.is_by_blame();
        let is_shown = site.is_some() || !self.query.groups_by(Dimension::Caller);
        let by_root = self.query.groups_by(Dimension::Root) || self.query.groups_by(Dimension::RootTask);
        let state = sampled.blocker.root.filter(|_| by_root).map_or(sampled.blocker.state, |root| root.state);
        let blocker = Blamed { source, stack: blocker_stack, task: Some(blocker_task) };
        let root = match root {
            Some((lock, stack)) => {
                (Some(lock), Blamed { source: BlockerSource::Releaser, stack, task: Some(root_task) })
            }
            None => (None, blocker),
        };
        let filesystem = match self.query.groups_by(Dimension::Filesystem) {
            true if interval_names.space(sampled.key.lock) == Space::Kernel => {
                self.names.see_filesystem(lock.lock, sampled.filesystem);
                interval_names.filesystem(&mut self.names, sampled.filesystem)
            }
            _ => OfFilesystem::None,
        };
        let key = self.site(site, blocker, root, sampled.instance, filesystem);
        let estimate = self.at_site(group, key);
        estimate.add(sampled.key.bucket.0, &sampled.estimate, sampled.stacks);
        estimate.stacks = estimate.stacks.saturating_add(if is_shown { sampled.stacks } else { 0 });
        estimate.releaser.see(releaser);
        estimate.run_delay_ns = estimate.run_delay_ns.saturating_add(run_delay.delay_ns);
        if tells_holders_apart {
            estimate.states.get_or_insert_default().add(state, sampled.estimate.total_ns);
        }
    }

    /// What is measured in a group, which is added if it is new.
    fn measured(&mut self, group: Group) -> &mut Measured {
        if !self.groups.contains_key(&group) {
            self.groups_bytes += self.group_bytes(&group);
        }
        self.groups.entry(group).or_default()
    }

    fn group_bytes(&self, group: &Group) -> usize {
        GROUP_BYTES + self.row_text_bytes(group)
    }

    fn site_bytes(&self, group: &Group) -> usize {
        SITE_BYTES + if self.query.is_by_blame() { BLAMED_BYTES } else { 0 } + self.row_text_bytes(group)
    }

    /// The text that each row of a group has for itself.
    fn row_text_bytes(&self, group: &Group) -> usize {
        let lock = self.names.lock(group.lock.lock);
        let detail = self.names.naming(&lock.name).map_or(0, |best| best.detail.len());
        let task = group.task.flatten().map_or(0, |task| self.names.task_of(task).1.len());
        let cgroup = group.cgroup.flatten().map_or(0, |id| self.names.cgroup_label(id).len());
        lock.name.len() + lock.object.as_ref().map_or(0, String::len) + detail + task + cgroup
    }

    /// Whether the query wants no row of it.
    fn leaves_out(&self, interval_names: &IntervalNames<'_>, key: &Key, lock: LockGroup, own: bool) -> bool {
        let task = interval_names.task(key.task);
        let name = &self.names.lock(lock.lock).name;
        // Only waits have somebody to blame.
        let has_no_blame = !matches!(key.happened, Happened::Wait | Happened::TimedOut | Happened::Idle);
        own && !self.query.include_own
            || !self.query.wants_space(interval_names.space(key.lock))
            || !self.query.wants(name, key, task)
            || self.query.is_by_blame() && has_no_blame
    }

    /// The group that a key belongs to; `None` if the query leaves it out.
    fn group(
        &mut self,
        interval_names: &mut IntervalNames<'_>,
        key: &Key,
        lock: LockGroup,
        own: bool,
    ) -> Option<Group> {
        if self.leaves_out(interval_names, key, lock, own) {
            return None;
        }
        let cgroup = interval_names.cgroup(key.cgroup);
        Some(Group {
            happened: key.happened,
            own,
            lock,
            task: self.query.groups_by(Dimension::Task).then(|| interval_names.task_name(&mut self.names, key.task)),
            cgroup: self
                .query
                .groups_by(Dimension::Cgroup)
                .then(|| cgroup.inspect(|cgroup| self.names.see_cgroup(cgroup)).map(|cgroup| cgroup.id)),
            context: self.query.groups_by(Dimension::Context).then(|| key.waited_in(interval_names.space(key.lock))),
            cpu: self.query.groups_by(Dimension::Cpu).then_some(key.cpu),
        })
    }
}
