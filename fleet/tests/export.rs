//! Exports of what `lockmeter record` really recorded, read back as others read Parquet.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch, StructArray};
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Interval, Losses};
use lockmeter_render::Exporter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value as Json;

mod recorded;
use recorded::{lockmeter, recording};

const HOUR_NS: u64 = 3_600_000_000_000;

fn export(to: &Path, arguments: &[&str], recordings: &[&Path]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockmeter-fleet"));
    command.arg("export").args(recordings).arg("--to").arg(to).args(arguments).output().unwrap()
}

fn exported(arguments: &[&str], recordings: &[&Path]) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let done = export(to.path(), arguments, recordings);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    to
}

/// All files below a folder, by their path there, in order.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(path) = left.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { left.push(path) } else { found.push(path.strip_prefix(folder).unwrap().to_path_buf()) }
        }
    }
    found.sort();
    found
}

/// A table's rows.
fn table(folder: &Path, table: &str) -> Vec<RecordBatch> {
    let files = files(folder).into_iter().filter(|path| path.starts_with(table));
    let read =
        |path: PathBuf| ParquetRecordBatchReaderBuilder::try_new(File::open(folder.join(path)).unwrap()).unwrap();
    files.flat_map(|path| read(path).build().unwrap().map(Result::unwrap)).collect()
}

fn text(batch: &RecordBatch, column: &str, row: usize) -> Option<String> {
    let values = batch.column_by_name(column).unwrap().as_string::<i32>();
    values.is_valid(row).then(|| values.value(row).to_owned())
}

fn number(batch: &RecordBatch, column: &str, row: usize) -> Option<u64> {
    let values = batch.column_by_name(column).unwrap().as_primitive::<Int64Type>();
    values.is_valid(row).then(|| values.value(row).cast_unsigned())
}

/// The stacks by their ids.
type Stacks = BTreeMap<u64, Vec<String>>;

fn stacks(folder: &Path) -> Stacks {
    let functions = |batch: &RecordBatch, row: usize| {
        let frames = batch.column_by_name("frames").unwrap().as_list::<i32>().value(row);
        frames.as_string::<i32>().iter().map(|function| function.unwrap().to_owned()).collect()
    };
    let of_batch = |batch: RecordBatch| {
        (0..batch.num_rows())
            .map(|row| (number(&batch, "id", row).unwrap(), functions(&batch, row)))
            .collect::<Vec<_>>()
    };
    table(folder, "stacks").into_iter().flat_map(of_batch).collect()
}

/// What tells rows apart, and their numbers: those of stacks as they are, to be the same to the nanosecond.
type Rows = BTreeMap<Vec<String>, Sums>;

/// Count, total, spinning, longest, stacks and histogram.
type Sums = (u64, u64, u64, u64, u64, Vec<(u64, u64, u64)>);

const TEXTS: [&str; 9] =
    ["happened", "lock", "naming", "kind", "mode", "blocker_source", "blocker_state", "root_lock", "root_source"];

fn parquet_rows(folder: &Path) -> Rows {
    let stacks = stacks(folder);
    let mut rows = Rows::new();
    for batch in table(folder, "samples") {
        for row in 0..batch.num_rows() {
            let column = |name: &str| name.replace("_source", "_reason");
            let mut key: Vec<String> =
                TEXTS.iter().map(|name| text(&batch, &column(name), row).unwrap_or_default()).collect();
            key.push(text(&batch, "root_state", row).unwrap_or_default());
            key.push(text(&batch, "workload", row).unwrap_or_default());
            for of in ["caller", "blocker", "root"] {
                let functions =
                    number(&batch, &format!("{of}_stack"), row).map(|id| stacks[&id].clone()).unwrap_or_default();
                assert_eq!(
                    text(&batch, of, row),
                    functions.first().cloned(),
                    "the innermost function of {functions:?}"
                );
                key.push(functions.join(" < "));
            }
            let of_row = batch.column_by_name("histogram").unwrap().as_list::<i32>().value(row);
            let sums =
                ["count", "total_ns", "spin_ns", "max_ns", "stacks"].map(|name| number(&batch, name, row).unwrap());
            let [count, total_ns, spin_ns, max_ns, stacks] = sums;
            let replaced = rows.insert(key, (count, total_ns, spin_ns, max_ns, stacks, histogram(of_row.as_struct())));
            assert!(replaced.is_none(), "two rows of one key");
        }
    }
    rows
}

