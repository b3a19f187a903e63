//! What a page knows of each part of the recording's time, so that a window of it can be added up in the page.
//!
//! Each interval is grouped by itself, by the same views as the whole, and enters as numbers under the ids of its rows. When there are
//! too many slices, neighbours are added up, two and two: memory grows with the rows, not with the recording.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use lockmeter_profile::view::SMALL_ONES;
use lockmeter_profile::{
    BlockerSource, Happened, Kind, Limits, Mode, Report, Row, RowTask, ThreadState, ThreadsReport, Value,
};

use super::VIEWS;

/// More columns than this are narrower than a pixel or two of a heat map; half as many remain when they are added up.
const MOST_SLICES: usize = 240;

/// Fewer columns show no course of time.
pub(super) const LEAST_SLICES: usize = 30;

/// What a row takes in a slice, its buckets apart.
const PART_BYTES: usize = 80;

/// What a bucket takes in a slice.
const BUCKET_BYTES: usize = size_of::<(u8, u64, u64)>();

/// What tells rows of a view by lock apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct LockKey {
    pub happened: Happened,
    pub name: Arc<str>,
    pub kind: Option<Kind>,
    pub mode: Option<Mode>,
    pub own: bool,
}

/// What tells rows of any view apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RowKey {
    pub lock: u32,
    pub caller: Option<u32>,
    pub blocker: Option<(BlockerSource, u32)>,
    /// The lock (`None`: the blocker is the root itself), how it is known, and the stack.
    pub root: Option<(Option<u32>, BlockerSource, u32)>,
    pub task: Option<u32>,
    pub blocker_task: Option<u32>,
    pub root_task: Option<u32>,
}

/// Items of one type, each stored once.
#[derive(Debug)]
pub(super) struct Ids<T> {
    ids: HashMap<T, u32>,
    items: Vec<T>,
}

impl<T> Default for Ids<T> {
    fn default() -> Self {
        Self { ids: HashMap::new(), items: Vec::new() }
    }
}

impl<T: Eq + Hash + Clone> Ids<T> {
    pub fn of(&mut self, item: T) -> u32 {
        let next = u32::try_from(self.items.len()).unwrap_or(u32::MAX);
        *self.ids.entry(item).or_insert_with_key(|item| {
            self.items.push(item.clone());
            next
        })
    }

    pub fn items(&self) -> &[T] {
        &self.items
    }
}

/// The ids of everything that rows are made of.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub texts: Ids<Arc<str>>,
    pub stacks: Ids<Arc<[u32]>>,
    /// Process id, and the id of the thread's name.
    pub tasks: Ids<(Option<u32>, u32)>,
    pub locks: Ids<LockKey>,
    /// Of each view.
    pub rows: [Ids<RowKey>; VIEWS.len()],
    bytes: usize,
}

impl Names {
    fn text(&mut self, text: &str) -> u32 {
        if let Some(id) = self.texts.ids.get(text) {
            return *id;
        }
        self.bytes += text.len() + 100;
        self.texts.of(text.into())
    }

    fn stack(&mut self, functions: &[Arc<str>]) -> u32 {
        let frames = functions.iter().map(|function| self.text(function)).collect();
        self.stack_of(frames)
    }

    pub fn stack_of(&mut self, frames: Arc<[u32]>) -> u32 {
        let (before, bytes) = (self.stacks.items.len(), size_of_val(&*frames) + 120);
        let id = self.stacks.of(frames);
        self.bytes += if self.stacks.items.len() > before { bytes } else { 0 };
        id
    }

    fn task(&mut self, task: &RowTask) -> u32 {
        let comm = self.text(&task.comm);
        self.tasks.of((task.tgid, comm))
    }

    /// The id of a row's lock.
    pub fn lock(&mut self, row: &Row) -> u32 {
        let name = row.lock.as_deref().unwrap_or("");
        let text = self.text(name);
        let name = Arc::clone(&self.texts.items[text as usize]);
        self.locks.of(LockKey { happened: row.happened, name, kind: row.kind, mode: row.mode, own: row.own })
    }

