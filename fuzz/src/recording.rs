//! Any bytes as a recording: read, grouped in every way, written in every format.

use std::io::Cursor;

use lockmeter_profile::diff::diff;
use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery, LatencyReport};
use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{Dimension, Interval, Report};
use lockmeter_render::latency::LatencyTable;
use lockmeter_render::{Csv, Exporter, Folded, FoldedStacks, Histograms, Json, Pprof, Table};

use crate::hostile_recordings as hostile;
use crate::hostile_recordings::{INTERVAL, RecordingBytes};

/// What reading any file may cost, and what each of its bytes adds: as in the reader, with nothing to spare.
const ENTRIES_OF_ANY_FILE: u64 = 2 << 20;
const ENTRIES_OF_A_BYTE: u64 = 1;

/// Bytes that begin like a recording are read as one; all others are the message of an interval, for no fuzzer finds
/// checksums.
pub fn recording(bytes: &[u8]) {
    if bytes.starts_with(b"\x89LKMTR\r\n") {
        read(bytes.to_vec());
    } else {
        read(RecordingBytes::default().chunk(INTERVAL, bytes).finish());
    }
}

fn read(bytes: Vec<u8>) {
    let length = bytes.len() as u64;
    let Ok(mut reader) = RecordingReader::from_reader(Cursor::new(bytes), "input") else { return };
    let mut intervals = Vec::new();
    let mut outcome = Ok(());
    for interval in reader.by_ref() {
        match interval {
            Ok(interval) => intervals.push(interval),
            Err(error) => outcome = Err(error),
        }
    }
    assert!(reader.entries_decoded() <= ENTRIES_OF_ANY_FILE + length * ENTRIES_OF_A_BYTE || outcome.is_err());
    for query in queries() {
        let Some(report) = report(&reader, &intervals, &query) else { continue };
        check(&report);
        write_all(&report);
    }
    let mut latency = LatencyBuilder::new(reader.about(), &LatencyQuery::default());
    if intervals.iter().all(|interval| latency.add_within(interval, &reader.limits()).is_ok()) {
        write_latency(&latency.report());
    }
    if let [Some(waits), Some(blame)] =
        [Pprof::WAITS, Pprof::BLAME].map(|by| report(&reader, &intervals, &Query::by(by)))
    {
        written(|out| Pprof { waits: &waits, blame: &blame }.write(out));
    }
}

fn queries() -> Vec<Query> {
    use Dimension::{Blocker, Caller, Cgroup, Instance, Kind, Lock, Object, Task};
    let every = Query { include_own: true, ..Query::by([Lock, Instance, Caller, Blocker, Kind, Task, Cgroup, Object]) };
    let narrow = Query { window: Some((0, 5_000_000_000)), lock: Some("*o*".into()), ..Query::by([Lock, Caller]) };
    vec![
        Query::by([]),
        Query::by([Lock]),
        Query::by([Lock, Caller]),
        Query::by([Lock, Blocker]),
        Query::by([Lock, Caller, Blocker]),
        Query::by([Task, Cgroup, Object]),
        every,
        narrow,
    ]
}

fn report(reader: &RecordingReader, intervals: &[Interval], query: &Query) -> Option<Report> {
    let mut builder = ReportBuilder::new(reader.about(), query);
    for interval in intervals {
        builder.add_within(interval, &reader.limits()).ok()?;
    }
    builder.add_losses(reader.losses());
    builder.finish_within(&reader.limits()).ok()
}

/// What holds of every report, wherever its numbers come from.
fn check(report: &Report) {
    assert!(report.named_ns <= report.waits.total_ns);
    for row in &report.rows {
        assert!(row.p50_ns <= row.p99_ns, "{row:?}");
        assert!(row.histogram.is_sorted_by_key(|(bucket, _, _)| *bucket));
    }
    for hold in &report.slow_holds {
        assert!(!hold.chain.is_empty());
    }
}

