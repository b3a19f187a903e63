//! Questions about stores of what `lockmeter record` really recorded, exported as that of several hosts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, OnceLock};

use arrow_array::{Int64Array, RecordBatch};
use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::view::{Query, ReportBuilder};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::properties::WriterProperties;
use serde_json::Value as Json;

mod recorded;
use recorded::recording;

const HOUR_NS: u64 = 3_600_000_000_000;

/// More than 33 of them, so that two have the regression.
const HOSTS: &str = "40";

/// The lock that `dir-churn` contends for.
const LOCK: &str = "ext4_inode_info.vfs_inode.i_rwsem";

/// 40 hosts in two hours: on host00000 and host00033, the lock is waited for four times as often in the second.
fn store() -> Option<&'static Path> {
    static STORE: OnceLock<Option<tempfile::TempDir>> = OnceLock::new();
    let made = STORE.get_or_init(|| {
        let recording = recording()?;
        // In memory: each file is handed to the disk.
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_generate"));
        command.arg("fleet").arg(recording).args([
            "--hosts",
            HOSTS,
            "--hours",
            "2",
            "--regression",
            LOCK,
            "--since",
            "1",
            "--to",
        ]);
        let done = command.arg(folder.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        Some(folder)
    });
    made.as_ref().map(tempfile::TempDir::path)
}

/// When the first hour begins, and hours after it, as options have it.
fn hour(after: u64) -> String {
    let begin_ns = RecordingReader::open(recording().unwrap()).unwrap().about().start_unix_ns;
    let text = lockmeter_render::units::moment((begin_ns / HOUR_NS + after) * HOUR_NS);
    text[..16].replace(' ', "T")
}

fn fleet(arguments: &[&str], store: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockmeter-fleet"));
    command.args(arguments).arg("--from").arg(store).output().unwrap()
}

/// A question about both hours, or those that are chosen.
#[track_caller]
fn text(arguments: &[&str], store: &Path) -> String {
    let (since, until) = (hour(0), hour(2));
    let hours = if arguments.contains(&"--since") { vec![] } else { vec!["--since", &since, "--until", &until] };
    let done = fleet(&[arguments, &hours].concat(), store);
    let stderr = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && stderr.is_empty(), "{stderr}");
    String::from_utf8(done.stdout).unwrap()
}

#[track_caller]
fn json(arguments: &[&str], store: &Path) -> Json {
    serde_json::from_str(&text(&[arguments, &["--format", "json"]].concat(), store)).unwrap()
}

/// What was waited in the recording, for each lock, exactly.
fn waited_ns() -> BTreeMap<String, u64> {
    let mut reader = RecordingReader::open(recording().unwrap()).unwrap();
    let mut builder = ReportBuilder::new(reader.about(), &Query::by([lockmeter_profile::Dimension::Lock]));
    while let Some(interval) = reader.next_interval().unwrap() {
        builder.add(&interval);
    }
    let mut sums = BTreeMap::new();
    for row in builder.finish().rows.into_iter().filter(|row| row.happened == lockmeter_profile::Happened::Wait) {
        *sums.entry(row.lock.unwrap_or_default()).or_default() += row.value.total_ns;
    }
    sums
}

#[test]
fn top_is_the_view_of_the_same_name_and_adds_up_to_the_recordings() {
    let Some(store) = store() else { return };
    let top = json(&["top", "--limit", "1000"], store);
    let view = json(&["query", "SELECT * FROM top_locks ORDER BY waited_ns DESC, lock, kind"], store);
    assert_eq!(top["rows"], view["rows"]);
    assert!(top["rows"].as_array().unwrap().len() > 1);
    assert_eq!((top["window"]["hosts"].as_u64(), top["window"]["host_hours"].as_u64()), (Some(40), Some(80)));
    assert_eq!(top["window"]["unread"], Json::Object(serde_json::Map::new()));
    // The recording as it is, of one host.
    let alone = tempfile::tempdir().unwrap();
    export(recording().unwrap(), alone.path(), "web1", &[]);
    let top = json(&["top", "--limit", "1000"], alone.path());
    let mut found = BTreeMap::<String, u64>::new();
    for row in top["rows"].as_array().unwrap() {
        assert_eq!((row["hosts"].as_u64(), row["most_on"].as_str()), (Some(1), Some("web1")));
        *found.entry(row["lock"].as_str().unwrap().to_owned()).or_default() += row["waited_ns"].as_u64().unwrap();
    }
    assert_eq!(found, waited_ns());
}