fn histogram(buckets: &StructArray) -> Vec<(u64, u64, u64)> {
    let shortest_ns = buckets.column(0).as_primitive::<Int32Type>();
    let [counts, totals_ns] = [1, 2].map(|at| buckets.column(at).as_primitive::<Int64Type>());
    let lower_ns = |bucket: i32| if bucket == 0 { 0 } else { 1 << bucket };
    (0..buckets.len())
        .map(|at| {
            (lower_ns(shortest_ns.value(at)), counts.value(at).cast_unsigned(), totals_ns.value(at).cast_unsigned())
        })
        .collect()
}

/// A report as `lockmeter report --format json` writes it.
fn report(recording: &Path, by: &[Dimension]) -> Json {
    let mut reader = RecordingReader::open(recording).unwrap();
    let mut builder = ReportBuilder::new(reader.about(), &Query::by(by));
    while let Some(interval) = reader.next_interval().unwrap() {
        builder.add(&interval);
    }
    builder.add_losses(reader.losses());
    let mut json = Vec::new();
    lockmeter_render::Json.write(&builder.finish(), &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// The same of such reports: of waits by who is to blame, which has no holds, and of holds by caller.
fn report_rows(recording: &Path, dimension: Dimension) -> (Json, Rows) {
    let by = [Dimension::Lock, Dimension::Kind, Dimension::Mode, dimension, Dimension::Caller];
    let of_holds = report(recording, &by);
    let is_hold = |row: &&Json| row["happened"].as_str().unwrap().contains("hold");
    let holds = of_holds["rows"].as_array().unwrap().iter().filter(is_hold);
    let report = report(recording, &[&by[..], &[Dimension::Blocker, Dimension::Root]].concat());
    let mut rows = Rows::new();
    for row in report["rows"].as_array().unwrap().iter().chain(holds) {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let number = |value: &Json| value.as_u64().unwrap_or(0);
        let mut key: Vec<String> = TEXTS.iter().map(|name| text(name)).collect();
        key.push(text("root_state"));
        key.push(text(if dimension == Dimension::Task { "task" } else { "cgroup" }));
        for of in ["caller", "blocker", "root"] {
            let functions = row[of].as_array().map_or(&[][..], Vec::as_slice);
            key.push(functions.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" < "));
        }
        let sums = ["count", "total_ns", "spin_ns", "max_ns", "stacks"];
        let [count, total_ns, spin_ns, max_ns, stacks] = sums.map(|name| number(&row[name]));
        // Processes of one name are one workload.
        let sum: &mut Sums = rows.entry(key).or_default();
        *sum = (
            sum.0 + count,
            sum.1 + total_ns,
            sum.2 + spin_ns,
            sum.3.max(max_ns),
            sum.4 + stacks,
            std::mem::take(&mut sum.5),
        );
        for bucket in row["histogram"].as_array().unwrap() {
            let (shortest_ns, count, total_ns) = (number(&bucket[0]), number(&bucket[1]), number(&bucket[2]));
            match sum.5.iter_mut().find(|(known, ..)| *known == shortest_ns) {
                Some((_, counts, totals_ns)) => (*counts, *totals_ns) = (*counts + count, *totals_ns + total_ns),
                None => sum.5.push((shortest_ns, count, total_ns)),
            }
        }
        sum.5.sort_unstable();
    }
    (report, rows)
}

/// Intervals of a recording, each begun when `begins` says, as a recording of its own.
fn moved(recording: &Path, to: &Path, about: impl FnOnce(&mut About), begins: impl Fn(usize, &Interval) -> u64) {
    let mut reader = RecordingReader::open(recording).unwrap();
    let mut changed = reader.about().clone();
    about(&mut changed);
    let mut writer = RecordingWriter::create(to, &changed).unwrap();
    let mut number = 0;
    while let Some(mut interval) = reader.next_interval().unwrap() {
        interval.start_unix_ns = begins(number, &interval);
        writer.append(&interval).unwrap();
        number += 1;
    }
    assert!(number > 2, "{number} intervals: too few to come back to an hour");
    writer.finish().unwrap();
}

/// In one hour, so that it is one report.
fn in_one_hour(recording: &Path, to: &Path) {
    let begin_ns = 500_000 * HOUR_NS;
    moved(recording, to, |_| {}, |number, _| begin_ns + number as u64 * 1_000_000_000);
}

#[test]
fn samples_are_the_rows_of_a_report_of_the_same_grouping() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one-hour.lockmeter");
    in_one_hour(recording, &path);
    for (workload_by, dimension) in [("cgroup", Dimension::Cgroup), ("command", Dimension::Task)] {
        let to = exported(&["--host", "web7", "--workload-by", workload_by], &[&path]);
        let (report, expected) = report_rows(&path, dimension);
        let found = parquet_rows(to.path());
        assert!(expected.len() > 10 && expected.keys().any(|key| key[0] == "hold"), "{} rows", expected.len());
        assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        assert_eq!(found, expected, "by {workload_by}");
        let waits = found.iter().filter(|(key, _)| key[0] == "wait").map(|(_, sums)| sums.1).sum::<u64>();
        assert_eq!(waits, report["head"]["waits"]["total_ns"].as_u64().unwrap());
        let [recordings] = table(to.path(), "recordings").try_into().unwrap();
        assert_eq!(number(&recordings, "metered_ns", 0), report["duration_ns"].as_u64());
        assert_eq!(number(&recordings, "intervals", 0), report["intervals"].as_u64());
        let time = recordings.column_by_name("time").unwrap().as_primitive::<TimestampMicrosecondType>().value(0);
        assert_eq!(time.cast_unsigned(), report["start_unix_ns"].as_u64().unwrap() / 1000);
        let losses = recordings.column_by_name("losses").unwrap().as_map().value(0);
        let names = losses.column(0).as_string::<i32>().iter().map(|name| name.unwrap().to_owned()).collect::<Vec<_>>();
        let lost =
            report["lost"].as_array().map(|lost| lost.len()).or(report["lost"].as_object().map(|lost| lost.len()));
        assert_eq!(Some(names.len()), lost, "{names:?} and {}", report["lost"]);
    }
}

