//! Programs that make it hard to meter them, and programs that cannot be metered from inside: they run as without lockmeter,
//! and what could not be seen is said.

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, thread};

use support::recorder::Recorder;
use support::report::{report, report_as, sum};
use support::{Folder, copy_program, lockmeter, machine, preload_library, run, signal, skip, text, workload_sources};

/// What `hostile` ends with when it did what it was told.
const RAN: i32 = 3;
const FAILED: i32 = 1;
const NOT_ALLOWED: i32 = 3;
const NOT_EXECUTABLE: i32 = 126;

/// What the workload takes its lock so often.
const ACQUISITIONS: u64 = 200;
/// This many children it has with `fork`.
const CHILDREN: u64 = 3;

fn build(folder: &Folder, compiler: &str, flags: &[&str]) -> PathBuf {
    build_workload(folder, "hostile", compiler, flags)
}

fn build_workload(folder: &Folder, name: &str, compiler: &str, flags: &[&str]) -> PathBuf {
    let program = folder.path().join(name);
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program);
    command.arg(workload_sources().join("user").join(name).with_extension("c")).args(flags);
    let built = run(command);
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}

/// `lockmeter record --user` of a command, with more flags before it.
fn record(recording: &str, flags: &[&str], command: &[&str]) -> Command {
    let mut record = lockmeter(["record", "--quiet", "--user", "-o", recording]);
    record.env("LOCKMETER_PRELOAD", preload_library()).args(flags).arg("--").args(command);
    record
}

/// Fails unless the command ended with this status and one sentence was said that holds this part.
fn says(command: Command, status: i32, part: &str) {
    let output = run(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(said.lines().count() == 1 && said.starts_with("lockmeter: ") && said.contains(part), "{said}");
}

/// How often the workload's lock was held.
fn holds(recording: &str) -> u64 {
    holds_and_unmetered(recording, "hostile:lock").0
}

/// A root in which this program, which is at `/NAME` there, finds all it needs: the libraries where they are here.
fn jail(folder: &Folder, program: &Path) -> PathBuf {
    let jail = folder.path().join("jail");
    let mut needed = Command::new("ldd");
    needed.arg(program);
    let needed = text(&run(needed).stdout);
    for library in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        copy_into(&jail, Path::new(library));
    }
    copy_program(program, jail.join(program.file_name().unwrap()));
    jail
}

/// Copies a file to the same path under another root.
fn copy_into(root: &Path, file: &Path) {
    let copy = root.join(file.strip_prefix("/").unwrap());
    fs::create_dir_all(copy.parent().unwrap()).unwrap();
    copy_program(file, copy);
}

/// How often a lock was held, and how many processes were not metered.
fn holds_and_unmetered(recording: &str, lock: &str) -> (u64, u64) {
    let report: serde_json::Value = serde_json::from_str(&report_as(recording, "json", &["--lock", lock])).unwrap();
    let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "hold");
    let held = rows.map(|row| row["count"].as_u64().unwrap()).sum();
    (held, report["lost"]["user_child_unmetered"].as_u64().unwrap_or(0))
}

#[test]
fn programs_that_shut_themselves_off_are_metered_all_the_same() {
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    let program = program.to_str().unwrap();
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let as_root: [&[&str]; 2] = [&["chroot", empty.to_str().unwrap()], &["nobody"]];
    let mut cases: Vec<(&[&str], i32)> = vec![
        (&["close"], RAN),
        (&["closefrom"], RAN),
        (&["close_range"], RAN),
        (&["signal", "15"], 128 + 15),
        (&["signal", "9"], 128 + 9),
        (&["signal", "6"], 128 + 6),
    ];
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } == 0 {
        cases.extend(as_root.map(|how| (how, RAN)));
    } else {
        skip("programs that change their root or their user", "not root");
    }
    for (how, status) in cases {
        let recording = folder.file("recording");
        let ended = run(record(&recording, &["--hold"], &[&[program], how].concat()));
        assert_eq!(ended.status.code(), Some(status), "{how:?} said:\n{}", text(&ended.stderr));
        assert_eq!(holds(&recording), ACQUISITIONS, "{how:?}");
    }
}

/// Makes sure that a program whose path was relative is named when nothing tells its file any more.
#[test]
fn a_program_that_leaves_proc_behind_before_its_first_lock_is_named() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("a program that changes its root", "not root");
    }
    let folder = Folder::new();
    build(&folder, "cc", &[]);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let recording = folder.file("recording");
    let mut command = record(&recording, &["--hold"], &["./hostile", "chroot", empty.to_str().unwrap()]);
    command.current_dir(folder.path());
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(RAN), "{}", text(&ended.stderr));
    assert_eq!(holds(&recording), ACQUISITIONS, "{}", report_as(&recording, "json", &[]));
}