fn export(recording: &Path, to: &Path, host: &str, arguments: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockmeter-fleet"));
    let done = command.arg("export").arg(recording).arg("--to").arg(to).args(["--host", host]).args(arguments).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn the_answer_comes_first_and_names_the_lock_and_the_host() {
    let Some(store) = store() else { return };
    let text = text(&["top", "--limit", "3"], store);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("40 hosts, ") && first.contains(LOCK) && first.contains("most on host000"), "{text}");
    assert!(text.lines().nth(2).unwrap().starts_with("LOCK"), "{text}");
}

/// Sums over what is told apart are those of all.
#[test]
fn every_way_to_tell_apart_adds_up_to_the_same_time() {
    let Some(store) = store() else { return };
    let sum = |by: &str| {
        let top = json(&["top", "--limit", "1000000", "--by", by], store);
        let rows = top["rows"].as_array().unwrap().clone();
        assert!(!rows.is_empty(), "{by}");
        rows.iter().map(|row| row["waited_ns"].as_u64().unwrap()).sum::<u64>()
    };
    let expected = sum("lock");
    for by in [
        "mode",
        "caller",
        "blocker",
        "reason",
        "host",
        "workload",
        "kernel",
        "lock,caller,blocker,host,workload,kernel,reason",
    ] {
        assert_eq!(sum(by), expected, "{by}");
    }
    // Of a host, the share is of its own time: it is the same as of all if every host did the same.
    let top = json(&["top", "--by", "host", "--limit", "40"], store);
    let waiting = |row: &Json| row["waiting"].as_f64().unwrap();
    let mean = top["rows"].as_array().unwrap().iter().map(waiting).sum::<f64>() / 40.0;
    let of_all = json(&["top", "--by", "kernel"], store);
    let rows = of_all["rows"].as_array().unwrap();
    let of_kernels = rows.iter().map(waiting).sum::<f64>() / rows.len() as f64;
    assert!((mean / of_kernels - 1.0).abs() < 0.1, "{mean} and {of_kernels}");
}

#[test]
fn a_filter_takes_a_name_as_it_is() {
    let Some(store) = store() else { return };
    let found = json(&["top", "--by", "host", "--lock", LOCK, "--host", "host00007"], store);
    assert_eq!(found["rows"].as_array().unwrap().len(), 1);
    let found = json(&["top", "--lock", "' OR '1' = '1"], store);
    assert_eq!(found["rows"].as_array().unwrap().len(), 0);
}

#[test]
fn hours_outside_of_the_window_are_not_read() {
    let Some(store) = store() else { return };
    let (first, second, end) = (hour(0), hour(1), hour(2));
    let sum = |since: &str, until: &str| {
        let top = json(&["top", "--by", "kernel", "--since", since, "--until", until], store);
        let rows = top["rows"].as_array().unwrap().clone();
        (
            top["window"]["host_hours"].as_u64().unwrap(),
            rows.iter().map(|row| row["waited_ns"].as_u64().unwrap()).sum::<u64>(),
        )
    };
    let [one, other, both] = [sum(&first, &second), sum(&second, &end), sum(&first, &end)];
    assert_eq!((one.0, other.0, both.0), (40, 40, 80));
    assert_eq!(one.1 + other.1, both.1);
    assert_eq!(sum(&end, &hour(3)), (0, 0));
}

#[test]
fn diff_names_the_few_hosts_that_have_a_regression() {
    let Some(store) = store() else { return };
    let (first, second, end) = (hour(0), hour(1), hour(2));
    let windows = ["--since", &second, "--until", &end, "--baseline-since", &first, "--baseline-until", &second];
    let found = json(&[&["diff"][..], &windows].concat(), store);
    let row = &found["rows"][0];
    assert_eq!(row["lock"].as_str(), Some(LOCK), "{found}");
    let outliers = row["outliers"].as_array().unwrap();
    let names = outliers.iter().map(|outlier| outlier["host"].as_str().unwrap()).collect::<Vec<_>>();
    assert!(names.contains(&"host00000") && names.contains(&"host00033") && names.len() == 2, "{names:?}");
    for outlier in outliers {
        let ratio = outlier["after"].as_f64().unwrap() / outlier["before"].as_f64().unwrap();
        assert!((2.5..6.5).contains(&ratio), "{outlier}");
    }
    assert_eq!(row["is_across_hosts"].as_bool(), Some(false), "two of 40 are few: {row}");
    let text = text(&[&["diff"][..], &windows].concat(), store);
    assert!(text.lines().next().unwrap().contains(LOCK) && text.contains("host00033"), "{text}");
}

