//! Programs whose pthread locks become lockmeter's: they behave as before, what was swapped is counted, and variants can be
//! compared. Needs no privileges.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::{copy_program, preload_library};

const VARIANTS: [&str; 4] =
    ["mutex=mutex", "rwlock=rwsem,spin=spin", "rwlock=percpu-rwsem", "mutex=mutex,rwlock=percpu-rwsem,spin=spin"];

fn lockmeter(arguments: &[&str]) -> Command {
    preload_library();
    let mut command = support::lockmeter([]);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// A program of `workloads/user`, built.
fn workload(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = support::workload_sources().join("user").join(name).with_extension("c");
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.args(flags).status().unwrap().success());
    program
}

struct Swapped {
    output: Output,
    recording: PathBuf,
}

fn record(folder: &Path, flags: &[&str], command: &[&OsStr]) -> Swapped {
    let recording = folder.join("test.lockmeter");
    let mut recorder = lockmeter(&["record", "--quiet", "--user"]);
    let output = recorder.args(flags).arg("-o").arg(&recording).arg("--").args(command).output().unwrap();
    Swapped { output, recording }
}

impl Swapped {
    fn report(&self) -> Value {
        let output = lockmeter(&["report", "--format", "json"]).arg(&self.recording).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn holds(&self, lock: &str) -> u64 {
        let report = self.report();
        let is_hold = |row: &&Value| row["happened"] == "hold" && row["lock"] == lock;
        let counts =
            report["rows"].as_array().unwrap().iter().filter(is_hold).map(|row| row["count"].as_u64().unwrap());
        counts.sum()
    }
}

fn same_as_bare(name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = workload(folder.path(), name, &[]);
    let bare = Command::new(&program).output().unwrap();
    assert!(!bare.stdout.is_empty());
    for swap in VARIANTS {
        for flags in [&["--swap", swap][..], &["--hold", "--swap", swap]] {
            let swapped = record(folder.path(), flags, &[program.as_os_str()]);
            assert_eq!(swapped.output.status.code(), bare.status.code(), "{flags:?}");
            let (said, expected) = (&swapped.output.stdout, &bare.stdout);
            assert_eq!(String::from_utf8_lossy(said), String::from_utf8_lossy(expected), "{flags:?}");
            let count: u64 = swapped.report()["swapped"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
            assert!(count > 0, "{flags:?} swapped nothing");
        }
    }
}

#[test]
fn all_that_pthread_promises_is_kept_with_every_variant() {
    same_as_bare("semantics");
}

#[test]
fn what_glibc_lets_pass_passes_with_every_variant() {
    same_as_bare("odd-uses");
}

/// Regression: a child waited for waiters of its parent.
#[test]
fn children_use_what_fork_handlers_held_with_every_variant() {
    let folder = tempfile::tempdir().unwrap();
    let program = workload(folder.path(), "fork-handlers", &[]);
    let variants: [(&str, &[&str]); 4] = [
        ("mutex=mutex", &["mutex"]),
        ("rwlock=rwsem", &["rwlock"]),
        ("rwlock=percpu-rwsem", &["rwlock"]),
        ("mutex=mutex,rwlock=rwsem", &["mutex", "rwlock"]),
    ];
    for (swap, locks) in variants {
        for flags in [&["--swap", swap][..], &["--hold", "--swap", swap]] {
            let command: Vec<&OsStr> = [program.as_os_str()].into_iter().chain(locks.iter().map(OsStr::new)).collect();
            let swapped = record(folder.path(), flags, &command);
            let said = String::from_utf8_lossy(&swapped.output.stdout).into_owned();
            assert_eq!(said, "children that hung: 0\n", "{flags:?} {locks:?}: {:?}", swapped.output);
        }
    }
}

#[test]
fn locks_that_cannot_be_swapped_are_left_alone_and_counted_by_reason() {
    let folder = tempfile::tempdir().unwrap();
    let program = workload(folder.path(), "semantics", &[]);
    let swapped = record(folder.path(), &["--swap", "mutex=mutex"], &[program.as_os_str()]);
    let report = swapped.report();
    // Four types of mutexes by three protocols, robust or not, shared or not. glibc refuses robust ones with a ceiling; one more
    // robust mutex has owners that die.
    let reasons = ["left_shared", "left_robust", "left_inheriting", "left_protecting"];
    let counted = reasons.map(|outcome| report["swapped"][outcome].as_u64().unwrap_or(0));
    assert_eq!(counted, [12, 17, 4, 4], "{}", report["swapped"]);
    assert!(report["swapped"]["mutex_to_mutex"].as_u64() >= Some(4), "{}", report["swapped"]);
    let table = lockmeter(&["report"]).arg(&swapped.recording).output().unwrap();
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("left alone: 12 shared between processes"), "{table}");
}

#[test]
fn every_acquisition_of_swapped_locks_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (mutexes, rwlocks) =
        (workload(folder.path(), "two-locks", &[]), workload(folder.path(), "rwlock-readers", &[]));
    for swap in VARIANTS {
        let flags = ["--hold", "--swap", swap];
        let short = ["--rounds", "50"].map(OsStr::new);
        let swapped = record(folder.path(), &flags, &[mutexes.as_os_str(), short[0], short[1]]);
        assert_eq!((swapped.holds("two-locks:hot_lock"), swapped.holds("two-locks:cold_lock")), (200, 200), "{swap}");
        let swapped = record(folder.path(), &flags, &[rwlocks.as_os_str(), short[0], short[1]]);
        let said: Value = serde_json::from_slice(&swapped.output.stdout).unwrap();
        assert_eq!(swapped.holds("rwlock-readers:table_lock"), said["acquisitions"].as_u64().unwrap(), "{swap}");
    }
}

