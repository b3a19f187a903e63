//! A program's file may be replaced while it runs, as package upgrades do: what is mapped must never be named by the new file.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::json;
use support::recorder::Recorder;
use support::report::json_report;
use support::{
    Folder, child_of, lockmeter, machine, preload_library, run, skip, text, until, user_workload, workload_sources,
};

/// What the workload ends with when all went well.
const RAN: i32 = 3;

/// Two builds that differ by the names of what is at an address.
struct Builds {
    running: PathBuf,
    next: PathBuf,
}

impl Builds {
    fn make(folder: &Folder) -> Self {
        let build = |name: &str, flags: &[&str]| {
            let program = folder.path().join(name);
            let mut compiler = Command::new("cc");
            compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-Wl,--build-id", "-o"]);
            compiler.arg(&program).arg(workload_sources().join("user/hostile.c")).args(flags);
            let built = run(compiler);
            assert!(built.status.success(), "{}", text(&built.stderr));
            program
        };
        let running = build("server", &[]);
        Self { running, next: build("next", &["-Dlock=wrong_lock", "-Dtake=wrong_function"]) }
    }

    /// Puts the other build in the place of the one that runs.
    fn replace(&self) {
        fs::rename(&self.next, &self.running).unwrap();
    }

    fn running(&self) -> &str {
        self.running.to_str().unwrap()
    }
}

/// Everything that a report says.
fn whole_report(recording: &str) -> serde_json::Value {
    json_report(recording, &["--by", "lock,caller"])
}

fn is_named_by_the_right_file(recording: &str) {
    let report = whole_report(recording);
    let shown = report.to_string();
    assert!(shown.contains("server:lock") && shown.contains("\"take"), "{shown}");
    assert!(!shown.contains("wrong_"), "named by the file that took its place:\n{shown}");
}

/// Whether this process may look at the files that others map, whatever lies at their paths.
fn may_open_mapped_files() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

#[test]
fn a_running_program_is_named_by_the_file_it_began_with() {
    let Some(_machine) = machine("a replaced program, from outside") else { return };
    let folder = Folder::new();
    let builds = Builds::make(&folder);
    let mut server = Command::new(&builds.running).arg("wait").stdin(Stdio::piped()).spawn().unwrap();
    until("the program runs", || is_program(server.id(), &builds.running));
    builds.replace();
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &server.id().to_string()]);
    drop(server.stdin.take());
    let ended = recorder.wait();
    assert_eq!(server.wait().unwrap().code(), Some(RAN));
    is_named_by_the_right_file(&ended.recording());
}

fn is_program(pid: u32, program: &Path) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|runs| runs == program)
}

fn record_hold(recording: &str, interval: &str, command: &[&str]) -> Command {
    let mut record = lockmeter(["record", "--quiet", "--user", "--hold", "--interval", interval, "-o", recording]);
    record.env("LOCKMETER_PRELOAD", preload_library()).arg("--").args(command);
    record
}

#[test]
fn a_metered_program_is_named_by_the_file_it_began_with() {
    if !may_open_mapped_files() {
        return skip("a replaced program, from inside", "not root");
    }
    let folder = Folder::new();
    let builds = Builds::make(&folder);
    let recording = folder.file("recording");
    let mut recorder = record_hold(&recording, "50ms", &[builds.running(), "wait"]);
    let mut recorder = recorder.stdin(Stdio::piped()).spawn().unwrap();
    until("the program runs", || child_of(recorder.id()).is_some_and(|pid| is_program(pid, &builds.running)));
    builds.replace();
    drop(recorder.stdin.take());
    assert_eq!(recorder.wait().unwrap().code(), Some(RAN));
    let report = whole_report(&recording);
    let shown = report.to_string();
    assert!(!shown.contains("wrong_"), "named by the file that took its place:\n{shown}");
    // Read while the program lived, or after: then its file is gone for good.
    assert!(shown.contains("server:lock") || shown.contains("server (replaced)+0x"), "{shown}");
}

/// Regression: a program that was deleted while it ran, and had ended when its names were asked for, was said to be replaced by another.
#[test]
fn a_deleted_program_is_named_as_if_it_were_there() {
    let folder = Folder::new();
    let builds = Builds::make(&folder);
    let recording = folder.file("recording");
    let mut recorder = record_hold(&recording, "1h", &[builds.running(), "wait"]);
    let mut recorder = recorder.stdin(Stdio::piped()).spawn().unwrap();
    // Before that it looks into the file to see how the command is metered.
    until("the program runs", || child_of(recorder.id()).is_some_and(|pid| is_program(pid, &builds.running)));
    until("the recorder holds the program's file", || holds_open(recorder.id(), &builds.running));
    fs::remove_file(&builds.running).unwrap();
    drop(recorder.stdin.take());
    assert_eq!(recorder.wait().unwrap().code(), Some(RAN));
    let report = whole_report(&recording);
    let shown = report.to_string();
    assert!(shown.contains("server:lock") && shown.contains("\"take"), "{shown}");
    assert_eq!(report["lost"]["file_replaced"], serde_json::Value::Null, "{}", report["lost"]);
}

