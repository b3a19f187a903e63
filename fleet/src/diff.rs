//! What changed between two windows, on which hosts.

use std::collections::{BTreeMap, BTreeSet};

use arrow_array::RecordBatch;
use lockmeter_render::units::counted;
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Heading, name};
use crate::by::{By, columns, of_hosts};
use crate::failure::Failure;
use crate::fleet::{Coverage, Fleet};
use crate::significance::{holm, outliers, signed_rank_p};
use crate::top::waiting;
use crate::values::{self, float, rows};

/// Chance is to be called a change in one of a hundred comparisons, as in `lockmeter diff`.
const MOST_CHANCE: f64 = 0.01;

/// Less is not worth to be looked into: tasks that wait at a time on a host.
const LEAST_CHANGE: f64 = 0.01;

/// Hosts are named up to here, and counted beyond.
const NAMED: usize = 3;

/// What the tests say of one row.
struct Change {
    key: Vec<Json>,
    /// Tasks that wait at a time on an average host.
    before: f64,
    after: f64,
    rose: usize,
    fell: usize,
    /// Beside all other rows.
    p: Option<f64>,
    /// Hosts that changed otherwise than most, with what they were and are.
    outliers: Vec<(String, f64, f64)>,
}

impl Change {
    fn change(&self) -> f64 {
        self.after - self.before
    }

    fn is_of_most_hosts(&self) -> bool {
        self.p.is_some_and(|p| p < MOST_CHANCE)
    }

    /// Where it changed, in words.
    fn place(&self) -> String {
        let named = self.outliers.iter().take(NAMED).map(|(host, ..)| host.as_str()).collect::<Vec<_>>().join(", ");
        let more = self.outliers.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        match (self.is_of_most_hosts(), self.outliers.is_empty()) {
            (true, true) => "across hosts".to_owned(),
            (true, false) => format!("across hosts; unlike most: {named}{more}"),
            (false, true) => "may be chance".to_owned(),
            (false, false) => format!("unlike most: {named}{more}"),
        }
    }
}