#[test]
fn storms_of_threads_forks_and_programs_run_on_swapped_locks() {
    let folder = tempfile::tempdir().unwrap();
    let program = workload(folder.path(), "storm", &[]);
    let command = [program.as_os_str(), "500".as_ref(), "20".as_ref(), "20".as_ref()];
    let swapped = record(folder.path(), &["--hold", "--swap", "mutex=mutex"], &command);
    assert!(swapped.output.status.success(), "{:?}", swapped.output);
    assert_eq!(swapped.holds("storm:lock"), 20 * (500 + 20 * 2 + 20 * 4));
}

#[test]
fn a_real_program_writes_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("input");
    let text: String = (0..400_000_u64).map(|n| format!("{}\n", n.wrapping_mul(n) % 99_991)).collect();
    fs::write(&input, text).unwrap();
    for program in [&["pigz", "-p", "4", "-c"][..], &["xz", "-T4", "-1", "--block-size=65536", "-c"]] {
        let command: Vec<&OsStr> = program.iter().map(OsStr::new).chain([input.as_os_str()]).collect();
        let Ok(bare) = Command::new(command[0]).args(&command[1..]).output() else {
            support::skip("a real program writes the same bytes", &format!("no {}", program[0]));
            continue;
        };
        let swapped = record(folder.path(), &["--swap", "mutex=mutex,rwlock=rwsem"], &command);
        assert!(swapped.output.status.success(), "{:?}", String::from_utf8_lossy(&swapped.output.stderr));
        assert!(swapped.output.stdout == bare.stdout, "{program:?} wrote other bytes with swapped locks");
        assert!(swapped.report()["swapped"]["mutex_to_mutex"].as_u64() > Some(0), "{program:?}");
    }
}

#[test]
fn a_lock_is_chosen_by_its_own_name_or_that_of_its_maker() {
    let folder = tempfile::tempdir().unwrap();
    let (two, many) = (workload(folder.path(), "two-locks", &[]), workload(folder.path(), "many-locks", &[]));
    let counted = |program: &Path, pattern: &str| {
        let swapped = record(folder.path(), &["--swap", "mutex=mutex", "--lock", pattern], &[program.as_os_str()]);
        assert!(swapped.output.status.success(), "{:?}", swapped.output);
        let report = swapped.report();
        ["mutex_to_mutex", "left_not_chosen"].map(|outcome| report["swapped"][outcome].as_u64().unwrap_or(0))
    };
    assert_eq!(counted(&two, "two-locks:hot_lock"), [1, 1]);
    assert_eq!(counted(&two, "*_lock"), [2, 0]);
    assert_eq!(counted(&many, "make_locks"), [8192, 0]);
    assert_eq!(counted(&many, "heap, created at make_locks"), [8192, 0]);
}

