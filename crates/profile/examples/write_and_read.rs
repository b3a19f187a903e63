//! Writes a recording of two locks, reads it back, and groups it by lock and by task.

use std::error::Error;

use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{
    About, Bucket, Dimension, Happened, Interval, Key, Kind, Lock, Mode, Naming, RecordingKind, Report, Task, Total,
    Value,
};

const MILLISECOND_NS: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("example.lockmeter");
    let about = About {
        scope: "an example".into(),
        cpus: 2,
        start_unix_ns: 1_790_000_000_000_000_000,
        kind: Some(RecordingKind::Locks),
        ..About::default()
    };
    let mut writer = RecordingWriter::create(&path, &about)?;
    // One chunk for each interval: a recorder that dies loses the last one at most.
    for second in 0..3 {
        writer.append(&interval(about.start_unix_ns + second * 1_000 * MILLISECOND_NS))?;
    }
    writer.finish()?;

    for by in [Dimension::Lock, Dimension::Task] {
        let report = read(&path, &Query::by([Dimension::Lock, by]))?;
        for row in &report.rows {
            let task = row.task.as_ref().map_or_else(String::new, |task| format!(" in {}", task.comm));
            let (lock, value) = (row.lock.as_deref().unwrap_or("?"), row.value);
            println!("{lock}{task}: {} waits, {} ms", value.count, value.total_ns / MILLISECOND_NS);
        }
        assert_eq!((report.waits.count, report.intervals), (18, 3));
    }
    Ok(())
}

/// A second in which two tasks waited for two locks.
fn interval(start_unix_ns: u64) -> Interval {
    let mut interval = Interval { start_unix_ns, duration_ns: 1_000 * MILLISECOND_NS, ..Interval::default() };
    for (name, comm, count, wait_ns) in
        [("queue_lock", "reader", 4, 3 * MILLISECOND_NS), ("log_lock", "writer", 2, MILLISECOND_NS / 2)]
    {
        let lock = Lock { name: name.into(), object: None, naming: Naming::UserSymbol, detail: String::new() };
        let key = Key {
            happened: Happened::Wait,
            lock: interval.tables.intern_lock(lock),
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            task: Some(interval.tables.intern_task(Task { tgid: 100, comm: comm.into(), own: false })),
            cgroup: None,
            context: None,
            cpu: None,
            bucket: Bucket::of(wait_ns),
        };
        let value = Value { count, total_ns: count * wait_ns, max_ns: wait_ns, spin_ns: 0 };
        interval.totals.push(Total { key, value });
    }
    interval
}

fn read(path: &std::path::Path, query: &Query) -> Result<Report, Box<dyn Error>> {
    let mut reader = RecordingReader::open(path)?;
    let mut builder = ReportBuilder::new(reader.about(), query);
    while let Some(interval) = reader.next_interval()? {
        builder.add(&interval);
    }
    Ok(builder.finish())
}