    /// The id of a row of this view.
    pub fn row(&mut self, view: usize, row: &Row) -> u32 {
        let lock = self.lock(row);
        let caller = row.caller.as_deref().map(|stack| self.stack(stack));
        let blocker = row.blocker.as_ref().map(|blocker| (blocker.source, self.stack(&blocker.stack)));
        let root = row.root.as_deref().map(|root| {
            let lock = root.lock.as_deref().map(|lock| self.text(lock));
            (lock, root.source, self.stack(&root.stack))
        });
        let task = row.task.as_ref().map(|task| self.task(task));
        let of_blocker = row.blocker.as_ref().and_then(|blocker| blocker.by_task.as_ref()?.as_ref());
        let blocker_task = of_blocker.map(|task| self.task(task));
        let of_root = row.root.as_deref().and_then(|root| root.by_task.as_ref()?.as_ref());
        let root_task = of_root.map(|task| self.task(task));
        self.row_of(view, RowKey { lock, caller, blocker, root, task, blocker_task, root_task })
    }

    fn row_of(&mut self, view: usize, key: RowKey) -> u32 {
        let before = self.rows[view].items.len();
        let id = self.rows[view].of(key);
        self.bytes += if self.rows[view].items.len() > before { 4 * size_of::<RowKey>() } else { 0 };
        id
    }

    /// The stack of these functions, and below them what is too small to be told apart.
    pub fn small_stack(&mut self, outer: &[u32]) -> u32 {
        let small = self.text(SMALL_ONES);
        let frames: Vec<u32> = std::iter::once(small).chain(outer.iter().copied()).collect();
        self.stack_of(frames.into())
    }

    /// The thread that stands for small ones.
    pub fn small_task(&mut self) -> u32 {
        let comm = self.text(SMALL_ONES);
        self.tasks.of((Some(u32::MAX), comm))
    }

    /// The row that stands for a small one of other names, and for others of the same lock.
    fn small_row(&mut self, from: &Self, key: &RowKey) -> RowKey {
        let (stack, task) = (self.small_stack(&[]), self.small_task());
        let only_lock =
            RowKey { caller: None, blocker: None, root: None, task: None, blocker_task: None, root_task: None, ..*key };
        RowKey {
            lock: self.taken_over(from, &only_lock).lock,
            caller: key.caller.map(|_| stack),
            blocker: key.blocker.map(|(source, _)| (source, stack)),
            root: key.root.map(|(_, source, _)| (None, source, stack)),
            task: key.task.map(|_| task),
            blocker_task: key.blocker_task.map(|_| task),
            root_task: key.root_task.map(|_| task),
        }
    }

    /// A row of other names.
    fn taken_over(&mut self, from: &Self, key: &RowKey) -> RowKey {
        let text = |all: &mut Self, id: u32| all.text(&from.texts.items[id as usize]);
        let stack = |all: &mut Self, id: u32| {
            let frames = from.stacks.items[id as usize].iter().map(|id| text(all, *id)).collect();
            all.stack_of(frames)
        };
        let task = |all: &mut Self, id: u32| {
            let (tgid, comm) = from.tasks.items[id as usize];
            let comm = text(all, comm);
            all.tasks.of((tgid, comm))
        };
        let lock = from.locks.items[key.lock as usize].clone();
        self.text(&lock.name);
        RowKey {
            lock: self.locks.of(lock),
            caller: key.caller.map(|id| stack(self, id)),
            blocker: key.blocker.map(|(source, id)| (source, stack(self, id))),
            root: key.root.map(|(lock, source, id)| (lock.map(|lock| text(self, lock)), source, stack(self, id))),
            task: key.task.map(|id| task(self, id)),
            blocker_task: key.blocker_task.map(|id| task(self, id)),
            root_task: key.root_task.map(|id| task(self, id)),
        }
    }
}

