//! One real recording in every format: each parses, each holds the same numbers, and they add up however they are grouped.

mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value as Json, json};
use support::recorder::Recorder;
use support::report::{Report, report, report_as, report_bytes, sum};
use support::{Folder, machine, run, run_workload, skip, text};

/// Every way to group; each in its own, and those that need more than totals.
const GROUPINGS: [&str; 12] = [
    "lock",
    "kind",
    "task",
    "object",
    "cgroup",
    "instance",
    "caller",
    "blocker",
    "lock,caller",
    "lock,blocker",
    "lock,task",
    "caller,blocker",
];

/// A recording of several kinds of locks, readers, writers, spinners and sleepers, made once. `None` if none can be made.
fn recording(test: &str) -> Option<&'static str> {
    static RECORDING: OnceLock<Option<(Folder, String)>> = OnceLock::new();
    let machine = machine(test)?;
    let made = RECORDING.get_or_init(|| {
        let folder = Folder::new();
        let recorder = Recorder::start(&folder, "recording", &["-a", "--interval", "200ms"]);
        for (workload, arguments) in [
            ("file-pos", &["--seconds", "0.6"][..]),
            ("mmap-fault", &["--seconds", "0.6"]),
            ("tasklist", &["--seconds", "0.6"]),
            ("fork-storm", &["--seconds", "0.6"]),
        ] {
            run_workload(workload, arguments).ok()?;
        }
        let recording = recorder.stop().recording();
        Some((folder, recording))
    });
    drop(machine);
    let recording = made.as_ref().map(|(_, recording)| recording.as_str());
    if recording.is_none() {
        skip(test, "its workloads are not possible here");
    }
    recording
}

/// What the head says of all waits: count and total.
fn whole(report: &Report) -> (u64, u64) {
    (report.head.waits.count, report.head.waits.total_ns)
}

/// Makes sure that no wait is lost or counted twice by any grouping, estimated or exact.
#[test]
fn rows_add_up_to_the_head_however_they_are_grouped() {
    let Some(recording) = recording("sums") else { return };
    for by in GROUPINGS {
        let report = report(recording, &["--by", by, "-n", "10"]);
        assert_eq!(sum(&report.rows), whole(&report), "--by {by}: rows and head differ\n{}", report.shown);
        let spin_ns: u64 = report.rows.iter().map(|row| row.spin_ns).sum();
        assert_eq!(spin_ns, report.head.waits.spin_ns, "--by {by}: spinning differs\n{}", report.shown);
    }
}

/// Makes sure that filters side by side split the whole.
#[test]
fn kinds_and_modes_split_the_whole() {
    let Some(recording) = recording("filters") else { return };
    let all = report(recording, &["--by", "lock"]);
    let sum_over = |flag: &str, values: &[&str]| {
        values.iter().fold((0, 0), |(count, total_ns), value| {
            let (more, more_ns) = sum(&report(recording, &["--by", "lock", flag, value]).rows);
            (count + more, total_ns + more_ns)
        })
    };
    let kinds = ["spin", "rwlock", "mutex", "rwsem", "percpu-rwsem", "rt-mutex", "semaphore", "unknown"];
    assert_eq!(sum_over("--kind", &kinds), whole(&all), "by kind\n{}", all.shown);
    assert_eq!(sum_over("--mode", &["exclusive", "read", "write"]), whole(&all), "by mode\n{}", all.shown);
}

/// Makes sure that windows side by side share no wait and miss none, wherever they are cut.
#[test]
fn windows_side_by_side_add_up_to_the_whole() {
    let Some(recording) = recording("windows") else { return };
    let all = report(recording, &["--by", "lock"]);
    for cut in ["100ms", "600ms", "1s", "1300ms", "2s"] {
        let halves = [format!("..{cut}"), format!("{cut}..")].map(|window| report(recording, &["--window", &window]));
        let sums = halves.each_ref().map(|half| sum(&half.rows));
        assert_eq!((sums[0].0 + sums[1].0, sums[0].1 + sums[1].1), whole(&all), "cut at {cut}\n{}", all.shown);
        assert_eq!(halves[0].intervals + halves[1].intervals, all.intervals, "cut at {cut}");
        assert_eq!(halves[0].duration_ns + halves[1].duration_ns, all.duration_ns, "cut at {cut}");
    }
}

