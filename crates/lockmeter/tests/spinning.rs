//! CPU time that threads burn while they wait: programs that know theirs, by the clock of each thread's CPU time.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::Value;
use support::report::json_report;
use support::{preload_library, user_workload};

fn known_spins(folder: &Path) -> PathBuf {
    user_workload(folder, "known-spins", &[])
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("no number {key} in {value}"))
}

fn sum(rows: &[Value], key: &str) -> u64 {
    rows.iter().filter(|row| row["happened"] == "wait").map(|row| number(row, key)).sum()
}

/// Meters what is started, and gives what the program says and the report.
fn started(folder: &Path, flags: &[&str], program: &Path, arguments: &[&str]) -> (Value, Value) {
    preload_library();
    let recording = folder.join("test.lockmeter");
    let mut command = support::lockmeter([]);
    command.args(["record", "--quiet", "--user"]).args(flags).arg("-o").arg(&recording).arg("--").arg(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    (said(&output), json_report(recording.to_str().unwrap(), &[]))
}

fn said(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// Regression: a thread that was preempted while it spun counted as spinning, so that a report said "114 % of the machine's CPU time".
#[test]
fn of_a_spinlock_only_the_cpu_time_counts_as_spinning() {
    let folder = tempfile::tempdir().unwrap();
    let program = known_spins(folder.path());
    let (said, report) = started(folder.path(), &[], &program, &["spin", "1.5", "4"]);
    let rows = report["rows"].as_array().unwrap();
    let (spun, truth) = (sum(rows, "spin_ns"), number(&said, "spun_ns"));
    assert!(truth * 3 < number(&said, "waited_ns"), "more threads than CPUs, and none was preempted: {said}");
    assert!(spun.abs_diff(truth) * 10 <= truth, "{spun} ns of {truth}: {rows:#?}");
    let head = report["head"]["sentence"].as_str().unwrap();
    assert!(head.contains("preempted while they spun") && !head.contains("at most"), "{head}");
}
