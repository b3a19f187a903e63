//! Long work shows on a terminal how much is done and how long is left, and says nothing of it where nobody watches.

mod support;
#[path = "support/terminal.rs"]
mod terminal;

use std::fs;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;

use support::{Folder, lockmeter, machine, run, text, user_workload};
use terminal::Terminal;

const SIZE: (u16, u16) = (120, 24);

/// Makes sure that `record -d` shows how long it goes on, takes the line away when it ends, and writes nothing of the kind into a pipe.
#[test]
fn a_recording_of_known_length_says_how_long_is_left() {
    let Some(_machine) = machine("progress of a recording") else { return };
    let folder = Folder::new();
    let record = |duration: &str| {
        let mut command = lockmeter(["record", "--kernel", "-a", "-d", duration, "-o", &folder.file("recording")]);
        command.current_dir(folder.path());
        command
    };
    let terminal = Terminal::start(&mut record("2s"), SIZE);
    terminal
        .until("the line is gone", |screen| screen.contains("lockmeter: wrote") && !screen.contains("Ctrl-C ends it"));
    let (status, shown) = terminal.ended();
    assert!(status.success());
    assert!(shown.contains("s left; Ctrl-C ends it and reports") && shown.contains("of 2 s, "), "{shown}");
    assert!(shown.contains("metering #") || shown.contains("metering -"), "{shown}");
    let output = run(record("500ms"));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(!said.contains("Ctrl-C ends it") && !said.contains(['\r', '\x1b']), "{said:?}");
    // Nor where only errors are wanted.
    let mut quiet = record("500ms");
    quiet.arg("--quiet");
    let (status, shown) = Terminal::start(&mut quiet, SIZE).ended();
    assert!(status.success() && shown.is_empty(), "{shown:?}");
}

/// Makes sure that what takes long before metering begins is said on a terminal, and that the line is gone when it has begun.
#[test]
fn a_slow_begin_says_what_is_done() {
    let Some(_machine) = machine("progress of a slow begin") else { return };
    let folder = Folder::new();
    let recording = folder.file("recording");
    let saying = "preparing to meter and loading symbols for ";
    for (arguments, begun) in [(&["record", "-a", "-d", "500ms", "-o", &recording][..], "metering"), (&["top"], "LIVE")]
    {
        let mut command = lockmeter([]);
        let terminal = Terminal::start(command.args(arguments).current_dir(folder.path()), SIZE);
        terminal.until_so("it prepares", || has_thread(terminal.pid(), "progress"));
        // It takes as long as on a slow machine.
        terminal.signal(libc::SIGSTOP);
        thread::sleep(Duration::from_millis(1_200));
        terminal.signal(libc::SIGCONT);
        terminal.until_so("it says so", || terminal.read(|shown| text(&shown.bytes).contains(saying)));
        terminal.until("metering has begun", |screen| screen.contains(begun) && !screen.contains(saying));
        terminal.signal(libc::SIGTERM);
        assert!(terminal.ended().0.success(), "{arguments:?}");
    }
}

fn has_thread(pid: u32, name: &str) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).any(|comm| comm.trim_end() == name)
}

/// Makes sure that a report of what comes slowly says how much it has read, and that the report itself is undisturbed.
#[test]
fn a_slow_recording_shows_how_much_was_read() {
    let folder = Folder::new();
    support::preload_library();
    let program = user_workload(folder.path(), "two-locks", &[]);
    let recording = folder.file("recording");
    let mut record = lockmeter(["record", "--user", "--interval", "50ms", "-o", &recording, "--"]);
    record.arg(program).args(["--threads", "3", "--rounds", "60", "--hold-ns", "2000000", "--sleep"]);
    let output = run(record);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let bytes = fs::read(&recording).unwrap();
    let pipe = folder.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let report = folder.file("report");
    let mut command = lockmeter(["report", &pipe, "-o", &report]);
    let terminal = Terminal::start(&mut command, SIZE);
    let mut into = fs::OpenOptions::new().write(true).open(&pipe).unwrap();
    // A piece at a time, until it is seen; the reader decides when.
    let pieces = bytes.chunks(bytes.len() / 200 + 1);
    let mut left = pieces.len();
    for piece in pieces {
        into.write_all(piece).unwrap();
        left -= 1;
        if !terminal.text().contains("reading ") && left > 5 {
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop(into);
    let (status, shown) = terminal.ended();
    assert!(status.success() && shown.contains(&format!("reading {pipe}, ")), "{shown:?}");
    let same = folder.file("same");
    let output = run(lockmeter(["report", &recording, "-o", &same]));
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&report).unwrap(), fs::read_to_string(&same).unwrap());
}