/// Makes sure that the JSON has every field that `docs/reference/json.md` promises, of the type that it promises.
#[test]
fn the_json_keeps_its_contract() {
    let Some(recording) = recording("JSON") else { return };
    let top: Json = serde_json::from_str(&report_as(recording, "json", &["--by", "lock"])).unwrap();
    assert_eq!(top["schema"], json!(1));
    assert_eq!(top["by"], json!(["lock"]));
    for (place, fields) in [
        (&top, &["start_unix_ns", "duration_ns", "intervals", "cpus"][..]),
        (&top["overhead"], &["own_cpu_ns", "program_run_ns", "program_runs", "stack_ns", "one_cpu_ppm"]),
        (&top["sampling"], &["stacks", "period_ns", "budget_ppm"]),
        (&top["head"], &["named_ns", "cpu_ppm"]),
        (&top["head"]["waits"], &["count", "total_ns", "max_ns", "spin_ns", "sleep_ns"]),
        (&top["head"]["own_waits"], &["count", "total_ns", "max_ns", "spin_ns", "sleep_ns"]),
        (&top["head"]["worst"], &["share_ppm"]),
        (&top["head"]["worst"]["waits"], &["count", "total_ns", "max_ns", "spin_ns", "sleep_ns"]),
    ] {
        for field in fields {
            assert!(place[*field].is_u64(), "{field} is {:?} in {place}", place[*field]);
        }
    }
    for field in ["lockmeter", "kernel", "machine", "scope"] {
        assert!(top[field].is_string(), "{field} is {:?}", top[field]);
    }
    assert!(top["lost"].as_object().unwrap().values().all(Json::is_u64), "{}", top["lost"]);
    assert!(top["head"]["asleep"].is_number() && top["head"]["sentence"].is_string(), "{}", top["head"]);
    let worst = &top["head"]["worst"];
    assert_eq!(
        (&worst["lock"], &worst["kind"], &worst["mode"]),
        (&top["rows"][0]["lock"], &top["rows"][0]["kind"], &top["rows"][0]["mode"]),
        "the worst lock is not the first row"
    );
    for by in GROUPINGS {
        let top: Json = serde_json::from_str(&report_as(recording, "json", &["--by", by])).unwrap();
        for row in top["rows"].as_array().unwrap() {
            row_keeps_its_contract(row, &by.split(',').collect::<Vec<_>>());
        }
    }
}