/// Makes sure that a change on all hosts is one, and that chance is none.
#[test]
fn diff_tells_a_change_on_most_hosts_from_chance() {
    let Some(recording) = recording() else { return };
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let generate = |hosts: &str, hours: &str, regression: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_generate"));
        command.arg("fleet").arg(recording).args(["--hosts", hosts, "--hours", hours, "--every", "1"]).args(regression);
        let done = command.arg("--to").arg(folder.path()).output().unwrap();
        assert!(done.status.success(), "{done:?}");
    };
    generate("40", "3", &["--regression", LOCK, "--since", "2"]);
    let hours = [0, 1, 2, 3].map(hour);
    let diff = |before: usize, after: usize| {
        let (since, until) = (&hours[after], &hours[after + 1]);
        let baseline = ["--baseline-since", &hours[before], "--baseline-until", &hours[before + 1]];
        json(&[&["diff", "--since", since, "--until", until][..], &baseline].concat(), folder.path())
    };
    let chance = diff(0, 1);
    for row in chance["rows"].as_array().unwrap() {
        assert_eq!(row["is_across_hosts"].as_bool(), Some(false), "{row}");
    }
    assert!(chance["answer"].as_str().unwrap().contains("Nothing changed"), "{}", chance["answer"]);
    let changed = diff(1, 2);
    let row = &changed["rows"][0];
    assert_eq!((row["lock"].as_str(), row["is_across_hosts"].as_bool()), (Some(LOCK), Some(true)), "{row}");
    assert_eq!(row["rose_on"].as_u64(), Some(40));
}

#[test]
fn trend_shows_each_hour_of_the_locks_that_were_waited_for_longest() {
    let Some(store) = store() else { return };
    let found = json(&["trend", "--host", "host00033", "--lock", LOCK], store);
    let by_hour = found["rows"][0]["by_hour"].as_array().unwrap().clone();
    let waiting = by_hour.iter().map(|hour| hour["waiting"].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(waiting.len(), 2);
    assert!((2.5..6.5).contains(&(waiting[1] / waiting[0])), "{waiting:?}");
    let top = json(&["top", "--limit", "1000"], store);
    let trend = json(&["trend", "--limit", "1000"], store);
    let names = |of: &Json| of["rows"].as_array().unwrap().iter().map(|row| row["lock"].clone()).collect::<Vec<_>>();
    assert_eq!(names(&trend), names(&top));
    assert!(text(&["trend"], store).contains('█'));
}

/// The files of a table, by host.
fn files(store: &Path, table: &str) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for date in fs::read_dir(store.join(table)).unwrap() {
        for hour in fs::read_dir(date.unwrap().path()).unwrap() {
            for file in fs::read_dir(hour.unwrap().path()).unwrap() {
                let path = file.unwrap().path();
                found.insert(path.file_name().unwrap().to_str().unwrap().split('-').next().unwrap().to_owned(), path);
            }
        }
    }
    found
}

/// A store of these hosts.
fn store_of(hosts: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    for host in hosts {
        export(recording().unwrap(), folder.path(), host, &[]);
    }
    folder
}

