//! `compare`: each variant's runs and what was swapped are told, and what goes wrong is said. Needs no privileges.

#[path = "../../lockmeter/tests/support/mod.rs"]
mod support;

use std::process::Command;

use serde_json::Value;
use support::{copy_program, lockmeter_lab, preload_library, until, user_workload};

fn compare(arguments: &[&str]) -> Command {
    preload_library();
    let mut command = lockmeter_lab(["compare"]);
    command.args(arguments);
    command
}

#[test]
fn what_cannot_be_compared_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = folder.path().join("fixed");
    copy_program(user_workload(folder.path(), "storm", &["-static"]), &fixed);
    let fixed = fixed.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 5] = [
        (&["--swap", "mutex=mutex", "--", "true"], 2, "nothing to compare with"),
        (&["--swap", "mutex=std,mutex"], 2, "COMMAND"),
        (&["--swap", "mutex=std,mutex", "--metric", "(", "--", "true"], 2, "--metric"),
        (&["--swap", "mutex=std,mutex", "--", fixed], 3, "linked statically"),
        (&["--swap", "mutex=std,mutex", "--", "no-such-program"], 127, "command not found"),
    ];
    for (arguments, status, part) in cases {
        let output = compare(arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?} said:\n{said}");
        assert!(said.contains(part) && !said.contains("panicked"), "{arguments:?} did not say `{part}`:\n{said}");
    }
}

#[test]
fn a_comparison_tells_each_variant_its_runs_and_what_was_swapped() {
    let folder = tempfile::tempdir().unwrap();
    let program = user_workload(folder.path(), "rwlock-readers", &[]);
    let compare = |more: &[&str]| {
        let mut command = compare(&["--swap", "rwlock=std,rwsem,percpu-rwsem", "--runs", "3"]);
        let output = command.args(more).arg("--").arg(&program).args(["--rounds", "10"]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output.stdout
    };
    let json: Value = serde_json::from_slice(&compare(&["--format", "json"])).unwrap();
    let variants = json["variants"].as_array().unwrap();
    assert_eq!(variants.len(), 3);
    for variant in variants {
        assert_eq!(variant["samples"].as_array().unwrap().len(), 3, "{variant}");
        assert!(variant["value"]["median"].as_f64().unwrap() > 0.0);
    }
    // One warm-up run, and three.
    assert_eq!(variants[0]["swapped"].as_object().unwrap().len(), 0);
    assert_eq!(variants[1]["swapped"]["rwlock_to_rwsem"], 4);
    assert_eq!(variants[2]["swapped"]["rwlock_to_percpu_rwsem"], 4);
    // The number of acquisitions does not depend on the lock, and so few runs tell nothing else.
    let metric = ["--format", "json", "--metric", r#""acquisitions":([0-9]+)"#];
    let json: Value = serde_json::from_slice(&compare(&metric)).unwrap();
    for variant in json["variants"].as_array().unwrap() {
        assert_eq!(variant["value"]["median"], 40.0, "{variant}");
    }
    assert_eq!(json["higher_is_better"], true);
    let csv = String::from_utf8(compare(&["--format", "csv"])).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3, "{csv}");
    let table = String::from_utf8(compare(&[])).unwrap();
    assert!(table.contains("rwlock=percpu-rwsem") && table.contains("cannot tell"), "{table}");
}

#[test]
fn a_command_that_fails_shows_its_output_and_gives_its_status() {
    let failing = ["--swap", "mutex=std,mutex", "--", "sh", "-c", "echo it broke; exit 7"];
    let output = compare(&failing).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("it broke") && said.contains("exit status: 7"), "{said}");
    let none = ["--swap", "mutex=std,mutex", "--runs", "2", "--", "true"];
    let output = compare(&none).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no lock was swapped with mutex=mutex"), "{said}");
}

/// Sleeps for as long as a swapped mutex says, and hangs with a child that hangs, too.
const HANGS_WHEN_SWAPPED: &str = r#"case $LOCKMETER_SWAP in *mutex=mutex*) sleep 1013 & wait;; esac"#;

#[test]
fn a_variant_that_hangs_is_ended_and_said_so() {
    let compared_as = |format: &str| {
        let flags = ["--swap", "mutex=std,mutex", "--runs", "2", "--timeout", "3s", "--format", format];
        compare(&flags).args(["--", "sh", "-c", HANGS_WHEN_SWAPPED]).output().unwrap()
    };
    let output = compared_as("json");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["variants"][0]["samples"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["variants"][1]["verdict"], "hung", "{json}");
    assert_eq!(json["variants"][1]["hung_after_ns"], 3_000_000_000_u64, "{json}");
    let table = String::from_utf8(compared_as("table").stdout).unwrap();
    assert!(table.contains("mutex=mutex: a run had not ended after 3.00 s and was ended"), "{table}");
    until("what it started is gone, too", || {
        Command::new("pgrep").args(["-f", "^sleep 1013$"]).output().unwrap().stdout.is_empty()
    });
}
