//! The data of a page: rows as columns of numbers and ids, what they are in each slice, and the tables that the ids point into.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use lockmeter_profile::{Happened, Report, Row, ThreadState, Value};
use serde_json::{Map, Value as Json, json};

use super::slices::{Part, RowKey, Slices};
use super::{Page, VIEWS};
use crate::stacks::{holder_words, source_words, without_long_arguments};
use crate::threads;

/// Locks that have numbers of their own in each slice; the others are added up. A heat map has fewer rows, and a table past these is
/// searched, not read.
const MOST_LOCKS: usize = 300;

/// Rows with stacks that each view keeps; the others are added up, lock by lock.
const MOST_ROWS: usize = 1_500;

/// Writes all of it as one JSON object.
pub(super) fn write(page: Page<'_>, out: &mut impl io::Write) -> io::Result<()> {
    let mut slices = page.slices;
    let folding = Folding::new(&mut slices, &page.reports[0]);
    let views: Vec<Folded> = page
        .reports
        .iter()
        .enumerate()
        .map(|(view, report)| Folded::new(&mut slices, view, report, &folding))
        .collect();
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
        "texts": slices.names.texts.items().iter().map(|text| &**text).collect::<Vec<_>>(),
        "short": short_names(slices.names.texts.items()),
        "stacks": slices.names.stacks.items().iter().map(|stack| &**stack).collect::<Vec<_>>(),
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
fn short_names(texts: &[Arc<str>]) -> BTreeMap<usize, String> {
    let differs = |(id, text): (usize, &Arc<str>)| match without_long_arguments(text) {
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

/// One view, with its small rows added up.
struct Folded {
    columns: Json,
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
    /// How many rows it stands for.
    folded: u64,
}

impl Folded {
    fn new(slices: &mut Slices, view: usize, report: &Report, folding: &Folding) -> Self {
        let mut rows = Vec::<PageRow>::new();
        let mut place = HashMap::new();
        let mut of_others = HashMap::<usize, usize>::new();
        if view == 0 {
            // The report by lock is in the page as it is.
            rows.extend((0..folding.locks.len()).map(|lock| PageRow { lock, ..PageRow::default() }));
        }
        for (at, row) in report.rows.iter().enumerate() {
            let id = slices.names.row(view, row);
            let key = slices.names.rows[view].items()[id as usize];
            let Some(lock) = folding.place(key.lock) else { continue };
            let to = if view == 0 {
                lock
            } else if at < MOST_ROWS && !folding.locks[lock]["others"].is_u64() {
                rows.push(named(&key, lock, Some(row)));
                rows.len() - 1
            } else {
                *of_others.entry(lock).or_insert_with(|| {
                    rows.push(PageRow { lock, ..PageRow::default() });
                    rows.len() - 1
                })
            };
            let sum = &mut rows[to];
            sum.value.merge(&row.value);
            sum.stacks = sum.stacks.saturating_add(row.stacks);
            sum.folded += 1;
            place.insert(id, to);
        }
        // Rows of single intervals that the whole does not have: waits without a stack, which the whole shares out among the others.
        for (id, key) in (0..).zip(slices.names.rows[view].items()) {
            let Some(lock) = folding.place(key.lock).filter(|_| !place.contains_key(&id)) else { continue };
            let to = if view == 0 {
                lock
            } else if rows.len() < MOST_ROWS {
                rows.push(named(key, lock, None));
                rows.len() - 1
            } else {
                *of_others.entry(lock).or_insert_with(|| {
                    rows.push(PageRow { lock, ..PageRow::default() });
                    rows.len() - 1
                })
            };
            place.insert(id, to);
        }
        Self { columns: columns(view, &rows), place }
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
        folded: u64::from(row.is_none()),
        ..PageRow::default()
    }
}

/// The rows of a view, field by field; a field that no row has is left out.
fn columns(view: usize, rows: &[PageRow]) -> Json {
    let mut columns = Map::new();
    let by: Vec<&str> = VIEWS[view].iter().map(|by| by.name()).collect();
    columns.insert("by".to_owned(), by.into());
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
    column("folded", &|row| row.folded.into());
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
        let page = Page { reports: &reports, slices, warnings, forecasts: Json::Null, flags };
        let mut data = Vec::new();
        write(page, &mut data).unwrap();
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
                assert!(column("lock").len() <= MOST_ROWS + alone, "view {at}: {} rows", column("lock").len());
                assert_eq!(column("total_ns").iter().map(number).sum::<u64>(), 2 * each_ns, "view {at}");
                for slice in data["slices"].as_array().unwrap() {
                    let parts = slice["parts"][at].as_array().unwrap();
                    assert_eq!(parts.chunks(5).map(|part| number(&part[2])).sum::<u64>(), each_ns, "view {at}");
                }
            }
        }
    }
}