#[test]
fn what_cannot_be_read_is_left_out_of_the_whole_answer_and_named() {
    if recording().is_none() {
        return;
    }
    let good = store_of(&["web1", "web2"]);
    let expected = json(&["top"], good.path());
    let store = store_of(&["web1", "web2", "cut", "garbage", "newer", "gone", "foreign", "impossible", "unfinished"]);
    let (samples, recordings) = (files(store.path(), "samples"), files(store.path(), "recordings"));
    let cut = fs::read(&samples["cut"]).unwrap();
    fs::write(&samples["cut"], &cut[..cut.len() / 2]).unwrap();
    // The footer says where pages are; there, something else is.
    let mut garbage = fs::read(&samples["garbage"]).unwrap();
    let pages = garbage.len() / 2;
    garbage[4..pages].fill(0xff);
    fs::write(&samples["garbage"], garbage).unwrap();
    let newer = fs::read(&recordings["newer"]).unwrap();
    let at = newer.windows(16).position(|bytes| bytes == b"lockmeter.schema").unwrap();
    let one = at + newer[at..].iter().position(|byte| *byte == b'1').unwrap();
    fs::write(&recordings["newer"], [&newer[..one], b"2", &newer[one + 1..]].concat()).unwrap();
    fs::remove_file(&samples["gone"]).unwrap();
    fs::copy(&recordings["foreign"], &samples["foreign"]).unwrap();
    fs::remove_file(&recordings["unfinished"]).unwrap();
    write_impossible(&samples["impossible"]);
    // What is no file, and a name that steers terminals.
    let folder = recordings["web1"].parent().unwrap();
    fs::create_dir(folder.join("folder.parquet")).unwrap();
    make_pipe(&folder.join("pipe.parquet"));
    fs::write(folder.join("\u{1b}[2Jevil.parquet"), "text").unwrap();
    fs::write(folder.join(".web1.parquet.tmp"), "half").unwrap();
    let found = json(&["top"], store.path());
    assert_eq!(found["rows"], expected["rows"]);
    assert_eq!(found["window"]["hosts"], expected["window"]["hosts"]);
    let unread = found["window"]["unread"].as_object().unwrap();
    let of = |host: &str| {
        let (_, why) =
            unread.iter().find(|(file, _)| file.contains(host)).unwrap_or_else(|| panic!("{host}: {unread:?}"));
        why.as_str().unwrap().to_owned()
    };
    assert!(of("newer").contains("a newer lockmeter-fleet wrote it"), "{unread:?}");
    assert!(of("gone").contains("not found"), "{unread:?}");
    assert!(of("foreign").contains("has no column"), "{unread:?}");
    assert!(of("impossible").contains("cannot be measured"), "{unread:?}");
    ["cut", "garbage", "evil"].iter().for_each(|host| assert!(!of(host).is_empty()));
    assert_eq!(unread.len(), 7, "{unread:?}");
    let text = text(&["top"], store.path());
    assert!(text.contains("Left out: 6 of 9 hours of recordings, which cannot be read"), "{text}");
    assert!(text.contains("Left out: 1 of 9") && !text.contains('\u{1b}'), "{text}");
}

/// Writes a file again, with waits that take less than no time.
fn write_impossible(path: &Path) {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let pairs = reader.metadata().file_metadata().key_value_metadata().cloned();
    let batches = reader.build().unwrap().map(Result::unwrap).collect::<Vec<_>>();
    let properties = WriterProperties::builder().set_key_value_metadata(pairs).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batches[0].schema(), Some(properties)).unwrap();
    for batch in batches {
        let at = batch.schema().index_of("total_ns").unwrap();
        let mut columns = batch.columns().to_vec();
        columns[at] = Arc::new(Int64Array::from_value(-1, batch.num_rows()));
        writer.write(&RecordBatch::try_new(batch.schema(), columns).unwrap()).unwrap();
    }
    writer.close().unwrap();
}

/// `mkfifo`.
fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Makes sure that no byte of a file makes the reader fail: what it then says is anybody's, what the others say is not.
#[test]
fn a_file_of_any_bytes_spoils_no_answer() {
    if recording().is_none() {
        return;
    }
    let store = store_of(&["web1", "hostile"]);
    for table in ["samples", "recordings"] {
        let path = &files(store.path(), table)["hostile"];
        let content = fs::read(path).unwrap();
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..30 {
            let mut changed = content.clone();
            for _ in 0..3 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // Most often in the footer, which says what the rest is.
                let at = if random & 1 == 0 { 0 } else { changed.len() * 3 / 4 };
                let at = at + (random >> 33) as usize % (changed.len() - at);
                changed[at] = (random >> 20) as u8;
            }
            fs::write(path, &changed).unwrap();
            let web1 = json(&["top", "--host", "web1"], store.path());
            assert!(!web1["rows"].as_array().unwrap().is_empty());
        }
        fs::write(path, &content).unwrap();
    }
}

#[test]
fn names_cannot_steer_a_terminal() {
    let Some(store) = store() else { return };
    let text = text(&["query", "SELECT '\u{1b}[2J' || lock AS name FROM samples LIMIT 1"], store);
    assert!(!text.contains('\u{1b}') && text.contains("\\u{1b}[2J"), "{text}");
}

