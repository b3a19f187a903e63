//! The report of `lockmeter-lab bench all`: for each experiment its command, machine, table and picture, and the published figures
//! beside today's.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Result;
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_experiments::breakpoint::race::Design;
use lockmeter_pictures::charts::{self, Frame, Line, Point};
use lockmeter_profile::recording::write_file;
use lockmeter_render::escape::{Escaping, escaped};
use lockmeter_render::units::counted;
use lockmeter_statistics::Estimate;
use serde_json::Value;

use super::all::{LOCKS, Piece};

/// Writes the report and its pictures; gives the report's path.
pub fn write(folder: &Path, pieces: &[Piece], load: impl Fn(&str) -> Option<Value>) -> Result<PathBuf> {
    let path = folder.join("report.md");
    let cannot = |path: &Path, error: std::io::Error| {
        let sentence = format!("cannot write {}: {error}; make room or choose another --report", path.display());
        Failure::error(Status::NoOutput, sentence)
    };
    let mut text = "# lockmeter's experiments, here\n".to_owned();
    for piece in pieces {
        let _ = writeln!(text, "\n## {}\n", piece.title);
        let Some(results) = load(piece.name) else {
            text.push_str("Not measured.\n");
            continue;
        };
        let machine = &results["machine"];
        let said = |field: &str| escaped(machine[field].as_str().unwrap_or("?")).into_owned();
        let _ = writeln!(
            text,
            "`{}`\n\n{}, {}, Linux {}, {}\n\n```\n{}\n```",
            said("command"),
            said("cpu"),
            counted(machine["cpus"].as_u64().unwrap_or(0), "CPU", "CPUs"),
            said("kernel"),
            said("date"),
            results["text"].as_str().unwrap_or("").trim_end()
        );
        for (name, svg) in pictures(piece.name, &results) {
            let file = folder.join(&name).with_extension("svg");
            lockmeter_pictures::write(&file, &svg).map_err(|error| cannot(&file, error))?;
            let _ = writeln!(text, "\n![{}]({name}.svg)", piece.title);
        }
        if piece.name == LOCKS {
            let _ = writeln!(text, "\n![{}]({LOCKS}.svg)", piece.title);
        }
    }
    text.push_str(&published(&load));
    let mut escaped = Vec::new();
    let written = Escaping::text(&mut escaped).write_all(text.as_bytes()).and_then(|()| write_file(&path, &escaped));
    written.map_err(|error| cannot(&path, error))?;
    Ok(path)
}

fn estimate(value: &Value) -> Option<Estimate> {
    let number = |field: &str| value[field].as_f64();
    let samples = usize::try_from(value["samples"].as_u64()?).ok()?;
    Some(Estimate { median: number("median")?, low: number("low")?, high: number("high")?, samples })
}

fn list<'a>(results: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    results[field].as_array().into_iter().flatten()
}

/// The pictures of one experiment, with the names of their files.
fn pictures(name: &str, results: &Value) -> Vec<(String, String)> {
    let one = |svg: Option<String>| svg.map(|svg| (name.to_owned(), svg)).into_iter().collect();
    match name {
        "breakpoint" => one(designs(results)),
        "fork-mail" | "fork-mail-fsync" => {
            let mut pictures: Vec<_> = one(mail(results));
            pictures.extend(histogram(results).map(|svg| (format!("{name}-waits"), svg)));
            for (field, who) in [("locks_of_processes", "processes"), ("locks", "threads")] {
                pictures.extend(race_of_locks(results, field, who).map(|svg| (format!("{name}-locks-of-{who}"), svg)));
            }
            pictures
        }
        "mixed" => one(mix(results)),
        "model" => one(model(results)),
        _ => one(overhead(results)),
    }
}

fn line(results: &Value, field: &str, name: &str, x: &str, y: impl Fn(&Value) -> Option<Estimate>) -> Option<Line> {
    let point = |row: &Value| Some(Point::estimated(row[x].as_f64()?, y(row)?));
    let points: Vec<Point> = list(results, field).filter_map(point).collect();
    (!points.is_empty()).then(|| Line { name: name.to_owned(), points })
}

fn designs(results: &Value) -> Option<String> {
    let design = |(at, design): (usize, &Design)| {
        let microseconds = |row: &Value| Some(estimate(&row["task_ns"][at])?.map(|ns| ns / 1e3));
        line(results, "user", design.title(), "threads", microseconds)
    };
    let lines: Vec<Line> = Design::ALL.iter().enumerate().filter_map(design).collect();
    let frame = Frame { title: "A task set up with its breakpoints and taken down", x: "threads", y: "µs a task" };
    (!lines.is_empty()).then(|| charts::lines(frame, &lines))
}

fn mail(results: &Value) -> Option<String> {
    let line = line(results, "points", "messages a second", "clients", |row| estimate(&row["per_second"]))?;
    Some(charts::lines(
        Frame { title: "Mail, a process for each message", x: "clients", y: "messages a second" },
        &[line],
    ))
}

/// Each lock's messages over those of the first, with its interval; one below the other, because lines would lie on each other.
fn race_of_locks(results: &Value, field: &str, who: &str) -> Option<String> {
    let row = |row: &Value| {
        Some((format!("{} {who}: {}", row["at_once"].as_u64()?, row["lock"].as_str()?), estimate(&row["ratio"])?))
    };
    let rows: Vec<_> = list(results, field).filter_map(row).collect();
    let title = format!("The lock that forks contend for, between {who}");
    (!rows.is_empty()).then(|| charts::intervals(&title, "messages a second over Mutex", &rows, Some(1.0)))
}