/// What changed most, of the hosts that were metered in both windows.
pub fn diff(before: &Fleet, after: &Fleet, by: &[By], filter: &str, limit: usize) -> Result<Answer, Failure> {
    let columns = columns(by);
    let names = columns.join(", ");
    let sql = format!(
        "{} SELECT {names}, host AS of_host, sum(waited_ns) FROM of_hosts GROUP BY {names}, host",
        of_hosts(&columns, filter)
    );
    let [(old, old_coverage), (new, new_coverage)] = {
        let ask = |fleet: &Fleet| fleet.answer(|fleet| fleet.ask(&sql));
        [ask(before)?, ask(after)?]
    };
    let hosts =
        old_coverage.hosts.keys().filter(|host| new_coverage.hosts.contains_key(*host)).cloned().collect::<Vec<_>>();
    let [old, new] = [(&old, &old_coverage), (&new, &new_coverage)]
        .map(|(batches, coverage)| waits(batches, columns.len(), &hosts, coverage));
    let keys = old.keys().chain(new.keys()).collect::<BTreeSet<_>>();
    let mut changes =
        keys.into_iter().map(|key| change(key, [&old, &new].map(|of| of.get(key)), &hosts)).collect::<Vec<_>>();
    let chances = holm(&changes.iter().map(|change| change.p).collect::<Vec<_>>());
    changes.iter_mut().zip(chances).for_each(|(change, p)| change.p = p);
    let total =
        changes.iter().fold((0.0, 0.0), |(before, after), change| (before + change.before, after + change.after));
    // First what is a change.
    changes.sort_by(|one, other| {
        let rank = |of: &Change| (of.is_of_most_hosts() || !of.outliers.is_empty(), of.change().abs());
        rank(other).partial_cmp(&rank(one)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let windows = [&new_coverage, &old_coverage];
    let sentences = sentence(&changes, total, hosts.len(), windows);
    changes.truncate(limit);
    let headings = columns.iter().map(|column| Heading::name(column)).chain([
        Heading::number("before"),
        Heading::number("after"),
        Heading::number("change"),
        Heading::number("rose on"),
        Heading::number("fell on"),
        Heading::number("chance"),
        Heading::name("where"),
    ]);
    Ok(Answer {
        sentence: sentences,
        headings: headings.collect(),
        cells: changes.iter().map(cells).collect(),
        rows: changes.iter().map(|change| row(change, &columns)).collect(),
        coverage: vec![("baseline", old_coverage), ("window", new_coverage)],
    })
}

/// Tasks that wait at a time, for each key and number of a host.
type Waits = BTreeMap<Vec<Option<String>>, BTreeMap<usize, f64>>;

fn waits(batches: &[RecordBatch], key_columns: usize, hosts: &[String], coverage: &Coverage) -> Waits {
    let mut waits = Waits::new();
    for (key, host, waited_ns) in rows(batches, |batch, row| {
        let key = (0..key_columns).map(|column| values::text(batch, column, row)).collect::<Vec<_>>();
        (key, values::text(batch, key_columns, row).unwrap_or_default(), float(batch, key_columns + 1, row))
    }) {
        let Ok(at) = hosts.binary_search(&host) else { continue };
        waits.entry(key).or_default().insert(at, waited_ns / coverage.metered_ns(&host));
    }
    waits
}

fn change(key: &[Option<String>], sides: [Option<&BTreeMap<usize, f64>>; 2], hosts: &[String]) -> Change {
    let value = |side: usize, host: usize| sides[side].and_then(|side| side.get(&host).copied()).unwrap_or(0.0);
    let changes = (0..hosts.len()).map(|host| value(1, host) - value(0, host)).collect::<Vec<_>>();
    let average = |side: usize| (0..hosts.len()).map(|host| value(side, host)).sum::<f64>() / hosts.len() as f64;
    let mut far = outliers(&changes, LEAST_CHANGE);
    far.sort_by(|one, other| changes[*other].abs().total_cmp(&changes[*one].abs()));
    Change {
        key: key.iter().map(|part| json!(part)).collect(),
        before: average(0),
        after: average(1),
        rose: changes.iter().filter(|change| **change > 0.0).count(),
        fell: changes.iter().filter(|change| **change < 0.0).count(),
        p: signed_rank_p(&changes),
        outliers: far.into_iter().map(|at| (hosts[at].clone(), value(0, at), value(1, at))).collect(),
    }
}

fn sentence(changes: &[Change], (before, after): (f64, f64), hosts: usize, [new, old]: [&Coverage; 2]) -> String {
    let both = counted(hosts as u64, "host", "hosts");
    let [only_old, only_new] = [old, new].map(|coverage| coverage.hosts.len() - hosts);
    let left_out = match only_old + only_new {
        0 => String::new(),
        _ => format!(" Metered in one of them only, and left out: {only_old} before, {only_new} after."),
    };
    let windows = format!("{}, against {}", new.window, old.window);
    if hosts == 0 {
        return format!("No host was metered in both windows ({windows}).{left_out}");
    }
    let went =
        format!("{} tasks waited at a time on an average host, {} before", waiting(Some(after)), waiting(Some(before)));
    let most = match changes.first().filter(|first| first.is_of_most_hosts() || !first.outliers.is_empty()) {
        Some(first) => {
            let what = first.key.iter().map(name).filter(|name| name != "-").collect::<Vec<_>>().join(", ");
            format!("Most of the change is {what}, {} ({}).", signed(first.change()), first.place())
        }
        None => "Nothing changed by more than chance may.".to_owned(),
    };
    format!("{both} metered in both windows, {windows}: {went}. {most}{left_out}")
}

/// A change with its sign.
fn signed(change: f64) -> String {
    format!("{}{}", if change < 0.0 { "-" } else { "+" }, waiting(Some(change.abs())))
}

fn cells(change: &Change) -> Vec<String> {
    let chance = |p: f64| if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") };
    change
        .key
        .iter()
        .map(name)
        .chain([
            waiting(Some(change.before)),
            waiting(Some(change.after)),
            signed(change.change()),
            change.rose.to_string(),
            change.fell.to_string(),
            change.p.map_or_else(|| "-".to_owned(), chance),
            change.place(),
        ])
        .collect()
}

fn row(change: &Change, columns: &[&str]) -> Json {
    let outlier =
        |(host, before, after): &(String, f64, f64)| json!({ "host": host, "before": before, "after": after });
    let mut row = columns.iter().map(|column| (*column).to_owned()).zip(change.key.iter().cloned()).collect::<Json>();
    for (name, value) in [
        ("before", json!(change.before)),
        ("after", json!(change.after)),
        ("rose_on", json!(change.rose)),
        ("fell_on", json!(change.fell)),
        ("p", json!(change.p)),
        ("is_across_hosts", json!(change.is_of_most_hosts())),
        ("outliers", change.outliers.iter().map(outlier).collect()),
    ] {
        row[name] = value;
    }
    row
}
