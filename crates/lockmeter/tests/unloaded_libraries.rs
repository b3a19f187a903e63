//! A library that is mapped where another one was unloaded has locks and functions of its own, though at the same addresses.

mod support;

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::recorder::Recorder;
use support::report::report_as;
use support::{Folder, lockmeter, machine, preload_library, run, skip, text, user_workload};

/// What the program ends with.
const RAN: i32 = 7;

/// Three threads, twenty times each.
const ACQUISITIONS: u64 = 60;

fn library(folder: &Folder, which: &str, flags: &[&str]) -> PathBuf {
    let work = format!("-DWORK=work_{}", which.trim_start_matches("deleted-"));
    let all = [&["-shared", "-fPIC", "-Wl,--build-id", &work], flags].concat();
    let built = user_workload(folder.path(), "library-lock", &all);
    let library = folder.path().join(format!("{which}.so"));
    std::fs::rename(built, &library).unwrap();
    library
}

/// Runs a program that opens these libraries in turn, which come to lie at one address, and says what is reported of it.
fn reported(folder: &Folder, libraries: &[&PathBuf], how: &[&str]) -> Value {
    let program = user_workload(folder.path(), "opens-libraries", &["-rdynamic"]);
    let recording = folder.file("recording");
    let mut record = lockmeter(["record", "--quiet", "--user"]);
    record.args(how).args(["-o", &recording, "--"]).arg(program).args(libraries);
    record.env("LOCKMETER_PRELOAD", preload_library());
    let output = run(record);
    assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
    let places = text(&output.stdout);
    let first = places.lines().next().unwrap();
    assert!(places.lines().all(|place| place == first), "the libraries lie at different addresses: {places}");
    serde_json::from_str(&report_as(&recording, "json", &["--by", "lock,caller"])).unwrap()
}

/// Of a lock in such rows: how many acquisitions, and whether each has a caller of this name.
fn count(report: &Value, happened: &str, lock: &str, caller: &str) -> u64 {
    let rows = report["rows"].as_array().unwrap();
    let rows = rows.iter().filter(|row| row["happened"] == happened && row["lock"] == lock);
    rows.map(|row| {
        assert_eq!(row["caller"][0], caller, "{report:#}");
        row["count"].as_u64().unwrap()
    })
    .sum()
}

/// Regression: all that happened was told of the first library.
#[test]
fn a_library_that_is_mapped_where_another_one_was_has_its_own_locks_and_callers() {
    for how in
        [&["--interval", "1h"][..], &["--hold", "--every", "--interval", "50ms"], &["--hold", "--interval", "1h"]]
    {
        let folder = Folder::new();
        let (one, two) =
            (library(&folder, "one", &["-DLOCK=lock_of_one"]), library(&folder, "two", &["-DLOCK=lock_of_two"]));
        let report = reported(&folder, &[&one, &two, &one], how);
        for (which, times) in [("one", 2), ("two", 1)] {
            let (lock, work) = (format!("{which}.so:lock_of_{which}"), format!("work_{which}"));
            let waits = count(&report, "wait", &lock, &work);
            // A thread that comes first, or late, does not wait.
            assert!(waits > 30 * times && waits < ACQUISITIONS * times, "{how:?}: {waits} waits\n{report:#}");
            if how.contains(&"--hold") {
                assert_eq!(count(&report, "hold", &lock, &work), ACQUISITIONS * times, "{how:?}: {report:#}");
            }
        }
        let locks: std::collections::BTreeSet<_> =
            report["rows"].as_array().unwrap().iter().map(|row| row["lock"].as_str().unwrap()).collect();
        assert_eq!(locks.len(), 2, "{report:#}");
    }
}

/// Makes sure that a library has its names, too, that is deleted once it was unloaded: plugins and compilers' output are.
#[test]
fn a_library_that_is_deleted_after_its_use_keeps_its_names() {
    if !is_root() {
        return skip("deleted libraries", "only root may open the files that others map");
    }
    let folder = Folder::new();
    let (one, two) =
        (library(&folder, "deleted-1", &["-DLOCK=lock_of_one"]), library(&folder, "2", &["-DLOCK=lock_of_two"]));
    let report = reported(&folder, &[&two, &one], &["--hold", "--interval", "1h"]);
    assert!(!one.exists());
    assert_eq!(count(&report, "hold", "deleted-1.so:lock_of_one", "work_1"), ACQUISITIONS, "{report:#}");
    assert_eq!(count(&report, "hold", "2.so:lock_of_two", "work_2"), ACQUISITIONS, "{report:#}");
}

fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// Regression: seen from outside, a lock kept the name that it had in the first library. What is mapped is looked at once an interval.
#[test]
fn from_outside_such_a_library_has_its_own_locks_too() {
    let Some(_machine) = machine("unloaded libraries, from outside") else { return };
    let folder = Folder::new();
    let (one, two) =
        (library(&folder, "one", &["-DLOCK=lock_of_one"]), library(&folder, "two", &["-DLOCK=lock_of_two"]));
    let program = user_workload(folder.path(), "opens-libraries", &["-rdynamic"]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "read line; exec \"$@\"", "sh"]).arg(program).args([&one, &two, &one]);
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let recorder =
        Recorder::start_all(&folder, "recording", &["--user", "--interval", "50ms", "-p", &shell.id().to_string()]);
    drop(shell.stdin.take());
    let recording = recorder.wait().recording();
    assert_eq!(shell.wait().unwrap().code(), Some(RAN));
    let report: Value = serde_json::from_str(&report_as(&recording, "json", &["--by", "lock,caller"])).unwrap();
    for which in ["one", "two"] {
        let waits = count(&report, "wait", &format!("{which}.so:lock_of_{which}"), &format!("work_{which}"));
        assert!(waits > ACQUISITIONS / 3, "{which}: {waits}\n{report:#}");
    }
}

/// Makes sure that a lock of the program's own, which both libraries take at one address, has both callers.
#[test]
fn a_lock_that_both_libraries_take_is_one_with_the_callers_of_each() {
    let folder = Folder::new();
    let flags = ["-DLOCK=program_lock", "-DOF_PROGRAM"];
    let (one, two) = (library(&folder, "one", &flags), library(&folder, "two", &flags));
    let report = reported(&folder, &[&one, &two], &["--hold", "--interval", "1h"]);
    let rows = report["rows"].as_array().unwrap();
    let held = |caller: &str| {
        let rows = rows.iter().filter(|row| row["happened"] == "hold" && row["caller"][0] == caller);
        rows.map(|row| row["count"].as_u64().unwrap()).sum::<u64>()
    };
    assert!(rows.iter().all(|row| row["lock"] == "opens-libraries:program_lock"), "{report:#}");
    assert_eq!([held("work_one"), held("work_two")], [ACQUISITIONS; 2], "{report:#}");
}