#[test]
fn counts_and_times_add_up_to_what_the_report_command_prints() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one-hour.lockmeter");
    in_one_hour(recording, &path);
    let mut command = Command::new(lockmeter());
    let done = command.args(["report", "--format", "json", "--by", "lock,mode,cgroup"]).arg(&path).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let report: Json = serde_json::from_slice(&done.stdout).unwrap();
    let mut expected = BTreeMap::<[String; 4], (u64, u64)>::new();
    for row in report["rows"].as_array().unwrap() {
        let key = ["happened", "lock", "mode", "cgroup"].map(|name| row[name].as_str().unwrap_or_default().to_owned());
        let sum = expected.entry(key).or_default();
        *sum = (sum.0 + row["count"].as_u64().unwrap_or(0), sum.1 + row["total_ns"].as_u64().unwrap());
    }
    let mut found = BTreeMap::<[String; 4], (u64, u64)>::new();
    for (key, row) in parquet_rows(exported(&["--host", "web7", "--workload-by", "cgroup"], &[&path]).path()) {
        let sum = found.entry([0, 1, 4, 10].map(|at| key[at].clone())).or_default();
        *sum = (sum.0 + row.0, sum.1 + row.1);
    }
    assert!(expected.len() > 1);
    assert_eq!(found, expected);
}

#[test]
fn units_and_containers_add_up_to_what_control_groups_do() {
    let Some(recording) = recording() else { return };
    let sums = |workload_by| {
        let rows = parquet_rows(exported(&["--host", "web7", "--workload-by", workload_by], &[recording]).path());
        rows.values().fold((0, 0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1, sum.2 + row.4))
    };
    let expected = sums("cgroup");
    assert!(expected.1 > 0);
    assert_eq!([sums("unit"), sums("container")], [expected; 2]);
}

#[test]
fn samples_are_sorted_by_lock_and_say_their_schema() {
    let Some(recording) = recording() else { return };
    let to = exported(&["--host", "web7"], &[recording]);
    for batch in table(to.path(), "samples") {
        let locks: Vec<_> = (0..batch.num_rows()).map(|row| text(&batch, "lock", row)).collect();
        assert!(locks.is_sorted() && locks.len() > 1);
    }
    for path in files(to.path()) {
        let file = ParquetRecordBatchReaderBuilder::try_new(File::open(to.path().join(path)).unwrap()).unwrap();
        let metadata = file.metadata().file_metadata().key_value_metadata().unwrap();
        assert!(metadata.iter().any(|pair| pair.key == "lockmeter.schema" && pair.value.as_deref() == Some("1")));
    }
}