#[test]
fn hosts_that_were_not_metered_in_some_hours_are_counted() {
    let Some(store) = store() else { return };
    let copy = tempfile::tempdir_in("/dev/shm").unwrap();
    assert!(Command::new("cp").arg("-r").arg(store).arg(copy.path()).status().unwrap().success());
    let store = copy.path().join(store.file_name().unwrap());
    // The last file of a host is that of its last hour.
    fs::remove_file(&files(&store, "recordings")["host00007"]).unwrap();
    let text = text(&["top"], &store);
    assert!(text.contains("Not metered in each of the 2 hours: 1 of 40 hosts (host00007 in 1)."), "{text}");
    let found = json(&["top"], &store);
    assert_eq!(found["window"]["hosts_missing_in_hours"]["host00007"].as_u64(), Some(1));
}

#[test]
fn a_question_can_change_nothing() {
    let Some(store) = store() else { return };
    for sql in [
        "DROP VIEW hosts",
        "CREATE TABLE t AS SELECT 1",
        "COPY samples TO '/tmp/lockmeter-fleet.csv'",
        "INSERT INTO samples SELECT * FROM samples",
        "SET datafusion.execution.batch_size = 1",
    ] {
        let done = fleet(&["query", sql], store);
        assert_eq!(done.status.code(), Some(4), "{sql}: {}", String::from_utf8_lossy(&done.stderr));
    }
    assert!(!Path::new("/tmp/lockmeter-fleet.csv").exists());
}

#[test]
fn what_cannot_be_asked_is_said_in_a_sentence() {
    let nowhere = Path::new("/nonexistent");
    for (arguments, status, words) in [
        (&["top"][..], 4, "/nonexistent"),
        (&["top", "--since", "luck"], 2, "write a time ago"),
        (&["top", "--since", "2026-01-02", "--until", "2026-01-01"], 2, "--until is not after --since"),
        (&["top", "--since", "2000-01-01"], 2, "more than a year"),
        (&["diff", "--baseline-since", "2h"], 2, "--baseline-until"),
    ] {
        let done = fleet(arguments, nowhere);
        let stderr = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(status) && stderr.contains(words), "{arguments:?}: {stderr}");
    }
    let empty = tempfile::tempdir().unwrap();
    let done = fleet(&["top"], empty.path());
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("Nothing waited for locks on 0 hosts"), "{done:?}");
}

/// The smallest rows are merged and counted, and no sum changes.
#[test]
fn rows_beyond_the_limit_are_merged_and_sums_are_the_same() {
    let Some(recording) = recording() else { return };
    let sums = |rows: &str| {
        let store = tempfile::tempdir_in("/dev/shm").unwrap();
        export(recording, store.path(), "web1", &["--rows", rows]);
        let sql = "SELECT happened, kind, mode, sum(count) AS count, sum(total_ns) AS ns, sum(spin_ns) AS spin, max(max_ns) AS max, sum(stacks) AS stacks
            FROM samples GROUP BY happened, kind, mode ORDER BY happened, kind, mode";
        let of_locks = "SELECT lock, sum(total_ns) AS ns FROM samples GROUP BY lock ORDER BY lock";
        let merged =
            json(&["query", "SELECT sum(merged) AS merged FROM recordings"], store.path())["rows"][0]["merged"]
                .as_u64()
                .unwrap();
        let number =
            json(&["query", "SELECT count(*) AS rows FROM samples"], store.path())["rows"][0]["rows"].as_u64().unwrap();
        (
            json(&["query", sql], store.path())["rows"].clone(),
            json(&["query", of_locks], store.path())["rows"].clone(),
            merged,
            number,
        )
    };
    let (all, some, few) = (sums("all"), sums("30"), sums("3"));
    assert!(all.2 == 0 && all.3 > 40, "{all:?}");
    // By lock they are the same up to as many locks, and beyond that by what tells locks apart.
    assert_eq!((&some.0, &some.1), (&all.0, &all.1));
    assert_eq!(few.0, all.0);
    for of in [&some, &few] {
        assert_eq!(of.2 + of.3, all.3, "{of:?}");
        assert!(of.2 > 0);
    }
    assert!(some.3 <= 2 * 30 && few.1.as_array().unwrap().iter().any(|row| row["lock"] == "other"), "{some:?} {few:?}");
}