fn write_all(report: &Report) {
    let table = Table::default();
    written(|out| table.write(report, out));
    written(|out| Table { width: Some(80), limit: Some(2), frames: 0, ..table }.write(report, out));
    written(|out| Histograms { table }.write(report, out));
    written(|out| Csv.write(report, out));
    is_json(&written(|out| Json.write(report, out)));
    for stacks in [FoldedStacks::Caller, FoldedStacks::Blocker, FoldedStacks::Both] {
        if stacks.needs().iter().all(|dimension| report.by.contains(dimension)) {
            written(|out| Folded { stacks }.write(report, out));
        }
    }
    let nothing = Report { rows: Vec::new(), duration_ns: report.duration_ns.max(1), ..report.clone() };
    for (before, after) in [(report, report), (&nothing, report), (report, &nothing)] {
        if let Ok(diff) = diff(before, after) {
            written(|out| table.write(&diff, out));
            is_json(&written(|out| Json.write(&diff, out)));
        }
    }
}

fn write_latency(report: &LatencyReport) {
    written(|out| LatencyTable { table: Table::default(), histograms: true }.write(report, out));
    written(|out| Csv.write(report, out));
    is_json(&written(|out| Json.write(report, out)));
}

fn written(write: impl FnOnce(&mut dyn std::io::Write) -> std::io::Result<()>) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out).unwrap_or_else(|error| panic!("writing to memory failed: {error}"));
    out
}

fn is_json(text: &[u8]) {
    let read: Result<serde_json::Value, _> = serde_json::from_slice(text);
    read.unwrap_or_else(|error| panic!("no JSON: {error}\n{}", String::from_utf8_lossy(text)));
}

/// Small recordings of each kind, and the messages in them.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut message = hostile::Message::default()
        .number(1, 1_795_284_000_000_000_000)
        .number(hostile::field::DURATION_NS, 1_000_000_000)
        .message(hostile::field::LOCKS, &hostile::lock("mmap_lock").text(2, "mm_struct").text(4, "detail"))
        .message(hostile::field::TASKS, &hostile::Message::default().number(1, 42).text(2, "worker"))
        .message(5, &hostile::Message::default().number(1, 7).text(2, "/unit"))
        .message(hostile::field::FRAMES, &hostile::Message::default().text(2, "down_read").number(3, 9))
        .message(hostile::field::FRAMES, &hostile::Message::default().text(2, "do_work.isra.0").text(4, "program"))
        .message(hostile::field::STACKS, &hostile::Message::default().bytes(1, &[0, 1]));
    for happened in 1..=22 {
        let key = hostile::key(happened, 0, Some(0), 10).number(6, 0);
        message = message.message(hostile::field::TOTALS, &hostile::total(&key, &hostile::value(3, 4_000)));
    }
    let blocker = hostile::Message::default().number(1, 1).number(2, 0).number(3, 0);
    let sampled = hostile::Message::default().message(1, &hostile::key(1, 0, Some(0), 10)).number(3, 0);
    message = message
        .message(
            hostile::field::SAMPLED,
            &sampled.message(4, &blocker).number(5, 1).message(6, &hostile::value(1, 1_500)),
        )
        .message(10, &hostile::Message::default().number(1, 5).number(2, 9))
        .message(11, &hostile::Message::default().number(1, 5).number(2, 9))
        .message(14, &hostile::Message::default().message(1, &hostile::key(2, 0, Some(0), 0)).number(2, 5))
        .message(15, &hostile::Message::default().number(1, 1).number(2, 9))
        .message(16, &hostile::Message::default().number(1, 42).number(2, 9));
    let next = hostile::Message::default().number(1, 0).number(2, 3).number(3, 1).number(4, 500).number(6, 7);
    let slow =
        hostile::Message::default().number(1, 1_795_284_000_500_000_000).number(2, 1_000).number(3, 0).number(4, 3);
    let slow =
        slow.number(5, 1).number(6, 0).number(7, 7).number(8, 0).bytes(9, &[1, 2, 3, 4, 5, 6]).message(10, &next);
    message = message.message(13, &slow);
    vec![
        RecordingBytes::default().chunk(INTERVAL, &message.0).chunk(INTERVAL, &message.0).finish(),
        message.0,
        hostile::one_hold(2, 1_000_000_000, 1_000),
        hostile::long_runs(3, 2),
        hostile::distinct_stacks(5, 4, 6),
        hostile::wide_histograms(3),
        hostile::distinct_tasks(9, 1),
    ]
}
