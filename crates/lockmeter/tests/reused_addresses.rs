//! A lock that lies where another one was is not called after that one's maker.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::recorder::Recorder;
use support::report::report_as;
use support::{
    Folder, child_of, lockmeter, machine, preload_library, run, text, until, user_workload, workload_sources,
};

/// What the program ends with.
const RAN: i32 = 7;

/// Three threads, twenty times each.
const ACQUISITIONS: u64 = 60;

fn build(folder: &Folder) -> PathBuf {
    let program = folder.path().join("reused-address");
    let mut compile = Command::new("g++");
    compile.args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(workload_sources().join("user/reused-address.cpp"));
    let output = run(compile);
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

/// What is reported by lock of the program, metered from inside.
fn reported(folder: &Folder, how: &[&str], arguments: &[&str]) -> Value {
    let recording = folder.file("recording");
    let mut record = lockmeter(["record", "--quiet", "--user"]);
    record.args(how).args(["-o", &recording, "--"]).arg(build(folder)).args(arguments);
    record.env("LOCKMETER_PRELOAD", preload_library());
    let output = run(record);
    assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
    assert!(!text(&output.stdout).contains("false"), "malloc gave the cache another address");
    serde_json::from_str(&report_as(&recording, "json", &["--by", "lock"])).unwrap()
}

/// The name of the lock that was waited for, and of which it is said how often it was held.
fn only_lock(report: &Value, happened: &str) -> (String, u64) {
    let rows: Vec<&Value> =
        report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == happened).collect();
    assert_eq!(rows.len(), 1, "{report:#}");
    (rows[0]["lock"].as_str().unwrap().to_owned(), rows[0]["count"].as_u64().unwrap())
}

/// Regression: "heap, created at connection_new()".
#[test]
fn a_lock_where_another_was_is_called_after_who_uses_it() {
    for how in [&[][..], &["--hold"], &["--hold", "--interval", "50ms"]] {
        let folder = Folder::new();
        let report = reported(&folder, how, &[]);
        let (name, waits) = only_lock(&report, "wait");
        assert!(name.starts_with("heap, first seen at cache_lookup(Cache*)"), "{how:?}: {name}\n{report:#}");
        assert!(waits > ACQUISITIONS / 2, "{report:#}");
        let detail = report["rows"][0]["naming_detail"].as_str().unwrap();
        assert!(detail.contains("initialised before, as heap, created at connection_new()"), "{detail}");
    }
}

/// Makes sure that this is not so of all locks whose makers do not take them.
#[test]
fn a_lock_that_its_makers_kin_use_is_called_after_its_maker() {
    for how in [&[][..], &["--hold"]] {
        let folder = Folder::new();
        let report = reported(&folder, how, &["connection"]);
        let (name, _) = only_lock(&report, "wait");
        assert_eq!(name, "heap, created at connection_new()", "{how:?}: {report:#}");
        if how.contains(&"--hold") {
            assert_eq!(only_lock(&report, "hold"), (name, ACQUISITIONS), "{report:#}");
        }
    }
}

/// Makes sure of the name from outside, where nobody sees who makes locks.
#[test]
fn from_outside_a_lock_where_another_was_is_called_after_who_uses_it_too() {
    let Some(_machine) = machine("reused addresses, from outside") else { return };
    let folder = Folder::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "\"$0\" wait; exit $?"]).arg(build(&folder));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until("the program runs", || child_of(shell.id()).is_some());
    let pid = child_of(shell.id()).unwrap();
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &pid.to_string()]);
    drop(shell.stdin.take());
    let recording = recorder.wait().recording();
    assert_eq!(shell.wait().unwrap().code(), Some(RAN));
    let report: Value = serde_json::from_str(&report_as(&recording, "json", &["--by", "lock"])).unwrap();
    let (name, _) = only_lock(&report, "wait");
    assert!(name.starts_with("heap, first seen at cache_lookup(Cache*)"), "{name}\n{report:#}");
}

/// Regression: each time that another function made the lock it took a new place of the table, until there was none.
#[test]
fn a_lock_that_functions_make_in_turn_at_one_address_is_counted_to_the_last() {
    let folder = Folder::new();
    let program = folder.path().join("remade-locks");
    let mut compile = Command::new("gcc");
    compile.args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(workload_sources().join("user/remade-locks.c"));
    let output = run(compile);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let recording = folder.file("remade");
    let mut record = lockmeter(["record", "--quiet", "--user", "--hold", "--every", "-o", &recording, "--"]);
    record.arg(program).env("LOCKMETER_PRELOAD", preload_library());
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&report_as(&recording, "json", &["--by", "lock"])).unwrap();
    let holds: u64 = report["rows"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["happened"] == "hold" && row["lock"].as_str().unwrap().starts_with("heap, "))
        .map(|row| row["count"].as_u64().unwrap())
        .sum();
    // Two threads, forty times.
    assert!(holds >= 80 && report["lost"].as_object().unwrap().is_empty(), "{report:#}");
}

/// Regression: "heap, first seen at". Makes sure that two functions' mutexes at one place of a thread's stack are two where a call makes
/// them.
#[test]
fn a_lock_on_a_threads_stack_is_called_so() {
    let folder = Folder::new();
    let program = user_workload(folder.path(), "stack-locks", &[]);
    let names = |arguments: &[&str]| -> Vec<(String, u64)> {
        let recording = folder.file("stack");
        let mut record = lockmeter(["record", "--quiet", "--user", "--hold", "-o", &recording, "--"]);
        record.arg(&program).args(arguments).env("LOCKMETER_PRELOAD", preload_library());
        let output = run(record);
        assert!(output.status.success() && text(&output.stdout).contains("true"), "{}", text(&output.stdout));
        let report: Value = serde_json::from_str(&report_as(&recording, "json", &["--by", "lock"])).unwrap();
        let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "hold");
        let named = |row: &Value| (row["lock"].as_str().unwrap().to_owned(), row["count"].as_u64().unwrap());
        let mut names: Vec<_> = rows.map(named).filter(|(name, _)| name.starts_with("stack, ")).collect();
        names.sort();
        names
    };
    // The owner takes it once more than twenty times.
    let made = names(&["made"]);
    let expected = [("stack, created at print_invoice", 41), ("stack, created at sum_orders", 41)];
    let has_both =
        made.iter().zip(expected).all(|((name, count), (maker, of_it))| name.starts_with(maker) && *count == of_it);
    assert!(made.len() == 2 && has_both, "{made:?}");
    let unmade = names(&[]);
    let is_one = matches!(&unmade[..], [(name, 82)] if name.starts_with("stack, first seen at "));
    assert!(is_one, "nothing tells that it is another: {unmade:?}");
}