/// Makes sure that children which cannot reach the recorder's directory any more are metered all the same.
#[test]
fn children_report_without_the_recorders_directory() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("children of programs that change their root or their user", "not root");
    }
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    let empty = folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let ways: [&[&str]; 2] = [&["chroot", empty.to_str().unwrap(), "fork"], &["nobody", "fork"]];
    for how in ways {
        let recording = folder.file("recording");
        let command = [&[program.to_str().unwrap()], how].concat();
        let ended = run(record(&recording, &["--hold"], &command));
        assert_eq!(ended.status.code(), Some(RAN), "{how:?} said:\n{}", text(&ended.stderr));
        assert_eq!(holds(&recording), ACQUISITIONS * (1 + CHILDREN), "{how:?}");
    }
}

/// Regression: a program executed under another root had the loader complain of lockmeter's library, and was not counted.
#[test]
fn programs_executed_under_another_root_do_not_see_lockmeter_and_are_counted() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("programs under another root", "not root");
    }
    let folder = Folder::new();
    let program = build_workload(&folder, "executes", "cc", &[]);
    let jail = jail(&folder, &program);
    let path = jail.to_str().unwrap();
    let own_library = library(&folder, "first");
    copy_into(&jail, &own_library);
    let own_library = own_library.to_str().unwrap();
    for preloaded in [None, Some(own_library)] {
        let bare = {
            let mut bare = Command::new(&program);
            bare.args(["/executes", path]).envs(preloaded.map(|library| ("LD_PRELOAD", library)));
            run(bare)
        };
        let recording = folder.file("recording");
        let mut command = record(&recording, &["--hold"], &[program.to_str().unwrap(), "/executes", path]);
        command.envs(preloaded.map(|library| ("LD_PRELOAD", library)));
        let metered = run(command);
        assert_eq!(text(&metered.stderr), "");
        assert_eq!(text(&metered.stdout), text(&bare.stdout));
        assert_eq!(metered.status.code(), Some(0));
        let ways = text(&bare.stdout).lines().count() as u64;
        assert!(ways > 10, "{}", text(&bare.stdout));
        // Those under the other root took their own lock unseen.
        assert_eq!(holds_and_unmetered(&recording, "executes:lock"), (ways + 1, ways), "{preloaded:?}");
    }
    // The program of that name, too.
    let recording = folder.file("recording");
    let ended = run(record(&recording, &[], &["chroot", path, "/executes", "/executes", "/"]));
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(0), ""));
    assert_eq!(holds_and_unmetered(&recording, "executes:lock").1, 1);
}

/// Makes sure that a program is metered by whichever function of libc it was executed, also after one that failed.
#[test]
fn programs_executed_in_every_way_are_metered() {
    let folder = Folder::new();
    let program = build_workload(&folder, "executes", "cc", &[]);
    let program = program.to_str().unwrap();
    let recording = folder.file("recording");
    let ended = run(record(&recording, &["--hold"], &[program, program]));
    assert_eq!((ended.status.code(), text(&ended.stderr).as_str()), (Some(0), ""));
    let said = text(&ended.stdout);
    assert!(said.lines().all(|line| line.contains(" 2 ") && line.ends_with("liblockmeter_preload.so")), "{said}");
    let ways = said.lines().count() as u64;
    assert_eq!(holds_and_unmetered(&recording, "executes:lock"), (2 * ways + 1, 0));
}

/// Makes sure that programs which another user runs, who has no right to the recorder's directory, are counted.
#[test]
fn programs_executed_as_another_user_are_counted() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("programs of another user", "not root");
    }
    let folder = Folder::new();
    let recording = folder.file("recording");
    // By a shell: started by lockmeter, it would be metered from outside.
    let script = "exec setpriv --reuid 65534 --clear-groups true";
    let ended = run(record(&recording, &[], &["sh", "-c", script]));
    assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
    assert_eq!(holds_and_unmetered(&recording, "none").1, 1);
    let shown = report_as(&recording, "table", &[]);
    assert!(shown.contains("1 process of the program not metered"), "{shown}");
}