#[test]
fn an_export_again_replaces_what_it_wrote() {
    let Some(recording) = recording() else { return };
    let to = exported(&["--host", "web7"], &[recording]);
    let content =
        || files(to.path()).into_iter().map(|path| fs::read(to.path().join(path)).unwrap()).collect::<Vec<_>>();
    let (names, before) = (files(to.path()), content());
    assert!(export(to.path(), &["--host", "web7"], &[recording]).status.success());
    assert_eq!(files(to.path()), names);
    assert!(content() == before, "the same bytes");
}

/// Makes sure that a process which is killed while it writes a file leaves none: here by the limit of a file's size.
#[test]
fn a_file_that_is_not_whole_has_no_name() {
    let Some(recording) = recording() else { return };
    let to = tempfile::tempdir().unwrap();
    let limited = "ulimit -c 0; ulimit -f 1; exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", limited, "bash", env!("CARGO_BIN_EXE_lockmeter-fleet"), "export"]).arg(recording);
    let done = command.args(["--host", "web7", "--to"]).arg(to.path()).output().unwrap();
    assert!(!done.status.success(), "1 KiB is too little: {done:?}");
    assert!(files(to.path()).is_empty(), "{:?}", files(to.path()));
    assert!(export(to.path(), &["--host", "web7"], &[recording]).status.success());
    assert_eq!(files(to.path()).len() % 3, 0);
}

#[test]
fn hours_have_partitions_of_their_own_also_when_the_clock_is_set_back() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hours.lockmeter");
    // 2027-01-15: hours 08, 09, 08, 09 and so on.
    let begins = |number: usize, _: &Interval| (500_000 + number as u64 % 2) * HOUR_NS + number as u64;
    moved(recording, &path, |_| {}, begins);
    let to = exported(&["--host", "web7", "--workload-by", "cgroup"], &[&path]);
    let files = files(to.path());
    let intervals =
        table(to.path(), "recordings").iter().map(|batch| number(batch, "intervals", 0).unwrap()).sum::<u64>();
    let of_samples: Vec<&PathBuf> = files.iter().filter(|path| path.starts_with("samples")).collect();
    assert_eq!(of_samples.len() as u64, intervals, "a part for each");
    assert!(of_samples[0].starts_with("samples/date=2027-01-15/hour=08"), "{of_samples:?}");
    assert!(of_samples.iter().any(|path| path.starts_with("samples/date=2027-01-15/hour=09")), "{of_samples:?}");
    // Exact totals do not depend on how the hours divide them.
    let exact = |rows: Rows| {
        let mut sums = BTreeMap::<[String; 5], (u64, u64)>::new();
        for (key, row) in rows {
            let sum = sums.entry([0, 1, 3, 4, 10].map(|at| key[at].clone())).or_default();
            *sum = (sum.0 + row.0, sum.1 + row.1);
        }
        sums
    };
    let mut by_parts = BTreeMap::<[String; 5], (u64, u64)>::new();
    for path in of_samples {
        let alone = tempfile::tempdir().unwrap();
        for table in ["samples", "stacks"] {
            let from = Path::new(table).join(path.strip_prefix("samples").unwrap());
            fs::create_dir_all(alone.path().join(&from).parent().unwrap()).unwrap();
            fs::copy(to.path().join(&from), alone.path().join(&from)).unwrap();
        }
        for (key, (count, total_ns)) in exact(parquet_rows(alone.path())) {
            let sum = by_parts.entry(key).or_default();
            *sum = (sum.0 + count, sum.1 + total_ns);
        }
    }
    assert_eq!(by_parts, exact(report_rows(&path, Dimension::Cgroup).1));
}

#[test]
fn recordings_of_two_hosts_of_one_name_do_not_replace_each_other() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.lockmeter");
    // As if another machine of the same image had begun at the same moment, its recorder a process of another number.
    moved(recording, &other, |about| about.recorder_tgid += 1, |_, interval| interval.start_unix_ns);
    let both = exported(&["--host", "web7"], &[recording, &other]);
    assert_eq!(files(both.path()).len(), 2 * files(exported(&["--host", "web7"], &[recording]).path()).len());
}

