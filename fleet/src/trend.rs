//! How waiting went, hour by hour.

use std::collections::BTreeMap;

use lockmeter_render::units::counted;
use serde_json::{Value as Json, json};

use crate::answer::{Answer, Heading, name};
use crate::by::{By, columns, of_hosts};
use crate::failure::Failure;
use crate::fleet::Fleet;
use crate::top::waiting;
use crate::values::{self, float, rows};

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Tasks that wait at a time in each hour in which any machine was metered.
struct Series {
    key: Vec<Json>,
    by_hour: BTreeMap<String, f64>,
}

/// How many tasks waited at a time on an average host, in each hour, for the locks (or callers, hosts, …) that were waited for longest.
pub fn trend(fleet: &Fleet, by: &[By], filter: &str, limit: usize) -> Result<Answer, Failure> {
    let columns = columns(by);
    let names = columns.join(", ");
    let with_hour = [&columns[..], &["date", "hour"]].concat();
    let sql = format!(
        "{}, of_hours AS (
            SELECT {names}, date, hour, sum(waited_ns) AS in_hour_ns, sum(waited_ns) / max(metered_ns) AS waiting
            FROM of_hosts GROUP BY {names}, date, hour
        ), summed AS (SELECT *, sum(in_hour_ns) OVER (PARTITION BY {names}) AS waited_ns FROM of_hours
        ), ranked AS (SELECT *, dense_rank() OVER (ORDER BY waited_ns DESC, {names}) AS place FROM summed)
        SELECT {names}, date, hour, waiting FROM ranked WHERE place <= {limit} ORDER BY place, date, hour",
        of_hosts(&with_hour, filter)
    );
    let hours_sql = "SELECT date, hour FROM recordings GROUP BY date, hour ORDER BY date, hour";
    let ((found, hours), coverage) = fleet.answer(|fleet| Ok((fleet.ask(&sql)?, fleet.ask(hours_sql)?)))?;
    let moment = |batch: &_, at: usize, row: usize| {
        let [date, hour] = [at, at + 1].map(|column| name(&values::json(batch, column, row)));
        format!("{date} {hour:0>2}:00")
    };
    let hours = rows(&hours, |batch, row| moment(batch, 0, row)).collect::<Vec<_>>();
    let mut series = Vec::<Series>::new();
    for (key, hour, waiting) in rows(&found, |batch, row| {
        let key = (0..columns.len()).map(|column| values::json(batch, column, row)).collect::<Vec<_>>();
        (key, moment(batch, columns.len(), row), float(batch, columns.len() + 2, row))
    }) {
        if series.last().is_none_or(|last| last.key != key) {
            series.push(Series { key, by_hour: BTreeMap::new() });
        }
        series.last_mut().expect("one was pushed").by_hour.insert(hour, waiting);
    }
    let of =
        |series: &Series| hours.iter().map(|hour| series.by_hour.get(hour).copied().unwrap_or(0.0)).collect::<Vec<_>>();
    let sentence = sentence(&series, &hours, of, &coverage);
    let headings = columns.iter().map(|column| Heading::name(column)).chain([
        Heading::number("first"),
        Heading::number("last"),
        Heading::number("most"),
        Heading::name("in hour"),
        Heading::name("hours"),
    ]);
    let cells = |series: &Series| {
        let values = of(series);
        let (at, most) = most(&values);
        let shown = |at: Option<usize>| waiting(at.and_then(|at| values.get(at).copied()));
        let bar = |value: &f64| BARS[((value / most * 7.0).round() as usize).min(7)];
        series
            .key
            .iter()
            .map(name)
            .chain([
                shown(Some(0)),
                shown(values.len().checked_sub(1)),
                waiting(Some(most)),
                hours.get(at).cloned().unwrap_or_default(),
                values.iter().map(bar).collect(),
            ])
            .collect()
    };
    let row = |series: &Series| {
        let by_hour = hours.iter().zip(of(series)).map(|(hour, waiting)| json!({ "hour": hour, "waiting": waiting }));
        let mut row =
            columns.iter().map(|column| (*column).to_owned()).zip(series.key.iter().cloned()).collect::<Json>();
        row["by_hour"] = by_hour.collect();
        row
    };
    Ok(Answer {
        sentence,
        coverage: vec![("window", coverage)],
        headings: headings.collect(),
        cells: series.iter().map(cells).collect(),
        rows: series.iter().map(row).collect(),
    })
}

/// The largest, and which it is.
fn most(values: &[f64]) -> (usize, f64) {
    values.iter().copied().enumerate().fold((0, 0.0), |most, value| if value.1 > most.1 { value } else { most })
}

fn sentence(
    series: &[Series],
    hours: &[String],
    of: impl Fn(&Series) -> Vec<f64>,
    coverage: &crate::fleet::Coverage,
) -> String {
    let hosts = counted(coverage.hosts.len() as u64, "host", "hosts");
    let Some(first) = series.first() else {
        return format!("Nothing waited for locks on {hosts}, {}.", coverage.window);
    };
    let (values, what) =
        (of(first), first.key.iter().map(name).filter(|name| name != "-").collect::<Vec<_>>().join(", "));
    let (at, most) = most(&values);
    format!(
        "{hosts}, {}: most was waited for {what}: {} tasks at a time on an average host in the first hour, {} in the last, at most {} ({}).",
        coverage.window,
        waiting(values.first().copied()),
        waiting(values.last().copied()),
        waiting(Some(most)),
        hours[at],
    )
}