/// Regression: a program that may not write files as large as a segment was ended by SIGXFSZ. Segments are the recorder's files.
#[test]
fn programs_that_may_write_no_large_files_are_metered() {
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    for blocks in ["0", "10"] {
        let recording = folder.file("recording");
        let script = format!("ulimit -f {blocks}; exec {} fork", program.display());
        let ended = run(record(&recording, &["--hold"], &["sh", "-c", &script]));
        assert_eq!(ended.status.code(), Some(RAN), "{script}: {}", text(&ended.stderr));
        assert_eq!(holds(&recording), ACQUISITIONS * (1 + CHILDREN), "{script}");
    }
}

/// Regression: of a daemon nothing was metered, and nothing was said.
#[test]
fn what_outlives_its_command_is_said() {
    let folder = Folder::new();
    let recording = folder.file("recording");
    let mut command = lockmeter(["record", "--user", "-o", &recording, "--", "sh", "-c"]);
    command.arg("sleep 600 >/dev/null 2>&1 & echo $!").env("LOCKMETER_PRELOAD", preload_library());
    let output = run(command);
    let pid: u32 = text(&output.stdout).trim().parse().unwrap();
    signal(pid, libc::SIGKILL);
    let said = text(&output.stderr);
    assert!(said.contains(&format!("PID {pid})")) && said.contains("still ran after its end"), "{said}");
    // The shell itself does not outlive itself.
    assert!(said.contains("1 process that"), "{said}");
}

/// Regression: a filter or a window that leaves nothing looked like a recording in which nothing waited.
#[test]
fn filters_that_leave_nothing_are_said_to() {
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    let recording = folder.file("recording");
    let ended = run(record(&recording, &[], &[program.to_str().unwrap(), "nothing"]));
    assert_eq!(ended.status.code(), Some(RAN), "{}", text(&ended.stderr));
    let said_about = |flags: [&str; 2]| {
        let mut report = lockmeter(["report", &recording]);
        report.args(flags);
        let output = run(report);
        assert!(output.status.success());
        text(&output.stderr)
    };
    assert_eq!(said_about(["--by", "lock"]), "");
    assert!(said_about(["--lock", "no such lock"]).contains("nothing in the recording matches these filters"));
    let beyond = said_about(["--window", "1h..2h"]);
    assert!(
        beyond.contains("the window contains no recorded interval") && !beyond.contains("record longer"),
        "{beyond}"
    );
}

/// A library without functions.
fn library(folder: &Folder, name: &str) -> PathBuf {
    let library = folder.path().join(name).with_extension("so");
    let source = folder.path().join(name).with_extension("c");
    fs::write(&source, format!("int {name}_library;")).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source);
    assert!(run(compiler).status.success());
    library
}

#[test]
fn libraries_that_are_preloaded_already_stay_and_come_first() {
    let folder = Folder::new();
    let first = library(&folder, "first");
    let first = first.to_str().unwrap();
    for before in [first.to_owned(), format!("libm.so.6 {first}"), format!("{first}:")] {
        let mut command =
            record(&folder.file("recording"), &[], &["sh", "-c", "echo $LD_PRELOAD; cat /proc/self/maps"]);
        command.env("LD_PRELOAD", &before);
        let output = run(command);
        let said = text(&output.stdout);
        let preloaded = said.lines().next().unwrap();
        assert!(preloaded.starts_with(before.trim_end_matches(':')), "{preloaded}");
        assert!(preloaded.ends_with("liblockmeter_preload.so"), "{preloaded}");
        assert!(
            said.contains(first) && said.contains("/liblockmeter_preload.so"),
            "{before}: not all were loaded\n{said}"
        );
    }
}

