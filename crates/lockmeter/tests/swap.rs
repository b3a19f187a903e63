//! Programs whose pthread locks become lockmeter's: they behave as before, and what was swapped is counted.
//! Needs no privileges.

mod support;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::report::json_report;
use support::{copy_program, preload_library, user_workload};

const VARIANTS: [&str; 4] =
    ["mutex=mutex", "rwlock=rwsem,spin=spin", "rwlock=percpu-rwsem", "mutex=mutex,rwlock=percpu-rwsem,spin=spin"];

fn lockmeter(arguments: &[&str]) -> Command {
    preload_library();
    let mut command = support::lockmeter([]);
    command.args(arguments).stdin(Stdio::null());
    command
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
        json_report(self.recording.to_str().unwrap(), &[])
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
    let program = user_workload(folder.path(), name, &[]);
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
    let program = user_workload(folder.path(), "fork-handlers", &[]);
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
    let program = user_workload(folder.path(), "semantics", &[]);
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
        (user_workload(folder.path(), "two-locks", &[]), user_workload(folder.path(), "rwlock-readers", &[]));
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
    let program = user_workload(folder.path(), "storm", &[]);
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
    let (two, many) = (user_workload(folder.path(), "two-locks", &[]), user_workload(folder.path(), "many-locks", &[]));
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
    let (two, fixed) = (user_workload(folder.path(), "two-locks", &[]), folder.path().join("fixed"));
    copy_program(user_workload(folder.path(), "storm", &["-static"]), &fixed);
    let (two, fixed) = (two.to_str().unwrap(), fixed.to_str().unwrap());
    let cases: [(&[&str], i32, &str); 6] = [
        (&["record", "--swap", "futex=mutex", "--", "true"], 2, "choose from mutex, rwlock, spin"),
        (&["record", "--swap", "mutex=rwsem", "--", "true"], 2, "choose from std, mutex"),
        (&["record", "--swap", "mutex=mutex", "-p", "1"], 2, "give `-- COMMAND`"),
        (&["record", "--swap", "mutex=mutex"], 2, "give `-- COMMAND`"),
        (&["record", "--swap", "mutex=mutex", "--", fixed], 3, "linked statically"),
        (&["record", "--user", "--swap", "mutex=mutex", "--lock", "hot_lok", "--", two], 2, "`two-locks:hot_lock`"),
    ];
    for (arguments, status, part) in cases {
        let output = lockmeter(arguments).current_dir(folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{arguments:?} said:\n{said}");
        assert!(said.contains(part) && !said.contains("panicked"), "{arguments:?} did not say `{part}`:\n{said}");
    }
}