#[test]
fn a_recording_of_a_wrong_clock_is_exported_under_its_time_with_a_word() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (hour, date, said) in
        [(0, "1970-01-01", "before there was a lockmeter"), (900_000, "2072-09-02", "in the future")]
    {
        let path = folder.path().join(format!("{hour}.lockmeter"));
        moved(recording, &path, |_| {}, |number, _| hour * HOUR_NS + number as u64);
        let to = tempfile::tempdir().unwrap();
        let done = export(to.path(), &["--host", "web7"], &[&path]);
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && stderr.contains(said) && stderr.contains("a clock is wrong"), "{stderr}");
        assert!(
            files(to.path())
                .iter()
                .all(|path| path.components().nth(1).unwrap().as_os_str() == &*format!("date={date}"))
        );
    }
}

/// Makes sure that nobody takes a machine where nothing waited for one that was not metered.
#[test]
fn a_recording_without_waits_is_known_to_have_metered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("quiet.lockmeter");
    let about = About { kind: Some(lockmeter_profile::RecordingKind::Locks), ..About::default() };
    let mut writer = RecordingWriter::create(&path, &about).unwrap();
    let mut losses = Losses::default();
    losses.add(lockmeter_profile::Loss::TotalsFull, 7);
    let begin =
        Interval { start_unix_ns: 500_000 * HOUR_NS, duration_ns: 2_000_000_000, losses, ..Interval::default() };
    writer.append(&begin).unwrap();
    writer.finish().unwrap();
    let to = exported(&["--host", "web7"], &[&path]);
    let [recordings] = table(to.path(), "recordings").try_into().unwrap();
    assert_eq!(number(&recordings, "metered_ns", 0), Some(2_000_000_000));
    let losses = recordings.column_by_name("losses").unwrap().as_map().value(0);
    assert_eq!(
        (losses.column(0).as_string::<i32>().value(0), losses.column(1).as_primitive::<Int64Type>().value(0)),
        ("totals_full", 7)
    );
    assert!(table(to.path(), "samples").iter().all(|batch| batch.num_rows() == 0));
}

/// Status, and one sentence that has these words.
#[track_caller]
fn refused(done: &Output, status: i32, words: &str) {
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(status), "{stderr}");
    assert!(stderr.contains(words) && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn what_cannot_be_exported_is_said_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (to, missing) = (folder.path().join("to"), folder.path().join("missing.lockmeter"));
    refused(&export(&to, &["--host", "web7"], &[&missing]), 4, "missing.lockmeter");
    let text = folder.path().join("text.lockmeter");
    fs::write(&text, "what somebody else wrote").unwrap();
    refused(&export(&to, &["--host", "web7"], &[&text]), 4, "not a lockmeter recording");
    refused(&export(&to, &["--host", "../web7"], &[&text]), 2, "a host's name has");
    refused(&export(&to, &["--host", "web7", "--workload-by", "luck"], &[&text]), 2, "luck");
    let latency = folder.path().join("latency.lockmeter");
    let about = About { kind: Some(lockmeter_profile::RecordingKind::Latency), ..About::default() };
    let mut writer = RecordingWriter::create(&latency, &about).unwrap();
    writer.append(&Interval::default()).unwrap();
    writer.finish().unwrap();
    refused(&export(&to, &["--host", "web7"], &[&latency]), 4, "has no locks to export");
    assert!(!to.exists(), "nothing was written");
}

#[test]
fn a_recording_that_cannot_be_read_keeps_nobody_from_the_others() {
    let Some(recording) = recording() else { return };
    let to = tempfile::tempdir().unwrap();
    let done = export(to.path(), &["--host", "web7"], &[Path::new("/nonexistent.lockmeter"), recording]);
    refused(&done, 4, "/nonexistent.lockmeter");
    assert!(!files(to.path()).is_empty());
    let file = to.path().join("file");
    fs::write(&file, "").unwrap();
    refused(&export(&file, &["--host", "web7"], &[recording]), 6, "cannot write");
}

/// Makes sure that a small file cannot fill a disk with small files.
#[test]
fn a_recording_of_more_hours_than_a_recorder_writes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ages.lockmeter");
    let about = About { kind: Some(lockmeter_profile::RecordingKind::Locks), ..About::default() };
    let mut writer = RecordingWriter::create(&path, &about).unwrap();
    for hour in 0..2_001 {
        let interval = Interval { start_unix_ns: (500_000 + hour) * HOUR_NS, duration_ns: 1, ..Interval::default() };
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
    // In memory: each file is handed to the disk.
    let to = tempfile::tempdir_in("/dev/shm").unwrap();
    refused(&export(to.path(), &["--host", "web7"], &[&path]), 4, "in more than 2000 hours");
}