/// The numbers of a row in a slice.
#[derive(Debug, Clone, Default)]
pub(super) struct Part {
    pub value: Value,
    /// Of locks only.
    pub histogram: Vec<(u8, u64, u64)>,
}

impl Part {
    pub fn merge(&mut self, other: &Part) {
        self.value.merge(&other.value);
        for (bucket, count, total_ns) in &other.histogram {
            match self.histogram.binary_search_by_key(bucket, |entry| entry.0) {
                Ok(at) => {
                    let entry = &mut self.histogram[at];
                    entry.1 = entry.1.saturating_add(*count);
                    entry.2 = entry.2.saturating_add(*total_ns);
                }
                Err(at) => self.histogram.insert(at, (*bucket, *count, *total_ns)),
            }
        }
    }

    fn bytes(&self) -> usize {
        PART_BYTES + self.histogram.len() * BUCKET_BYTES
    }
}

/// A part of the recording's time: one interval, or several in a row.
#[derive(Debug, Default)]
pub(super) struct Slice {
    /// From the recording's first interval to the beginning of this.
    pub from_ns: u64,
    /// To its end, gaps included.
    pub to_ns: u64,
    /// Metered time.
    pub duration_ns: u64,
    pub intervals: u64,
    /// Of each view.
    pub parts: [HashMap<u32, Part>; VIEWS.len()],
    /// All waits, whatever the filters.
    pub waits_ns: u64,
    pub threads_ns: u64,
    pub rest_ns: u64,
    pub states: HashMap<ThreadState, u64>,
}

impl Slice {
    fn add_threads(&mut self, threads: &ThreadsReport) {
        self.threads_ns = self.threads_ns.saturating_add(threads.total_ns);
        self.rest_ns = self.rest_ns.saturating_add(threads.rest_ns);
        for time in &threads.states {
            let sum = self.states.entry(time.state).or_default();
            *sum = sum.saturating_add(time.total_ns);
        }
    }