#[test]
fn what_cannot_be_swapped_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let (two, fixed) = (workload(folder.path(), "two-locks", &[]), folder.path().join("fixed"));
    copy_program(workload(folder.path(), "storm", &["-static"]), &fixed);
    let (two, fixed) = (two.to_str().unwrap(), fixed.to_str().unwrap());
    let cases: [(&[&str], i32, &str); 11] = [
        (&["record", "--swap", "futex=mutex", "--", "true"], 2, "choose from mutex, rwlock, spin"),
        (&["record", "--swap", "mutex=rwsem", "--", "true"], 2, "choose from std, mutex"),
        (&["record", "--swap", "mutex=mutex", "-p", "1"], 2, "give `-- COMMAND`"),
        (&["record", "--swap", "mutex=mutex"], 2, "give `-- COMMAND`"),
        (&["record", "--swap", "mutex=mutex", "--", fixed], 3, "linked statically"),
        (&["record", "--user", "--swap", "mutex=mutex", "--lock", "hot_lok", "--", two], 2, "`two-locks:hot_lock`"),
        (&["compare", "--swap", "mutex=mutex", "--", "true"], 2, "nothing to compare with"),
        (&["compare", "--swap", "mutex=std,mutex"], 2, "COMMAND"),
        (&["compare", "--swap", "mutex=std,mutex", "--metric", "(", "--", "true"], 2, "--metric"),
        (&["compare", "--swap", "mutex=std,mutex", "--", fixed], 3, "linked statically"),
        (&["compare", "--swap", "mutex=std,mutex", "--", "no-such-program"], 127, "command not found"),
    ];
    for (arguments, status, part) in cases {
        let output = lockmeter(arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?} said:\n{said}");
        assert!(said.contains(part) && !said.contains("panicked"), "{arguments:?} did not say `{part}`:\n{said}");
    }
}

#[test]
fn a_comparison_tells_each_variant_its_runs_and_what_was_swapped() {
    let folder = tempfile::tempdir().unwrap();
    let program = workload(folder.path(), "rwlock-readers", &[]);
    let compare = |more: &[&str]| {
        let mut command = lockmeter(&["compare", "--swap", "rwlock=std,rwsem,percpu-rwsem", "--runs", "3"]);
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
    assert!(table.contains("rwlock=percpu-rwsem") && table.contains("noise"), "{table}");
}

#[test]
fn a_command_that_fails_shows_its_output_and_gives_its_status() {
    let failing = ["compare", "--swap", "mutex=std,mutex", "--", "sh", "-c", "echo it broke; exit 7"];
    let output = lockmeter(&failing).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("it broke") && said.contains("exit status: 7"), "{said}");
    let none = ["compare", "--swap", "mutex=std,mutex", "--runs", "2", "--", "true"];
    let output = lockmeter(&none).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no lock was swapped with mutex=mutex"), "{said}");
}

/// Sleeps for as long as a swapped mutex says, and hangs with a child that hangs, too.
const HANGS_WHEN_SWAPPED: &str = r#"case $LOCKMETER_SWAP in *mutex=mutex*) sleep 1000 & wait;; esac"#;

#[test]
fn a_variant_that_hangs_is_ended_and_said_so() {
    let compare = |format: &str| {
        let flags = ["compare", "--swap", "mutex=std,mutex", "--runs", "2", "--timeout", "500ms", "--format", format];
        lockmeter(&flags).args(["--", "sh", "-c", HANGS_WHEN_SWAPPED]).output().unwrap()
    };
    let output = compare("json");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["variants"][0]["samples"].as_array().unwrap().len(), 2, "{json}");
    assert_eq!(json["variants"][1]["verdict"], "hung", "{json}");
    assert_eq!(json["variants"][1]["hung_after_ns"], 500_000_000, "{json}");
    let table = String::from_utf8(compare("table").stdout).unwrap();
    assert!(table.contains("mutex=mutex: a run had not ended after 500 ms and was ended"), "{table}");
    // What it started is gone, too.
    let left = Command::new("pgrep").args(["-f", "^sleep 1000$"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "", "a child of the hung run is still there");
}