/// What the program ends with that calls a library.
const CALLED: i32 = 7;

/// A program, and the library that it calls.
fn library_and_caller(folder: &Folder) -> (PathBuf, PathBuf) {
    let flags =
        ["-shared", "-fPIC", "-Wl,--build-id,-soname,library-lock", "-DLOCK=library_lock", "-DWORK=work_in_library"];
    let library = user_workload(folder.path(), "library-lock", &flags);
    let link = [library.to_str().unwrap(), "-Wl,--build-id"];
    let caller = user_workload(folder.path(), "calls-library", &link);
    (library, caller)
}

fn is_named_as_in_the_library(recording: &str) {
    let report = whole_report(recording);
    let rows = report["rows"].as_array().unwrap();
    let waits: Vec<_> = rows.iter().filter(|row| row["happened"] == "wait").collect();
    for row in &waits {
        assert_eq!(
            (&row["lock"], &row["caller"][0]),
            (&json!("library-lock:library_lock"), &json!("work_in_library")),
            "{report:#}"
        );
    }
    assert_eq!(waits.len(), 1, "{report:#}");
    assert_eq!(report["lost"]["file_replaced"], serde_json::Value::Null, "{report:#}");
}

/// Regression: only programs were held open, so a library that was deleted while its program ran had no names when that had ended.
#[test]
fn a_deleted_library_is_named_as_if_it_were_there() {
    if !may_open_mapped_files() {
        return skip("a deleted library", "not root");
    }
    let folder = Folder::new();
    let (library, caller) = library_and_caller(&folder);
    let recording = folder.file("recording");
    let mut recorder = record_hold(&recording, "1h", &[caller.to_str().unwrap(), "wait"]);
    let mut recorder = recorder.env("LD_LIBRARY_PATH", folder.path()).stdin(Stdio::piped()).spawn().unwrap();
    until("the recorder holds the library", || holds_open(recorder.id(), &library));
    fs::remove_file(&library).unwrap();
    drop(recorder.stdin.take());
    assert_eq!(recorder.wait().unwrap().code(), Some(CALLED));
    is_named_as_in_the_library(&recording);
}

/// Regression: what only a process in another mount namespace sees was said to be replaced, and had two names if it was also metered
/// while the process lived.
#[test]
fn files_of_another_mount_namespace_are_named_also_when_it_is_gone() {
    if !may_open_mapped_files() {
        return skip("another mount namespace", "not root");
    }
    for interval in ["50ms", "1h"] {
        let folder = Folder::new();
        library_and_caller(&folder);
        let recording = folder.file("recording");
        // Outside, another library lies at its path, and no program.
        let within = folder.path().join("within");
        fs::create_dir(&within).unwrap();
        let other = ["-shared", "-fPIC", "-Wl,--build-id", "-DLOCK=wrong_lock", "-DWORK=wrong_function"];
        user_workload(&within, "library-lock", &other);
        let script = "mkdir hidden; mount -t tmpfs none hidden; mv calls-library library-lock hidden
             mount --bind hidden within; LD_LIBRARY_PATH=$PWD/within within/calls-library; exit $?";
        let command = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", script];
        let mut record = record_hold(&recording, interval, &command);
        record.current_dir(folder.path());
        let output = run(record);
        assert_eq!(output.status.code(), Some(CALLED), "{}", text(&output.stderr));
        assert!(!within.join("calls-library").exists());
        is_named_as_in_the_library(&recording);
    }
}

fn holds_open(pid: u32, file: &Path) -> bool {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    descriptors.into_iter().any(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|open| open == file))
}

/// Makes sure that what ran and was replaced is not named by the other file: by its own if the recorder saw it in time, else not at
/// all, which is said.
#[test]
fn a_program_that_has_ended_is_not_named_by_the_file_in_its_place() {
    let folder = Folder::new();
    let builds = Builds::make(&folder);
    let recording = folder.file("recording");
    let script = format!("{0} nothing; mv {1} {0}", builds.running(), builds.next.display());
    let output = run(record_hold(&recording, "1h", &["sh", "-c", &script]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report = whole_report(&recording);
    let shown = report.to_string();
    assert!(!shown.contains("wrong_"), "named by the file that took its place:\n{shown}");
    if shown.contains("server (replaced)+0x") {
        assert_eq!(report["lost"]["file_replaced"], 1, "{}", report["lost"]);
    } else {
        assert!(shown.contains("server:lock"), "{shown}");
    }
}