    fn merge(&mut self, other: Self) {
        self.to_ns = self.to_ns.max(other.to_ns);
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        self.intervals += other.intervals;
        self.waits_ns = self.waits_ns.saturating_add(other.waits_ns);
        self.threads_ns = self.threads_ns.saturating_add(other.threads_ns);
        self.rest_ns = self.rest_ns.saturating_add(other.rest_ns);
        for (state, ns) in other.states {
            let sum = self.states.entry(state).or_default();
            *sum = sum.saturating_add(ns);
        }
        for (all, more) in self.parts.iter_mut().zip(other.parts) {
            for (row, part) in more {
                all.entry(row).or_default().merge(&part);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.parts.iter().flat_map(HashMap::values).map(Part::bytes).sum()
    }
}

/// The slices of a recording, in the order of their intervals.
#[derive(Debug)]
pub struct Slices {
    pub(super) names: Names,
    pub(super) slices: Vec<Slice>,
    /// When the recording's first interval began.
    pub(super) begun_unix_ns: u64,
    /// How many intervals a slice has; the last may have fewer.
    each: u64,
    bytes: usize,
}

impl Default for Slices {
    fn default() -> Self {
        Self { names: Names::default(), slices: Vec::new(), begun_unix_ns: 0, each: 1, bytes: 0 }
    }
}

impl Slices {
    /// Takes an interval in, as one of the [`VIEWS`] sees it alone: the first view first. `begun_unix_ns`: when the recording's first
    /// interval began.
    pub fn add(&mut self, begun_unix_ns: u64, view: usize, report: &Report) {
        let mut slice = if view == 0 { self.slice_of(begun_unix_ns, report) } else { Slice::default() };
        for row in &report.rows {
            let histogram = match view {
                0 => row.histogram.iter().map(|(bucket, count, ns)| (bucket.0, *count, *ns)).collect(),
                _ => Vec::new(),
            };
            let id = self.names.row(view, row);
            slice.parts[view].entry(id).or_default().merge(&Part { value: row.value, histogram });
        }
        self.bytes += slice.bytes();
        match self.slices.last_mut().filter(|last| view > 0 || last.intervals < self.each) {
            Some(last) => last.merge(slice),
            None => self.slices.push(slice),
        }
    }

    fn slice_of(&mut self, begun_unix_ns: u64, report: &Report) -> Slice {
        self.begun_unix_ns = begun_unix_ns;
        let from_ns = report.start_unix_ns.saturating_sub(begun_unix_ns);
        let mut slice = Slice {
            from_ns,
            to_ns: from_ns.saturating_add(report.duration_ns),
            duration_ns: report.duration_ns,
            intervals: 1,
            waits_ns: report.waits.total_ns,
            ..Slice::default()
        };
        if let Some(threads) = &report.threads {
            slice.add_threads(threads);
        }
        slice
    }

    /// Adds up neighbours where there are too many slices, or where they take too much memory; then the smallest rows, if few slices do
    /// so still.
    pub fn keep_within(&mut self, limits: &Limits) {
        let check = |slices: &Self| limits.check(slices.bytes + slices.names.bytes);
        if self.slices.len() > MOST_SLICES {
            self.halve();
        }
        if check(self).is_err() {
            // Rows that a slice had already were counted twice.
            self.bytes = self.slices.iter().map(Slice::bytes).sum();
        }
        while self.slices.len() > LEAST_SLICES && check(self).is_err() {
            self.halve();
        }
        let rows = |slices: &Self| slices.names.rows.iter().skip(1).map(|rows| rows.items.len()).max().unwrap_or(0);
        while check(self).is_err() {
            let before = rows(self);
            self.keep_rows(before / 2);
            // Of each lock a row stays.
            if rows(self) >= before {
                break;
            }
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.slices.len()
    }

    /// Keeps so many rows of each view, those with most time, and adds up the others, lock by lock; and forgets what no row needs.
    fn keep_rows(&mut self, most: usize) {
        let before = std::mem::take(&mut self.names);
        let mut slices = std::mem::take(&mut self.slices);
        for view in 0..VIEWS.len() {
            let keys = before.rows[view].items();
            let mut times: Vec<(u64, u32)> = (0..).take(keys.len()).map(|id| (0, id)).collect();
            for (id, part) in slices.iter().flat_map(|slice| &slice.parts[view]) {
                let ns = &mut times[*id as usize].0;
                *ns = ns.saturating_add(part.value.total_ns);
            }
            times.sort_by_key(|(ns, id)| (std::cmp::Reverse(*ns), *id));
            let mut new_ids = vec![0; keys.len()];
            for (at, (_, id)) in times.into_iter().enumerate() {
                let key = &keys[id as usize];
                let key = if view == 0 || at < most {
                    self.names.taken_over(&before, key)
                } else {
                    self.names.small_row(&before, key)
                };
                new_ids[id as usize] = self.names.row_of(view, key);
            }
            for slice in &mut slices {
                let mut parts = HashMap::<u32, Part>::new();
                for (id, part) in std::mem::take(&mut slice.parts[view]) {
                    parts.entry(new_ids[id as usize]).or_default().merge(&part);
                }
                slice.parts[view] = parts;
            }
        }
        self.bytes = slices.iter().map(Slice::bytes).sum();
        self.slices = slices;
    }

    /// Adds up neighbours.
    pub(super) fn halve(&mut self) {
        let mut halved = Vec::<Slice>::with_capacity(MOST_SLICES);
        for (at, slice) in std::mem::take(&mut self.slices).into_iter().enumerate() {
            match halved.last_mut().filter(|_| at % 2 == 1) {
                Some(last) => last.merge(slice),
                None => halved.push(slice),
            }
        }
        self.slices = halved;
        self.each = self.each.saturating_mul(2);
        self.bytes = self.slices.iter().map(Slice::bytes).sum();
    }
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::view::{self, Query};
    use lockmeter_profile::{About, Bucket, Interval, Key, Lock, Naming, Total};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The locks take turns.
    fn interval(at: u64, locks: u64) -> Interval {
        let mut interval = Interval { start_unix_ns: at * SECOND_NS, duration_ns: SECOND_NS, ..Interval::default() };
        let name = format!("lock_{}", at % locks);
        let lock = Lock { name, object: None, naming: Naming::Symbol, detail: String::new() };
        let lock = interval.tables.intern_lock(lock);
        let (happened, kind, mode, total_ns) = (Happened::Wait, Kind::Mutex, Mode::Exclusive, 1_000 + at);
        let key = Key {
            happened,
            lock,
            kind,
            mode,
            task: None,
            cgroup: None,
            context: None,
            cpu: None,
            bucket: Bucket::of(total_ns),
        };
        interval.totals.push(Total { key, value: Value { count: 1, total_ns, max_ns: total_ns, spin_ns: at } });
        interval
    }

    fn sliced(intervals: u64, locks: u64, limits: &Limits) -> (Slices, Report) {
        let (about, query) = (About::default(), Query::by(VIEWS[0]));
        let mut slices = Slices::default();
        for at in 0..intervals {
            slices.add(0, 0, &view::report(&about, std::iter::once(interval(at, locks)), &query));
            slices.keep_within(limits);
        }
        (slices, view::report(&about, (0..intervals).map(|at| interval(at, locks)), &query))
    }

    /// Makes sure that nothing is lost, counted twice or moved when neighbours are added up, and that no slice overlaps another.
    #[test]
    fn however_many_intervals_there_are_the_slices_add_up_to_the_whole() {
        for intervals in [1, 239, 241, 500, 2_000] {
            let (mut slices, whole) = sliced(intervals, 7, &Limits::NONE);
            assert!(slices.slices.len() <= MOST_SLICES, "{intervals}: {} slices", slices.slices.len());
            assert!(slices.slices.len() as u64 >= intervals.min(MOST_SLICES as u64 / 2), "{intervals}: too few");
            assert_eq!(slices.slices.iter().map(|slice| slice.intervals).sum::<u64>(), intervals);
            assert_eq!(slices.slices.iter().map(|slice| slice.waits_ns).sum::<u64>(), whole.waits.total_ns);
            assert!(slices.slices.windows(2).all(|pair| pair[0].to_ns == pair[1].from_ns), "{intervals}: gaps");
            for row in &whole.rows {
                let id = slices.names.row(0, row);
                let mut sum = Part::default();
                slices.slices.iter().filter_map(|slice| slice.parts[0].get(&id)).for_each(|part| sum.merge(part));
                let histogram: Vec<_> =
                    row.histogram.iter().map(|(bucket, count, ns)| (bucket.0, *count, *ns)).collect();
                assert_eq!((sum.value, sum.histogram), (row.value, histogram), "{intervals}: {:?}", row.lock);
            }
        }
    }

    /// Makes sure that a long recording in little memory has longer slices, and that no time is lost where even few are too many.
    #[test]
    fn slices_grow_longer_where_memory_is_short() {
        let (all, _) = sliced(200, 1, &Limits::NONE);
        let bytes = all.bytes + all.names.bytes;
        let limits = Limits::of_recording(0);
        let share = limits.shared_by((192 << 20) / (bytes / 2));
        let (few, _) = sliced(200, 1, &share);
        assert!((LEAST_SLICES / 2..150).contains(&few.slices.len()), "{} slices", few.slices.len());
        assert_eq!(few.slices.iter().map(|slice| slice.intervals).sum::<u64>(), 200);
        let mut too_many = sliced(100, 1, &Limits::NONE).0;
        too_many.keep_within(&limits.shared_by(192 << 20));
        assert_eq!(too_many.slices.iter().map(|slice| slice.intervals).sum::<u64>(), 100);
    }
}
