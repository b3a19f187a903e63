//! Programs whose files belong to another user, who may have made them to harm the one who meters.

mod support;

use std::fs::{self, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::recorder::Recorder;
use support::report::json_report;
use support::{Folder, lockmeter, machine, preload_library, run, skip, text, until, wait, workload_sources};

/// What the workload ends with when all went well.
const RAN: i32 = 3;

/// Memory that a recorder may take in all, whatever the files of the program are like.
const MOST_KILOBYTES: i64 = 256 << 10;

const NOBODY: u32 = 65534;

fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// A program that another user can change at any time.
fn program_of_another_user(folder: &Folder) -> PathBuf {
    let program = folder.path().join("hostile");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-Wl,--build-id", "-o"]).arg(&program);
    compiler.arg(workload_sources().join("user/hostile.c"));
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    give_away(&program);
    program
}

fn give_away(file: &Path) {
    fs::set_permissions(file, Permissions::from_mode(0o777)).unwrap();
    if is_root() {
        chown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

fn record(recording: &str, program: &Path) -> Command {
    let mut record = lockmeter(["record", "--quiet", "--user", "--hold", "-o", recording]);
    record.env("LOCKMETER_PRELOAD", preload_library()).arg("--").arg(program).arg("nothing");
    record
}

fn report(recording: &str) -> serde_json::Value {
    json_report(recording, &["--by", "lock,caller"])
}

#[test]
fn a_running_program_of_another_user_is_named() {
    let Some(_machine) = machine("a running program of another user") else { return };
    if !is_root() {
        return skip("a running program of another user", "not root");
    }
    let folder = Folder::new();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = program_of_another_user(&folder);
    let mut command = Command::new(&program);
    command.arg("wait").stdin(Stdio::piped()).uid(NOBODY).gid(NOBODY);
    let mut child = command.spawn().unwrap();
    until("the program runs", || fs::read_link(format!("/proc/{}/exe", child.id())).is_ok_and(|runs| runs == program));
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &child.id().to_string()]);
    drop(child.stdin.take());
    let ended = recorder.wait();
    assert_eq!(wait(&mut child, "the program").code(), Some(RAN));
    let shown = report(&ended.recording()).to_string();
    assert!(shown.contains("hostile:lock") && shown.contains("\"take"), "{shown}");
}

#[test]
fn a_metered_program_of_another_user_is_named() {
    let folder = Folder::new();
    let program = program_of_another_user(&folder);
    let recording = folder.file("recording");
    assert_eq!(run(record(&recording, &program)).status.code(), Some(RAN));
    let shown = report(&recording).to_string();
    assert!(shown.contains("hostile:lock") && shown.contains("\"take"), "{shown}");
}

/// Regression: the recorder took as much memory as the table of symbols said it has, which was a hole in the file.
#[test]
#[expect(clippy::zombie_processes, reason = "wait4 waits for it, which says how much memory it took")]
fn a_symbol_table_of_two_gigabytes_costs_little_memory_and_is_reported() {
    let folder = Folder::new();
    let program = program_of_another_user(&folder);
    enlarge_symbol_table(&program, (2 << 30) / 24 * 24);
    let recording = folder.file("recording");
    let recorder = record(&recording, &program).stdin(Stdio::null()).spawn().unwrap();
    let (status, kilobytes) = wait_for_memory(recorder.id());
    assert_eq!(status, RAN);
    assert!(kilobytes < MOST_KILOBYTES, "the recorder took {kilobytes} KiB");
    let report = report(&recording);
    assert_eq!(report["lost"]["file_read_in_part"], 1, "{}", report["lost"]);
}

/// Waits for a child; its exit status and the most memory it had.
fn wait_for_memory(pid: u32) -> (i32, i64) {
    let mut status = 0;
    // SAFETY: plain integers, for which zeroes are values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to variables of ours.
    let waited = unsafe { libc::wait4(pid as libc::pid_t, &raw mut status, 0, &raw mut usage) };
    assert_eq!(waited, pid as libc::pid_t);
    (libc::WEXITSTATUS(status), usage.ru_maxrss)
}

/// Moves the symbol table into a hole behind the file's end.
fn enlarge_symbol_table(program: &Path, bytes: u64) {
    let content = fs::read(program).unwrap();
    let number =
        |at: usize, size: usize| content[at..at + size].iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let (table, count) = (number(0x28, 8), number(0x3c, 2));
    const SHT_SYMTAB: usize = 2;
    let header = (0..count).map(|index| table + index * 64).find(|at| number(at + 4, 4) == SHT_SYMTAB).unwrap();
    let at = (content.len() as u64).next_multiple_of(4096);
    let file = OpenOptions::new().write(true).open(program).unwrap();
    file.set_len(at + bytes).unwrap();
    file.write_all_at(&[at.to_le_bytes(), bytes.to_le_bytes()].concat(), header as u64 + 24).unwrap();
}

/// Regression: lockmeter opened it to look for the reasons why it might not run, and waited for a writer.
#[test]
fn a_command_that_is_a_fifo_is_refused() {
    let folder = Folder::new();
    let fifo = folder.path().join("fifo");
    let mut make = Command::new("mkfifo");
    make.arg(&fifo);
    assert!(run(make).status.success());
    give_away(&fifo);
    let output = run(record(&folder.file("recording"), &fifo));
    assert_eq!(output.status.code(), Some(126), "{}", text(&output.stderr));
}