/// Waits for the lock that was waited for longest.
fn histogram(results: &Value) -> Option<String> {
    let worst = results["seen"]["Ok"]["locks"].get(0)?;
    let bar = |bucket: &Value| Some((short_time(bucket[0].as_u64()?), bucket[1].as_f64()?));
    let bars: Vec<(String, f64)> = list(worst, "histogram").filter_map(bar).collect();
    let title = format!("Waits for {}", worst["name"].as_str()?);
    (!bars.is_empty()).then(|| charts::bars(Frame { title: &title, x: "at least so long", y: "waits" }, &bars))
}

fn short_time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", ns / 1_000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}

fn mix(results: &Value) -> Option<String> {
    let point = |row: &Value| Some(Point::exact(row["users"].as_f64()?, row["jobs_per_minute"].as_f64()?));
    let points: Vec<Point> = list(results, "steps").filter_map(point).collect();
    let lines = [Line { name: "jobs a minute".into(), points }];
    let frame = Frame { title: "A mix of work, users added", x: "users", y: "jobs a minute" };
    (!lines[0].points.is_empty()).then(|| charts::lines(frame, &lines))
}

/// The longest holds and the hottest lock: two lines for each lock, measured and simulated. More could not be told apart.
fn model(results: &Value) -> Option<String> {
    let number = |row: &Value, field: &str| row[field].as_f64().unwrap_or(0.0);
    let longest = list(results, "points").map(|row| number(row, "hold_ns")).fold(0.0, f64::max);
    let is_hot = |row: &Value| number(row, "hold_ns") > longest * 0.7 && number(row, "think_ns") < longest * 0.2;
    let locks: std::collections::BTreeSet<&str> =
        list(results, "points").filter_map(|row| row["lock"].as_str()?.split(',').next()).collect();
    let line = |lock: &str, field: &str| {
        let of = |row: &Value| {
            (is_hot(row) && row["lock"].as_str()?.starts_with(lock)).then(|| {
                let exact = |value: f64| Estimate { median: value, low: value, high: value, samples: 1 };
                estimate(&row[field]).or_else(|| row[field].as_f64().map(exact))
            })?
        };
        line(results, "points", &format!("{field}, {lock}"), "threads", of)
    };
    let lines: Vec<Line> = locks
        .iter()
        .flat_map(|lock| ["measured", "predicted"].into_iter().filter_map(|field| line(lock, field)))
        .collect();
    let frame = Frame { title: "A hot mutex: from one thread's times", x: "threads", y: "acquisitions a second" };
    (!lines.is_empty()).then(|| charts::lines(frame, &lines))
}

fn overhead(results: &Value) -> Option<String> {
    let row = |cost: &Value| {
        let name = format!("{}, {}", cost["level"].as_str()?, cost["of"].as_str()?.replace('-', " "));
        Some((name, estimate(&cost["cost"])?.map(|share| share * 100.0)))
    };
    let rows: Vec<(String, Estimate)> = list(results, "costs").filter_map(row).collect();
    let limit = list(results, "costs").find_map(|cost| cost["verdict"].as_object()?.values().next()?["limit"].as_f64());
    (!rows.is_empty()).then(|| {
        charts::intervals("Cost, median and 95 % interval", "percent", &rows, limit.map(|limit| limit * 100.0))
    })
}

/// Published figures, and what was measured here.
fn published(load: &impl Fn(&str) -> Option<Value>) -> String {
    let mut rows = String::new();
    let mut row = |what: &str, published: &str, here: Option<String>| {
        let _ = writeln!(rows, "| {what} | {published} | {} |", here.unwrap_or_else(|| "not measured".to_owned()));
    };
    let cost = |piece: &str, level: &str| {
        let results = load(piece)?;
        let found = list(&results, "costs").find(|cost| cost["level"] == level && cost["of"] == "wall-time")?;
        let Estimate { median, low, high, .. } = estimate(&found["cost"])?.map(|share| share * 100.0);
        Some(format!("{median:+.2} % [{low:+.2}, {high:+.2}]"))
    };
    row("kernel build, waits only (2020: contended only)", "< 1 %", cost("overhead-kernel-build", "wait"));
    row(
        "kernel build, every mmap_lock acquisition timed (2020: naive)",
        "5–6 %",
        cost("overhead-kernel-build", "naive"),
    );
    row("mix of work, switched off (1999)", "negligible", cost("overhead-mixed", "off"));
    row("mix of work, waits (1999)", "1–2 %", cost("overhead-mixed", "wait"));
    row("mix of work, holds (1999)", "5–8 %", cost("overhead-mixed", "hold"));
    let breakpoint = load("breakpoint");
    let last = breakpoint.as_ref().and_then(|results| list(results, "user").last().cloned());
    let of_last = |field: &str| estimate(last.as_ref()?.get(field)?);
    let speed_up =
        of_last("speed_up").map(|Estimate { median, low, high, .. }| format!("{median:.1} × [{low:.1}, {high:.1}]"));
    row("breakpoint accounting, before / after (2022)", "2.7 ×", speed_up);
    let from_ideal = of_last("from_ideal").map(|share| {
        let Estimate { median, low, high, .. } = share.map(|share| share * 100.0);
        format!("{median:+.0} % [{low:+.0}, {high:+.0}]")
    });
    row("breakpoint accounting, after from ideal (2022, v1)", "+14 %", from_ideal);
    let kernel = breakpoint.as_ref().and_then(|results| estimate(&results["kernel"]["usecs_per_op"]));
    row(
        "`breakpoint thread -b 4 -p 64 -t 64` of this kernel (2022, 256 CPUs, after)",
        "40.2 µs/op",
        kernel.map(|Estimate { median, low, high, .. }| format!("{median:.1} µs/op [{low:.1}, {high:.1}]")),
    );
    format!("\n## Published, and here\n\n| what | published | here |\n|---|---|---|\n{rows}")
}