#[test]
fn what_this_machine_cannot_run_is_said_in_a_sentence() {
    let folder = Folder::new();
    let elf = folder.file("for-another-machine");
    // A 64-bit program for AArch64, which has no segments.
    let mut head = b"\x7fELF\x02\x01\x01".to_vec();
    head.resize(64, 0);
    head[16..20].copy_from_slice(&[3, 0, 183, 0]);
    fs::write(&elf, head).unwrap();
    let text_file = folder.file("text");
    fs::write(&text_file, "no program").unwrap();
    for file in [&elf, &text_file] {
        fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let recording = folder.file("recording");
    says(record(&recording, &["--hold"], &[&elf]), FAILED, "another architecture");
    says(record(&recording, &[], &[&text_file]), NOT_EXECUTABLE, "neither a binary nor a script");
    says(record(&recording, &[], &[folder.path().to_str().unwrap()]), NOT_EXECUTABLE, "is a folder");
    let Some(_machine) = machine("a program for another machine, metered from outside") else { return };
    // An emulator may be installed for it, so it is tried.
    says(record(&recording, &[], &[&elf]), NOT_EXECUTABLE, "cannot be run: it is built for another architecture");
}

#[test]
fn a_program_with_rights_of_its_own_is_metered_from_outside() {
    let Some(_machine) = machine("a setuid program") else { return };
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    std::os::unix::fs::chown(&program, Some(65534), None).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    is_metered_from_outside(&folder, &program, "setuid");
}

#[test]
fn a_program_with_the_musl_library_is_metered_from_outside() {
    const TEST: &str = "a musl program";
    let Some(_machine) = machine(TEST) else { return };
    if Command::new("musl-gcc").arg("--version").output().is_err() {
        return skip(TEST, "no musl-gcc");
    }
    let folder = Folder::new();
    // Its headers lack close_range.
    let flags = ["-Dclose_range(a,b,c)=0", "-Dclosefrom(a)"];
    is_metered_from_outside(&folder, &build(&folder, "musl-gcc", &flags), "musl");
}

fn is_metered_from_outside(folder: &Folder, program: &Path, why: &str) {
    let recording = folder.file("recording");
    let program = program.to_str().unwrap();
    says(record(&recording, &["--hold"], &[program, "nothing"]), FAILED, why);
    says(record(&recording, &["--hold"], &[program, "nothing"]), FAILED, "leave --hold out");
    let mut aloud = lockmeter(["record", "--user", "-o", &recording, "--", program, "nothing"]);
    aloud.env("LOCKMETER_PRELOAD", preload_library());
    let output = run(aloud);
    assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    let locks = report(&recording, &["--lock", "hostile:lock"]);
    assert!(sum(&locks.rows).0 > 0, "no wait was seen from outside\n{}", locks.shown);
}

#[test]
fn a_process_in_a_container_is_named_by_its_own_files() {
    let Some(_machine) = machine("a process in a container") else { return };
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    // In the container the program lies where this machine has another or none.
    let script = format!(
        "mount -t tmpfs none /mnt; cp {} /mnt/inside; exec unshare --pid --fork /mnt/inside wait",
        program.display()
    );
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sh", "-ec", &script]);
    let mut container = container.stdin(Stdio::piped()).spawn().unwrap();
    let inside = "inside".to_owned();
    let mut pid = None;
    support::until("the program in the container runs", || {
        pid = running(&inside);
        pid.is_some()
    });
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &pid.unwrap()]);
    drop(container.stdin.take());
    let ended = recorder.wait();
    container.wait().unwrap();
    let locks = report(&ended.recording(), &[]);
    let named = locks.rows.iter().filter(|row| row.lock() == "inside:lock");
    assert!(sum(named).0 > 0, "{}", locks.shown);
}

/// The process that has this name.
fn running(name: &str) -> Option<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let is_it =
        |folder: &fs::DirEntry| fs::read_to_string(folder.path().join("comm")).is_ok_and(|comm| comm.trim() == name);
    processes.filter(is_it).map(|folder| folder.file_name().to_string_lossy().into_owned()).next()
}

#[test]
fn inside_a_container_running_programs_are_refused_and_commands_are_metered() {
    let Some(_machine) = machine("lockmeter in a container") else { return };
    let folder = Folder::new();
    let program = build(&folder, "cc", &[]);
    let container = |command: Command| {
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--fork", "--mount-proc"]).arg(command.get_program()).args(command.get_args());
        unshare.env("LOCKMETER_PRELOAD", preload_library());
        unshare
    };
    let recording = folder.file("recording");
    let attach = lockmeter(["record", "--quiet", "--user", "-o", &recording, "-d", "1s", "-p", "1"]);
    says(container(attach), NOT_ALLOWED, "inside a container");
    let output = run(container(record(&recording, &["--hold"], &[program.to_str().unwrap(), "nothing"])));
    assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
    assert_eq!(holds(&recording), ACQUISITIONS);
}

#[test]
fn another_users_process_is_refused_without_privileges() {
    // SAFETY: takes nothing.
    if unsafe { libc::geteuid() } != 0 {
        return skip("another user's process", "not root");
    }
    let folder = Folder::new();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let binary = folder.path().join("lockmeter");
    copy_program(env!("CARGO_BIN_EXE_lockmeter"), &binary);
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(binary);
    command.args(["record", "--user", "-d", "1s", "-o", "/dev/null", "-p", &other.id().to_string()]);
    let checked = thread::spawn(move || says(command, NOT_ALLOWED, "another user"));
    let checked = checked.join();
    other.kill().unwrap();
    other.wait().unwrap();
    checked.unwrap();
}
