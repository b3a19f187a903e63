//! The data of a page: rows as columns of numbers and ids, what they are in each slice, and the tables that the ids point into.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;

use lockmeter_profile::{Happened, Report, Row, ThreadState, Value};
use serde_json::{Map, Value as Json, json};

use super::slices::{Names, Part, RowKey, Slices};
use super::{Page, VIEWS};
use crate::stacks::{holder_words, source_words, without_long_arguments};
use crate::threads;

/// Locks that have numbers of their own in each slice; the others are added up. A heat map has fewer rows, and a table past these is
/// searched, not read.
const MOST_LOCKS: usize = 300;

/// Rows with stacks that each view keeps; of the others some of what tells them apart is left out, until they are no more than this.
pub(super) const MOST_ROWS: usize = 1_500;

/// Functions of a small stack that are kept, outermost first: as many as there is room for.
const OUTERMOST: [usize; 6] = [24, 12, 6, 3, 1, 0];

/// Those who wait, and those who block and the roots, that are told apart in small rows: those with most time, as many as there is room
/// for. Who waits is told longer.
const LARGEST: [(usize, usize); 7] = [(500, 200), (500, 80), (500, 40), (500, 10), (500, 0), (80, 0), (0, 0)];

/// Writes all of it as one JSON object, with so many rows with stacks in each view.
pub(super) fn write(page: &mut Page<'_>, most_rows: usize, out: &mut impl io::Write) -> io::Result<()> {
    let slices = &mut page.slices;
    let folding = Folding::new(slices, &page.reports[0]);
    let views: Vec<Folded> = page
        .reports
        .iter()
        .enumerate()
        .map(|(view, report)| Folded::new(slices, view, report, &folding, most_rows))
        .collect();
    let used = Used::by(&views, &slices.names);
    let all = json!({
        "locks": folding.locks,
        "views": views.iter().map(|view| &view.columns).collect::<Vec<_>>(),
        "slices": slices.slices.iter().map(|slice| json!({
            "from_ns": slice.from_ns,
            "to_ns": slice.to_ns,
            "duration_ns": slice.duration_ns,
            "intervals": slice.intervals,
            "waits_ns": slice.waits_ns,
            "threads_ns": slice.threads_ns,
            "rest_ns": slice.rest_ns,
            "states": states(&slice.states),
            "parts": views.iter().enumerate().map(|(at, view)| view.parts(at, &slice.parts[at])).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "texts": used.texts,
        "short": short_names(&used.texts),
        "stacks": used.stacks,
        "tasks": slices.names.tasks.items(),
        "states": ThreadState::ALL.iter().map(|state| (state.name(), threads::words(*state))).collect::<BTreeMap<_, _>>(),
        "holder_parts": crate::slow_holds::PARTS,
        "begun_unix_ns": slices.begun_unix_ns,
        "forecasts": page.forecasts,
        "flags": json!({
            "kind": page.flags.kind,
            "mode": page.flags.mode,
            "lock": page.flags.lock,
            "window": page.flags.window,
            "others": page.flags.others,
        }),
    });
    serde_json::to_writer(out, &all)?;
    Ok(())
}

/// Names as tables write them, by their ids: those that differ.
fn short_names(texts: &[Option<Arc<str>>]) -> BTreeMap<usize, String> {
    let differs = |(id, text): (usize, &Option<Arc<str>>)| match without_long_arguments(text.as_ref()?) {
        Cow::Borrowed(_) => None,
        Cow::Owned(short) => Some((id, short)),
    };
    texts.iter().enumerate().filter_map(differs).collect()
}

fn states(of_slice: &HashMap<ThreadState, u64>) -> Json {
    Json::Object(of_slice.iter().map(|(state, ns)| (state.name().to_owned(), (*ns).into())).collect())
}

/// Which locks are told apart in slices and stacks, and where the others went.
struct Folding {
    /// Each lock of the report by lock, in the order of its rows, then those that stand for the rest.
    locks: Vec<Json>,
    /// Where a lock's id leads to.
    place: HashMap<u32, usize>,
}

impl Folding {
    fn new(slices: &mut Slices, by_lock: &Report) -> Self {
        let ids: Vec<u32> = by_lock.rows.iter().map(|row| slices.names.lock(row)).collect();
        let mut others = BTreeMap::<Happened, u64>::new();
        by_lock.rows.iter().skip(MOST_LOCKS).for_each(|row| *others.entry(row.happened).or_default() += 1);
        let of_others: BTreeMap<Happened, usize> =
            others.keys().enumerate().map(|(at, happened)| (*happened, ids.len() + at)).collect();
        let place_of = |(at, row): (usize, &Row)| if at < MOST_LOCKS { at } else { of_others[&row.happened] };
        let place = ids.into_iter().zip(by_lock.rows.iter().enumerate().map(place_of)).collect();
        let of_row = |(at, row): (usize, &Row)| json!({ "row": at, "happened": row.happened.name(), "folded": at >= MOST_LOCKS });
        let mut locks: Vec<Json> = by_lock.rows.iter().enumerate().map(of_row).collect();
        locks.extend(others.iter().map(|(happened, count)| json!({ "happened": happened.name(), "others": count })));
        Self { locks, place }
    }

    /// `None` of a lock that no row of the report has: lockmeter's own, or one that a filter leaves out.
    fn place(&self, lock: u32) -> Option<usize> {
        self.place.get(&lock).copied()
    }
}

/// Stacks and texts by their ids, without those that no row shows: they would be most of a page.
struct Used {
    stacks: Vec<Option<Arc<[u32]>>>,
    texts: Vec<Option<Arc<str>>>,
}

impl Used {
    fn by(views: &[Folded], names: &Names) -> Self {
        let rows = || views.iter().flat_map(|view| &view.rows);
        let mut stacks = vec![None; names.stacks.items().len()];
        for id in rows().flat_map(|row| [row.caller, row.blocker, row.root]).flatten() {
            stacks[id as usize] = Some(Arc::clone(&names.stacks.items()[id as usize]));
        }
        let mut texts = vec![None; names.texts.items().len()];
        let functions = stacks.iter().flatten().flat_map(|stack| stack.iter().copied());
        let tasks = names.tasks.items().iter().map(|(_, comm)| *comm);
        for id in functions.chain(tasks).chain(rows().filter_map(|row| row.root_lock)) {
            texts[id as usize] = Some(Arc::clone(&names.texts.items()[id as usize]));
        }
        Self { stacks, texts }
    }
}

/// One view, with its small rows added up.
struct Folded {
    columns: Json,
    rows: Vec<PageRow>,
    /// Where each row's id leads to.
    place: HashMap<u32, usize>,
}

/// What a row of the page says beside its numbers.
#[derive(Default)]
struct PageRow {
    lock: usize,
    value: Value,
    stacks: u64,
    caller: Option<u32>,
    blocker: Option<u32>,
    source: Option<&'static str>,
    task: Option<String>,
    state: Option<String>,
    root: Option<u32>,
    root_lock: Option<u32>,
    root_source: Option<&'static str>,
    root_state: Option<String>,
    waiter_task: Option<u32>,
    blocker_task: Option<u32>,
    root_task: Option<u32>,
    /// It stands for small ones, of which not everything is told.
    is_rest: bool,
}

impl Folded {
    fn new(slices: &mut Slices, view: usize, report: &Report, folding: &Folding, most_rows: usize) -> Self {
        let mut rows = Vec::<PageRow>::new();
        let mut place = HashMap::new();
        if view == 0 {
            // The report by lock is in the page as it is.
            rows.extend((0..folding.locks.len()).map(|lock| PageRow { lock, ..PageRow::default() }));
        }
        let mut small = Vec::new();
        let of_whole: Vec<(u32, Option<&Row>)> =
            report.rows.iter().map(|row| (slices.names.row(view, row), Some(row))).collect();
        let in_whole: HashSet<u32> = of_whole.iter().map(|(id, _)| *id).collect();
        // Rows of single intervals that the whole does not have: waits without a stack, which the whole shares out among the others.
        let others = (0..).take(slices.names.rows[view].items().len()).filter(|id| !in_whole.contains(id));
        for (id, row) in of_whole.into_iter().chain(others.map(|id| (id, None))) {
            let key = slices.names.rows[view].items()[id as usize];
            let Some(lock) = folding.place(key.lock) else { continue };
            if view == 0 {
                place.insert(id, lock);
                if let Some(row) = row {
                    rows[lock].add(row);
                }
            } else if rows.len() < most_rows && !folding.locks[lock]["others"].is_u64() {
                place.insert(id, rows.len());
                let mut named = named(&key, lock, row);
                row.into_iter().for_each(|row| named.add(row));
                rows.push(named);
            } else {
                small.push((id, RowKey { lock: u32::try_from(lock).unwrap_or(u32::MAX), ..key }, row));
            }
        }
        let small_rows = small.len();
        let coarse = coarse(&mut slices.names, &small, most_rows);
        let mut of_others = HashMap::<RowKey, usize>::new();
        for ((id, _, row), key) in small.into_iter().zip(coarse) {
            let to = *of_others.entry(key).or_insert_with(|| {
                rows.push(PageRow { is_rest: true, ..named(&key, key.lock as usize, None) });
                rows.len() - 1
            });
            place.insert(id, to);
            row.into_iter().for_each(|row| rows[to].add(row));
        }
        Self { columns: columns(view, &rows, small_rows), rows, place }
    }

    /// The parts of a slice in the order of their rows: row, count, total, spinning, longest; of locks also the number of buckets,
    /// and each bucket's exponent, count and total.
    fn parts(&self, view: usize, parts: &HashMap<u32, Part>) -> Vec<u64> {
        let mut sums = BTreeMap::<usize, Part>::new();
        for (id, part) in parts {
            if let Some(to) = self.place.get(id) {
                sums.entry(*to).or_default().merge(part);
            }
        }
        let mut flat = Vec::new();
        for (row, Part { value, histogram }) in sums {
            flat.extend([row as u64, value.count, value.total_ns, value.spin_ns, value.max_ns]);
            if view == 0 {
                flat.push(histogram.len() as u64);
                flat.extend(histogram.iter().flat_map(|(bucket, count, ns)| [u64::from(*bucket), *count, *ns]));
            }
        }
        flat
    }
}

impl PageRow {
    fn add(&mut self, row: &Row) {
        self.value.merge(&row.value);
        self.stacks = self.stacks.saturating_add(row.stacks);
    }
}

/// What small rows are added up by: as much of each as leaves no more rows than these, besides one or two of each lock. Of stacks these
/// are the outermost functions, as of the branches of a flame graph that are too thin to draw; of who blocks whom, the innermost
/// function or the thread at each end, if it is one of the largest there.
fn coarse(names: &mut Names, small: &[(u32, RowKey, Option<&Row>)], most: usize) -> Vec<RowKey> {
    let are_ends =
        small.first().is_some_and(|(_, key, _)| key.task.is_some() || key.caller.is_some() && key.blocker.is_some());
    let steps = if are_ends { LARGEST.len() } else { OUTERMOST.len() };
    let mut coarse = Vec::new();
    for step in 0..steps {
        coarse = match are_ends {
            true => Ends::largest(small, names, LARGEST[step]).of_rows(small, names),
            false => small.iter().map(|(_, key, _)| with_outermost(names, key, OUTERMOST[step])).collect(),
        };
        if coarse.iter().collect::<HashSet<_>>().len() <= most {
            break;
        }
    }
    coarse
}

/// Cuts stacks off below these functions.
fn with_outermost(names: &mut Names, key: &RowKey, most: usize) -> RowKey {
    let mut cut = |id: u32| {
        let frames = Arc::clone(&names.stacks.items()[id as usize]);
        // Of what has no stack its reason is told.
        if frames.len() <= most || frames.is_empty() { id } else { names.small_stack(&frames[frames.len() - most..]) }
    };
    RowKey {
        caller: key.caller.map(&mut cut),
        blocker: key.blocker.map(|(source, stack)| (source, cut(stack))),
        root: key.root.map(|(lock, source, stack)| (lock, source, cut(stack))),
        ..*key
    }
}

/// What an end of a chain is called: its innermost function, or its thread.
type End = Option<u32>;

/// The ends of chains that have most time.
struct Ends {
    largest: [HashSet<u32>; 3],
}

impl Ends {
    fn of(key: &RowKey, names: &Names) -> [End; 3] {
        let innermost = |stack: u32| names.stacks.items()[stack as usize].first().copied();
        match key.task {
            Some(_) => [key.task, key.blocker_task, key.root_task],
            None => [
                key.caller.and_then(innermost),
                key.blocker.and_then(|(_, stack)| innermost(stack)),
                key.root.and_then(|(_, _, stack)| innermost(stack)),
            ],
        }
    }

    fn largest(small: &[(u32, RowKey, Option<&Row>)], names: &Names, (waiters, blockers): (usize, usize)) -> Self {
        let mut times: [BTreeMap<u32, u64>; 3] = Default::default();
        for (_, key, row) in small {
            for (times, end) in times.iter_mut().zip(Self::of(key, names)) {
                let Some(end) = end else { continue };
                let ns = times.entry(end).or_default();
                *ns = ns.saturating_add(row.map_or(0, |row| row.value.total_ns));
            }
        }
        let mut most = [waiters, blockers, blockers].into_iter();
        let largest = times.map(|times| {
            let mut times: Vec<(u32, u64)> = times.into_iter().collect();
            times.sort_by_key(|(_, ns)| Reverse(*ns));
            times.into_iter().take(most.next().unwrap_or(0)).map(|(end, _)| end).collect()
        });
        Self { largest }
    }

    fn of_rows(&self, small: &[(u32, RowKey, Option<&Row>)], names: &mut Names) -> Vec<RowKey> {
        let (small_stack, small_task) = (names.small_stack(&[]), names.small_task());
        let mut of = |key: &RowKey| {
            let ends = Self::of(key, names);
            let is_named = |at: usize| ends[at].is_none_or(|end| self.largest[at].contains(&end));
            let task = |at: usize, task: Option<u32>| task.map(|task| if is_named(at) { task } else { small_task });
            let mut stack = |at: usize, stack: u32| match ends[at] {
                None => stack,
                Some(function) if is_named(at) => names.stack_of(Arc::from([function])),
                Some(_) => small_stack,
            };
            RowKey {
                lock: key.lock,
                caller: key.caller.map(|id| stack(0, id)),
                blocker: key.blocker.map(|(source, id)| (source, stack(1, id))),
                root: key.root.map(|(lock, source, id)| (lock, source, stack(2, id))),
                task: task(0, key.task),
                blocker_task: task(1, key.blocker_task),
                root_task: task(2, key.root_task),
            }
        };
        small.iter().map(|(_, key, _)| of(key)).collect()
    }
}

/// A row that is shown by itself; what is not in its key is known of rows of the whole only.
fn named(key: &RowKey, lock: usize, row: Option<&Row>) -> PageRow {
    let blocker = row.and_then(|row| row.blocker.as_ref());
    let root = row.and_then(|row| row.root.as_deref());
    PageRow {
        lock,
        caller: key.caller,
        blocker: key.blocker.map(|(_, stack)| stack),
        source: key.blocker.map(|(source, _)| source_words(source)),
        task: blocker.and_then(|blocker| blocker.task.clone()),
        state: blocker.and_then(|blocker| blocker.state).map(holder_words),
        root: key.root.map(|(_, _, stack)| stack),
        root_lock: key.root.and_then(|(lock, _, _)| lock),
        root_source: key.root.map(|(_, source, _)| source_words(source)),
        root_state: root.and_then(|root| root.state).map(holder_words),
        waiter_task: key.task,
        blocker_task: key.blocker_task,
        root_task: key.root_task,
        ..PageRow::default()
    }
}

/// The rows of a view, field by field; a field that no row has is left out.
fn columns(view: usize, rows: &[PageRow], small_rows: usize) -> Json {
    let mut columns = Map::new();
    let by: Vec<&str> = VIEWS[view].iter().map(|by| by.name()).collect();
    columns.insert("by".to_owned(), by.into());
    columns.insert("small".to_owned(), small_rows.into());
    let mut column = |name: &str, of: &dyn Fn(&PageRow) -> Json| {
        let values: Vec<Json> = rows.iter().map(of).collect();
        if values.iter().any(|value| !value.is_null()) {
            columns.insert(name.to_owned(), values.into());
        }
    };
    column("lock", &|row| row.lock.into());
    column("count", &|row| row.value.count.into());
    column("total_ns", &|row| row.value.total_ns.into());
    column("spin_ns", &|row| row.value.spin_ns.into());
    column("max_ns", &|row| row.value.max_ns.into());
    column("stacks", &|row| row.stacks.into());
    column("rest", &|row| if row.is_rest { true.into() } else { Json::Null });
    column("caller", &|row| row.caller.into());
    column("blocker", &|row| row.blocker.into());
    column("source", &|row| row.source.into());
    column("task", &|row| row.task.as_deref().into());
    column("state", &|row| row.state.as_deref().into());
    column("root", &|row| row.root.into());
    column("root_lock", &|row| row.root_lock.into());
    column("root_source", &|row| row.root_source.into());
    column("root_state", &|row| row.root_state.as_deref().into());
    column("waiter_task", &|row| row.waiter_task.into());
    column("blocker_task", &|row| row.blocker_task.into());
    column("root_task", &|row| row.root_task.into());
    Json::Object(columns)
}

#[cfg(test)]
mod tests {
    use lockmeter_profile::view::{self, Query};
    use lockmeter_profile::{
        About, Blocker, BlockerSource, Bucket, Frame, Interval, Key, Kind, Lock, Mode, Naming, OfFilesystem, Sampled,
        Total,
    };

    use super::*;
    use crate::html::Flags;

    /// As many locks, the first contended most, and what was sampled of each at as many call sites.
    fn interval(locks: u64, sites: u64, is_sampled: bool) -> Interval {
        let mut interval = Interval { duration_ns: 1_000_000_000, ..Interval::default() };
        for at in 0..locks * sites {
            let (name, naming) = (format!("lock_{}", at % locks), Naming::Symbol);
            let lock = interval.tables.intern_lock(Lock { name, object: None, naming, detail: String::new() });
            let total_ns = 1_000_000 - at;
            let key =
                Key { bucket: Bucket::of(total_ns), ..Key::of(Happened::Wait, lock, Kind::Mutex, Mode::Exclusive) };
            let value = Value { count: 1, total_ns, max_ns: total_ns, spin_ns: 0 };
            interval.totals.push(Total { key, value });
            if is_sampled {
                let function = Some(format!("site_{at}"));
                let frame = interval.tables.intern_frame(Frame { address: at, function, offset: 0, module: None });
                let site = Some(interval.tables.intern_stack(vec![frame]));
                let blocker = Blocker { stack: site, ..Blocker::unknown(BlockerSource::Releaser) };
                let filesystem = OfFilesystem::None;
                let sampled = Sampled { key, instance: None, filesystem, site, blocker, stacks: 1, estimate: value };
                interval.sampled.push(sampled);
            }
        }
        interval
    }

    /// What a page knows beside the report, of such an interval and one without samples.
    fn written(locks: u64, sites: u64) -> Json {
        let (about, intervals) = (About::default(), [true, false].map(|is_sampled| interval(locks, sites, is_sampled)));
        let report = |of: &[Interval], by| view::report(&about, of.iter().cloned(), &Query::by(by));
        let mut slices = Slices::default();
        for interval in &intervals {
            for (view, by) in VIEWS.into_iter().enumerate() {
                slices.add(0, view, &report(std::slice::from_ref(interval), by));
            }
        }
        let reports = VIEWS.map(|by| report(&intervals, by));
        let (warnings, flags) = (Vec::new(), Flags::default());
        let mut page = Page { reports: &reports, slices, warnings, forecasts: Json::Null, flags };
        let mut data = Vec::new();
        write(&mut page, MOST_ROWS, &mut data).unwrap();
        serde_json::from_slice(&data).unwrap()
    }

    /// Makes sure that a page has as many rows as it may have, of many locks as of many stacks, and all of their time in each slice.
    #[test]
    fn small_locks_and_stacks_are_added_up_and_nothing_is_lost() {
        let number = |value: &Json| value.as_u64().unwrap();
        for (locks, sites) in [(2 * MOST_LOCKS as u64, 1), (4, MOST_ROWS as u64 / 2)] {
            let data = written(locks, sites);
            let each_ns: u64 = (0..locks * sites).map(|at| 1_000_000 - at).sum();
            let alone = data["locks"].as_array().unwrap().iter().filter(|lock| lock["folded"] == false).count();
            assert_eq!(alone, MOST_LOCKS.min(locks as usize));
            for (at, view) in data["views"].as_array().unwrap().iter().enumerate().skip(1) {
                let column = |name: &str| view[name].as_array().unwrap();
                assert!(column("lock").len() <= 2 * MOST_ROWS + alone, "view {at}: {} rows", column("lock").len());
                assert_eq!(column("total_ns").iter().map(number).sum::<u64>(), 2 * each_ns, "view {at}");
                for slice in data["slices"].as_array().unwrap() {
                    let parts = slice["parts"][at].as_array().unwrap();
                    assert_eq!(parts.chunks(5).map(|part| number(&part[2])).sum::<u64>(), each_ns, "view {at}");
                }
            }
        }
    }
}
