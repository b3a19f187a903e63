//! One report as a table for people, and as CSV and JSON for programs.

use std::io::{self, Write};

use lockmeter_profile::view::{Query, report};
use lockmeter_profile::{
    About, Bucket, Dimension, Happened, Interval, Key, Kind, Lock, Mode, Naming, RecordingKind, Task, Total, Value,
};
use lockmeter_render::{Csv, Exporter, Json, Table};

fn main() -> io::Result<()> {
    let about = About {
        lockmeter_version: env!("CARGO_PKG_VERSION").into(),
        kernel_release: "6.18.0".into(),
        scope: "an example".into(),
        cpus: 2,
        kind: Some(RecordingKind::Locks),
        ..About::default()
    };
    let report = report(&about, std::iter::once(interval()), &Query::by([Dimension::Lock]));
    let mut out = io::stdout().lock();
    Table::default().write(&report, &mut out)?;
    writeln!(out)?;
    Csv.write(&report, &mut out)?;
    writeln!(out)?;
    Json.write(&report, &mut out)
}

/// A second in which 40 waits for a mutex took 120 ms.
fn interval() -> Interval {
    let mut interval = Interval { duration_ns: 1_000_000_000, ..Interval::default() };
    let lock =
        Lock { name: "server:queue_lock".into(), object: None, naming: Naming::UserSymbol, detail: String::new() };
    let key = Key {
        happened: Happened::Wait,
        lock: interval.tables.intern_lock(lock),
        kind: Kind::Mutex,
        mode: Mode::Exclusive,
        task: Some(interval.tables.intern_task(Task { tgid: 100, comm: "server".into(), own: false })),
        cgroup: None,
        context: None,
        cpu: None,
        bucket: Bucket::of(3_000_000),
    };
    let value = Value { count: 40, total_ns: 120_000_000, max_ns: 4_000_000, spin_ns: 0 };
    interval.totals.push(Total { key, value });
    interval
}