fn row_keeps_its_contract(row: &Json, by: &[&str]) {
    let always = ["total_ns", "count", "spin_ns", "sleep_ns", "p50_ns", "p99_ns", "max_ns", "stacks"];
    for field in always {
        assert!(row[field].is_u64(), "{field} of {row}");
    }
    let number = |field: &str| row[field].as_u64().unwrap();
    assert_eq!(row["happened"], json!("wait"), "{row}");
    assert!(row["estimated"].is_boolean() && row["own"].is_boolean(), "{row}");
    let mean_ns = &row["mean_ns"];
    assert!(if by.contains(&"blocker") { mean_ns.is_null() } else { mean_ns.is_u64() }, "mean_ns of {row}, by {by:?}");
    assert_eq!(number("spin_ns") + number("sleep_ns"), number("total_ns"), "{row}");
    assert!(
        number("p50_ns") <= number("p99_ns") && number("p99_ns") <= number("max_ns").max(1),
        "percentiles of {row}"
    );
    for (dimension, fields) in [
        ("instance", &["instance"][..]),
        ("object", &["object"]),
        ("task", &["task", "tgid"]),
        ("cgroup", &["cgroup"]),
        ("caller", &["caller"]),
        ("blocker", &["blocker", "blocker_source", "blocker_task"]),
    ] {
        for field in fields {
            assert_eq!(row.get(*field).is_some(), by.contains(&dimension), "{field} of {row}, grouped by {by:?}");
        }
    }
    let buckets = row["histogram"].as_array().unwrap();
    let column = |at: usize| buckets.iter().map(|bucket| bucket[at].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(column(0).is_sorted(), "{row}");
    assert_eq!(column(1).iter().sum::<u64>(), number("count"), "the histogram's counts of {row}");
    assert_eq!(column(2).iter().sum::<u64>(), number("total_ns"), "the histogram's times of {row}");
}

/// Makes sure that rows come longest first and `--sort` orders by other columns.
#[test]
fn rows_come_in_the_order_asked_for() {
    let Some(recording) = recording("order") else { return };
    let by_total = report(recording, &["--by", "lock"]);
    assert!(by_total.rows.is_sorted_by(|a, b| a.total_ns >= b.total_ns), "{}", by_total.shown);
    let by_count = report(recording, &["--by", "lock", "--sort", "count"]);
    assert!(by_count.rows.is_sorted_by(|a, b| a.count >= b.count), "{}", by_count.shown);
    let by_max = report(recording, &["--by", "lock", "--sort", "max_ns"]);
    assert!(by_max.rows.is_sorted_by(|a, b| a.max_ns >= b.max_ns), "{}", by_max.shown);
}

/// Makes sure that the CSV has the columns and the numbers of the JSON.
#[test]
fn the_csv_says_what_the_json_says() {
    let Some(recording) = recording("CSV") else { return };
    for by in ["lock", "lock,caller", "lock,blocker", "task"] {
        let csv = report_bytes(recording, "csv", &["--by", by]);
        let mut reader = csv::Reader::from_reader(csv.as_slice());
        let columns = reader.headers().unwrap().clone();
        let json: Json = serde_json::from_str(&report_as(recording, "json", &["--by", by])).unwrap();
        let rows = json["rows"].as_array().unwrap();
        let names: Vec<&str> = columns.iter().collect();
        let keys: Vec<&str> = rows[0].as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(sorted(names.clone()), sorted(keys), "--by {by}: columns");
        let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(records.len(), rows.len(), "--by {by}: rows");
        for (record, row) in records.iter().zip(rows) {
            for (name, field) in names.iter().zip(record) {
                match &row[*name] {
                    Json::Number(number) if number.is_u64() => assert_eq!(field, number.to_string(), "{name} of {row}"),
                    // What begins like a formula has an apostrophe before it: a task may be called `-bash`.
                    Json::String(string) => {
                        assert_eq!(field.strip_prefix('\'').unwrap_or(field), string, "{name} of {row}");
                    }
                    Json::Bool(flag) => assert_eq!(field, flag.to_string(), "{name} of {row}"),
                    Json::Null => assert_eq!(field, "", "{name} of {row}"),
                    _ => {}
                }
            }
        }
    }
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

/// Makes sure that folded stacks parse as flame graph tools parse them, and sum to the JSON's total for each lock.
#[test]
fn folded_stacks_sum_to_the_json() {
    let Some(recording) = recording("folded stacks") else { return };
    for by in ["lock,caller", "lock,blocker"] {
        let folded = report_as(recording, "folded", &["--by", by]);
        let mut leaves: BTreeMap<String, u64> = BTreeMap::new();
        for line in folded.lines() {
            let (stack, total_ns) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no number: {line}"));
            let leaf = stack.rsplit(';').next().unwrap();
            *leaves.entry(leaf.to_owned()).or_default() +=
                total_ns.parse::<u64>().unwrap_or_else(|e| panic!("{e}: {line}"));
        }
        let report = report(recording, &["--by", "lock", "-n", "10"]);
        let mut locks: BTreeMap<String, u64> = BTreeMap::new();
        for row in report.rows.iter().filter(|row| row.total_ns > 0) {
            *locks.entry(format!("[{} ({})]", row.lock(), row.mode.as_deref().unwrap())).or_default() += row.total_ns;
        }
        assert_eq!(leaves, locks, "--by {by}: folded stacks and report differ\n{}", report.shown);
    }
}

/// Makes sure that Google's own tool opens the profile, and sees the same totals and the right functions on top.
#[test]
fn pprof_opens_the_profile_and_sees_the_same_totals() {
    const TEST: &str = "pprof";
    let Some(recording) = recording(TEST) else { return };
    if Command::new("go").arg("version").output().is_err() {
        return skip(TEST, "Go is not installed");
    }
    let folder = Folder::new();
    let profile = folder.file("locks.pb.gz");
    report_bytes(recording, "pprof", &["-o", &profile]);
    let report = report(recording, &["--by", "lock,caller", "-n", "10"]);
    let pprof = |arguments: &[&str]| {
        let mut command = Command::new("go");
        // Asks nobody about symbols and keeps nothing in the home folder.
        command
            .args(["tool", "pprof", "-symbolize=none"])
            .args(arguments)
            .arg(&profile)
            .env("PPROF_TMPDIR", folder.path());
        let output = run(command);
        assert!(output.status.success(), "go tool pprof {arguments:?}:\n{}", text(&output.stderr));
        text(&output.stdout)
    };
    let waits = pprof(&["-top", "-nodecount=2000", "-nodefraction=0", "-sample_index=wait", "-unit=ns"]);
    total_is("wait", &waits, report.head.waits.total_ns);
    let contentions = pprof(&["-top", "-nodecount=2000", "-nodefraction=0", "-sample_index=contentions"]);
    total_is("contentions", &contentions, report.head.waits.count);
    let blame = pprof(&["-top", "-nodecount=2000", "-nodefraction=0", "-sample_index=blame", "-unit=ns"]);
    for (table, function) in [(&waits, "fdget_pos"), (&contentions, "fdget_pos"), (&blame, "ksys_read")] {
        assert!(table.contains(function), "{function} is not in\n{table}");
    }
    let tags = pprof(&["-tags", "-sample_index=wait"]);
    for tag in ["lock", "kind", "mode", "file.f_pos_lock", "mutex", "exclusive"] {
        assert!(tags.contains(tag), "no label {tag} in\n{tags}");
    }
}

/// Waits by the lock with its mode and the stack, innermost first.
type Waits = BTreeMap<(String, Vec<String>), (u64, u64)>;

/// Makes sure that one caller has the same numbers in every format: JSON, CSV, folded stacks and pprof.
#[test]
fn all_formats_have_the_same_numbers_for_each_caller() {
    const TEST: &str = "the same numbers in all formats";
    let Some(recording) = recording(TEST) else { return };
    let report = report(recording, &["--by", "lock,caller"]);
    let mut waits = Waits::new();
    for row in report.rows.iter().filter(|row| row.happened == "wait" && row.total_ns > 0) {
        let stack = row.caller.clone().filter(|stack| !stack.is_empty()).unwrap_or(vec!["[no stack taken]".to_owned()]);
        let known = waits.entry((format!("{}, {}", row.lock(), row.mode.as_deref().unwrap()), stack)).or_default();
        *known = (known.0 + row.count, known.1 + row.total_ns);
    }
    assert!(waits.len() > 10, "too little to compare:\n{}", report.shown);

    let mut csv = csv::Reader::from_reader(std::io::Cursor::new(report_as(recording, "csv", &["--by", "lock,caller"])));
    let numbers: Vec<(u64, u64)> = csv
        .deserialize()
        .map(|row: Result<BTreeMap<String, String>, _>| row.unwrap())
        .map(|row| (row["count"].parse().unwrap(), row["total_ns"].parse().unwrap()))
        .collect();
    assert_eq!(numbers, report.rows.iter().map(|row| (row.count, row.total_ns)).collect::<Vec<_>>(), "CSV and JSON");

    let mut folded = BTreeMap::<String, u64>::new();
    for line in report_as(recording, "folded", &["--by", "lock,caller"]).lines() {
        let (stack, total_ns) = line.rsplit_once(' ').unwrap();
        *folded.entry(stack.to_owned()).or_default() += total_ns.parse::<u64>().unwrap();
    }
    let as_folded = waits.iter().map(|((lock, stack), (_, total_ns))| {
        let (lock, mode) = lock.rsplit_once(", ").unwrap();
        let frames: Vec<&str> = stack.iter().rev().map(String::as_str).collect();
        (format!("{};[{lock} ({mode})]", frames.join(";")), *total_ns)
    });
    assert_eq!(folded, as_folded.collect(), "folded stacks and JSON");

    if Command::new("go").arg("version").output().is_err() {
        return skip(TEST, "Go is not installed: pprof was not compared");
    }
    let folder = Folder::new();
    let profile = folder.file("locks.pb.gz");
    report_bytes(recording, "pprof", &["-o", &profile]);
    let mut command = Command::new("go");
    command.args(["tool", "pprof", "-raw", "-symbolize=none", &profile]).env("PPROF_TMPDIR", folder.path());
    assert_eq!(waits_of_raw_profile(&text(&run(command).stdout)), waits, "pprof and JSON");
}

/// What `pprof -raw` prints of who waited.
fn waits_of_raw_profile(raw: &str) -> Waits {
    let (samples, rest) = raw.split_once("\nLocations\n").unwrap();
    let (locations, _) = rest.split_once("\nMappings\n").unwrap();
    let functions: BTreeMap<&str, &str> = locations
        .lines()
        .map(|line| {
            let (id, function) = line.trim().split_once(": 0x0 M=1 ").unwrap_or_else(|| panic!("no location: {line}"));
            (id, function.rsplit_once(" :0:0 s=0").unwrap_or_else(|| panic!("no function: {line}")).0)
        })
        .collect();
    let mut waits = Waits::new();
    for line in samples.lines().skip_while(|line| !line.contains("[dflt]")).skip(1) {
        // Labels stand on lines of their own.
        let Some((numbers, stack)) = line.split_once(": ").filter(|_| !line.contains(":[")) else { continue };
        let numbers: Vec<u64> = numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let mut stack = stack.split_whitespace().map(|id| functions[id].to_owned());
        if numbers[1] > 0 {
            let lock = stack.next().unwrap().trim_matches(['[', ']']).to_owned();
            let known = waits.entry((lock, stack.collect())).or_default();
            *known = (known.0 + numbers[0], known.1 + numbers[1]);
        }
    }
    waits
}

/// pprof rounds what it shows to four digits or so.
fn total_is(what: &str, top: &str, expected: u64) {
    let line = top.lines().find(|line| line.contains(" total")).unwrap_or_else(|| panic!("{what}: no total in\n{top}"));
    let total = line.split_whitespace().rev().nth(1).unwrap();
    let digits: f64 = total.trim_end_matches("ns").parse().unwrap_or_else(|e| panic!("{what}: {e}: {line}"));
    let difference = (digits - expected as f64).abs() / expected as f64;
    assert!(difference < 0.001, "{what}: pprof sees {total} in all, the report {expected}\n{top}");
}

/// Makes sure that a table in a pipe is plain text of any width, and no row is hidden when all are asked for.
#[test]
fn a_table_in_a_pipe_is_plain_and_whole() {
    let Some(recording) = recording("table") else { return };
    let table = report_as(recording, "table", &["--by", "lock", "-n", "0"]);
    assert!(!table.contains('\x1b'), "{table:?}");
    for row in report(recording, &["--by", "lock"]).rows {
        assert!(table.contains(row.lock()), "{} is not in\n{table}", row.lock());
    }
    let short = report_as(recording, "table", &["--by", "lock", "-n", "1"]);
    assert!(short.contains("more row"), "nothing says that rows are hidden:\n{short}");
}

/// Makes sure that a table says where it comes from: its losses, its cost and what its numbers rest on.
#[test]
fn a_table_says_what_it_rests_on_and_what_it_cost() {
    let Some(recording) = recording("foot of a table") else { return };
    let table = report_as(recording, "table", &["--by", "lock,caller"]);
    for part in ["lost:", "lockmeter used", "stacks", "of the waited time have a name"] {
        assert!(table.contains(part), "no `{part}` in\n{table}");
    }
}
