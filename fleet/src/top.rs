//! What costs a fleet most.

use lockmeter_render::units::{MILLION, count, counted, duration, share, thousandths};
use serde_json::Value as Json;

use crate::answer::{Answer, Heading, name};
use crate::by::{By, columns, of_hosts};
use crate::failure::Failure;
use crate::fleet::{Coverage, Fleet};
use crate::values::{self, number, rows};

/// The locks, callers, hosts or whatever it is asked by, that were waited for longest. By lock, it is the view `top_locks`.
pub fn top(fleet: &Fleet, by: &[By], filter: &str, limit: usize) -> Result<Answer, Failure> {
    let columns = columns(by);
    let names = columns.join(", ");
    let sql = format!(
        "{}, ranked AS (
            SELECT *, row_number() OVER (PARTITION BY {names} ORDER BY waited_ns DESC, host) AS place FROM of_hosts
        )
        SELECT {names}, count(*) AS hosts, sum(waits) AS waits, sum(waited_ns) AS waited_ns, sum(spin_ns) AS spin_ns,
            max(longest_ns) AS longest_ns, sum(waited_ns) / max(metered_ns) AS waiting,
            max(CASE WHEN place = 1 THEN host END) AS most_on, max(CASE WHEN place = 1 THEN waited_ns END) AS most_on_ns,
            sum(sum(waited_ns)) OVER () AS all_waited_ns
        FROM ranked GROUP BY {names} ORDER BY waited_ns DESC, {names} LIMIT {limit}",
        of_hosts(&columns, filter)
    );
    let (batches, coverage) = fleet.answer(|fleet| fleet.ask(&sql))?;
    let number_at = columns.len();
    let mut found = rows(&batches, |batch, row| {
        let key = (0..number_at).map(|column| values::json(batch, column, row)).collect::<Vec<_>>();
        let value = |at: usize| values::json(batch, number_at + at, row);
        let parts = ["hosts", "waits", "waited_ns", "spin_ns", "longest_ns", "waiting", "most_on", "most_on_ns"];
        let parts = parts.iter().enumerate().map(|(at, name)| ((*name).to_owned(), value(at)));
        let named = columns.iter().map(|column| (*column).to_owned()).zip(key);
        (named.chain(parts).collect::<Json>(), number(batch, number_at + 8, row))
    })
    .collect::<Vec<_>>();
    let all_ns = found.first().map_or(0, |(_, all_ns)| *all_ns);
    let found = found.drain(..).map(|(row, _)| row).collect::<Vec<_>>();
    let sentence = sentence(&found, &columns, all_ns, &coverage);
    let headings = columns.iter().map(|column| Heading::name(column)).chain([
        Heading::number("WAITING"),
        Heading::number("%"),
        Heading::number("WAITED"),
        Heading::number("WAITS"),
        Heading::number("LONGEST"),
        Heading::number("HOSTS"),
        Heading::name("most on"),
    ]);
    let cells = |row: &Json| {
        let ns = |name: &str| row[name].as_u64().unwrap_or(0);
        columns
            .iter()
            .map(|column| name(&row[*column]))
            .chain([
                waiting(row["waiting"].as_f64()),
                share_of(ns("waited_ns"), all_ns),
                duration(ns("waited_ns")),
                count(ns("waits")),
                duration(ns("longest_ns")),
                count(ns("hosts")),
                name(&row["most_on"]),
            ])
            .collect()
    };
    let cells = found.iter().map(cells).collect();
    Ok(Answer { sentence, coverage: vec![("window", coverage)], headings: headings.collect(), cells, rows: found })
}

fn sentence(found: &[Json], columns: &[&str], all_ns: u64, coverage: &Coverage) -> String {
    let hosts = coverage.hosts.len() as u64;
    let Some(first) = found.first() else {
        return format!("Nothing waited for locks on {}, {}.", counted(hosts, "host", "hosts"), coverage.window);
    };
    let metered_ns = coverage.hosts.values().map(|(_, metered_ns)| metered_ns).sum::<f64>();
    let what =
        columns.iter().map(|column| name(&first[*column])).filter(|name| name != "-").collect::<Vec<_>>().join(", ");
    let on = first["hosts"].as_u64().unwrap_or(0);
    let most_on = name(&first["most_on"]);
    let part = share_of(first["waited_ns"].as_u64().unwrap_or(0), all_ns);
    format!(
        "{}, {}: {} tasks waited for locks at a time on an average host. {part} of it was {what}, on {on} of them, most on {most_on}.",
        counted(hosts, "host", "hosts"),
        coverage.window,
        waiting(Some(all_ns as f64 / metered_ns)),
    )
}

/// Tasks that wait at a time.
pub fn waiting(tasks: Option<f64>) -> String {
    thousandths((tasks.unwrap_or(0.0) * 1_000.0).round() as u64)
}

fn share_of(part: u64, all: u64) -> String {
    share(lockmeter_render::units::ratio(part, MILLION, all))
}

/// The rows of any question.
pub fn query(fleet: &Fleet, sql: &str) -> Result<Answer, Failure> {
    let (batches, coverage) = fleet.answer(|fleet| fleet.ask(sql))?;
    let names = batches.first().map_or_else(Vec::new, |batch| {
        batch.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    });
    let values = rows(&batches, |batch, row| {
        (0..batch.num_columns()).map(|column| values::json(batch, column, row)).collect::<Vec<_>>()
    });
    let values = values.collect::<Vec<_>>();
    let headings = names.iter().enumerate().map(|(at, column)| {
        if values.iter().any(|row| row[at].is_number()) { Heading::number(column) } else { Heading::name(column) }
    });
    Ok(Answer {
        sentence: format!("{}, {}.", counted(coverage.hosts.len() as u64, "host", "hosts"), coverage.window),
        coverage: vec![("window", coverage)],
        headings: headings.collect(),
        cells: values.iter().map(|row| row.iter().map(name).collect()).collect(),
        rows: values.into_iter().map(|row| names.iter().cloned().zip(row).collect()).collect(),
    })
}
