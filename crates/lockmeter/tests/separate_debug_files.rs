//! A stripped program is named by its separate debug file, found where gdb finds it, and by no other file.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use support::recorder::Recorder;
use support::report::{is_separate_debug_named as is_named, report_as};
use support::{BINARY, Folder, child_of, lockmeter, machine, preload_library, run, skip, text, user_workload};

/// What the program ends with.
const RAN: i32 = 7;

/// A program, stripped, and its symbols in a file of their own.
struct Stripped {
    folder: Folder,
    program: PathBuf,
    debug: PathBuf,
}

fn shell(script: &str, folder: &Folder) {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder.path());
    let output = run(command);
    assert!(output.status.success(), "{script}\n{}", text(&output.stderr));
}

impl Stripped {
    fn build() -> Self {
        let folder = Folder::new();
        let program = user_workload(folder.path(), "separate-debug", &["-Wl,--build-id"]);
        shell("objcopy --only-keep-debug separate-debug server.debug; strip separate-debug", &folder);
        let debug = folder.path().join("server.debug");
        Self { folder, program, debug }
    }

    /// Has the program name the debug file, whose checksum is taken.
    fn link(&self) {
        shell("objcopy --add-gnu-debuglink=server.debug separate-debug", &self.folder);
    }

    /// Where packages put the debug file, below a folder.
    fn by_build_id(&self, below: &str) -> String {
        let mut readelf = Command::new("readelf");
        readelf.arg("--notes").arg(&self.program);
        let notes = text(&run(readelf).stdout);
        let build_id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).unwrap();
        format!("{below}/.build-id/{}/{}.debug", &build_id[..2], &build_id[2..])
    }

    /// What is reported of the program, metered after a script in a mount namespace of its own.
    fn reported_after(&self, script: &str) -> String {
        let recording = self.folder.file("recording");
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec"]);
        command.arg(format!("{script}\nexec {BINARY} record --quiet --user -o {recording} -- ./separate-debug"));
        command.env("LOCKMETER_PRELOAD", preload_library()).current_dir(self.folder.path()).stdin(Stdio::null());
        let output = run(command);
        assert_eq!(output.status.code(), Some(RAN), "{}", text(&output.stderr));
        report_as(&recording, "json", &["--by", "lock,caller"])
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing.
    unsafe { libc::geteuid() == 0 }
}

/// A folder of its own in the place of the system's debug files.
const OWN_DEBUG_FILES: &str = "mkdir -p /usr/lib/debug; mount -t tmpfs none /usr/lib/debug";

#[test]
fn lock_and_function_are_named_by_a_debug_file_in_each_of_its_places() {
    if !is_root() {
        return skip("separate debug files", "needs root for a mount namespace");
    }
    let stripped = Stripped::build();
    assert!(!is_named(&stripped.reported_after("rm server.debug")), "the program is not stripped");
    let stripped = Stripped::build();
    let installed = stripped.by_build_id("/usr/lib/debug");
    let install = format!("{OWN_DEBUG_FILES}; install -D server.debug {installed}; rm server.debug");
    let reported = stripped.reported_after(&install);
    assert!(is_named(&reported), "by build id:\n{reported}");
    let folder = stripped.folder.path().display();
    let places = [
        ("beside the program", "true".to_owned()),
        ("in .debug", "mkdir .debug; mv server.debug .debug".to_owned()),
        (
            "in the system's folder",
            format!("{OWN_DEBUG_FILES}; install -D -t /usr/lib/debug{folder} server.debug; rm server.debug"),
        ),
    ];
    for (place, script) in places {
        let stripped = Stripped::build();
        stripped.link();
        let script = script.replace(&folder.to_string(), &stripped.folder.path().display().to_string());
        let reported = stripped.reported_after(&script);
        assert!(is_named(&reported), "{place}:\n{reported}");
    }
}

#[test]
fn lock_and_function_are_named_by_the_small_symbol_table_that_a_program_carries() {
    let stripped = Stripped::build();
    shell(
        "objcopy --strip-debug --keep-symbol=account_lock --keep-symbol=deposit --remove-section=.comment server.debug small
         xz small
         objcopy --add-section=.gnu_debugdata=small.xz separate-debug
         rm server.debug",
        &stripped.folder,
    );
    let reported = stripped.reported_after("true");
    assert!(is_named(&reported), "{reported}");
}

/// Makes sure that who meets a stripped program is told what helps: another kernel does not.
#[test]
fn the_hint_for_a_stripped_program_is_to_install_its_debug_symbols() {
    if !is_root() {
        return skip("stripped programs", "needs root for a mount namespace");
    }
    let warned = |stripped: &Stripped| {
        let recording = stripped.folder.file("recording");
        text(&run(lockmeter(["report", "--by", "lock", &recording])).stderr)
    };
    let stripped = Stripped::build();
    stripped.reported_after("rm server.debug");
    let said = warned(&stripped);
    assert!(said.contains("stripped; install its debug symbols (Debian: PACKAGE-dbgsym)"), "{said}");
    assert!(!said.contains("lockmeter doctor"), "{said}");
    if !Path::new("/var/lib/dpkg/info").exists() {
        return skip("the package of a stripped program", "this is no Debian");
    }
    // As if a package had installed it.
    let list = "mount -t tmpfs none /var/lib/dpkg/info; echo $PWD/separate-debug > /var/lib/dpkg/info/bank:amd64.list";
    stripped.reported_after(list);
    let said = warned(&stripped);
    assert!(said.contains("(package bank-dbgsym)"), "{said}");
}

/// Makes sure that the checksum counts: the file beside the program was changed since.
#[test]
fn a_debug_file_with_another_checksum_is_not_used() {
    let stripped = Stripped::build();
    stripped.link();
    let mut content = fs::read(&stripped.debug).unwrap();
    content.push(0);
    fs::write(&stripped.debug, content).unwrap();
    let reported = stripped.reported_after("true");
    assert!(!is_named(&reported), "{reported}");
    // What the program says of itself is still there.
    assert!(reported.contains("separate-debug+0x"), "{reported}");
}

/// Makes sure that the build id counts: the checksum is that of the file, but the file belongs to another build.
#[test]
fn a_debug_file_of_another_build_is_not_used() {
    let (stripped, other) = (Stripped::build(), Folder::new());
    user_workload(other.path(), "separate-debug", &["-Wl,--build-id", "-O1"]);
    shell("objcopy --only-keep-debug separate-debug server.debug", &other);
    fs::copy(other.path().join("server.debug"), &stripped.debug).unwrap();
    stripped.link();
    assert!(!is_named(&stripped.reported_after("true")));
    let installed = stripped.by_build_id("/usr/lib/debug");
    let install = format!("{OWN_DEBUG_FILES}; install -D server.debug {installed}; rm server.debug");
    assert!(!is_named(&stripped.reported_after(&install)));
}

/// Makes sure of a program that is metered from outside: in another mount namespace, where only it finds its debug file.
#[test]
fn a_debug_file_that_only_the_program_sees_is_found() {
    let Some(_machine) = machine("debug files of another mount namespace") else { return };
    let stripped = Stripped::build();
    let installed = stripped.by_build_id("/usr/lib/debug");
    let script = format!(
        "{OWN_DEBUG_FILES}; install -D server.debug {installed}; rm server.debug; mkdir elsewhere
         mount -t tmpfs none elsewhere; mv separate-debug elsewhere; elsewhere/separate-debug wait; exit $?"
    );
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--propagation", "private", "sh", "-ec", &script]).current_dir(stripped.folder.path());
    let mut shell = unshare.stdin(Stdio::piped()).spawn().unwrap();
    let is_it = |pid: &u32| {
        fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.ends_with("elsewhere/separate-debug"))
    };
    support::until("the program runs", || child_of(shell.id()).is_some_and(|pid| is_it(&pid)));
    let pid = child_of(shell.id()).unwrap();
    assert!(!Path::new(&stripped.folder.file("elsewhere/separate-debug")).exists());
    let recorder = Recorder::start_all(&stripped.folder, "recording", &["--user", "-p", &pid.to_string()]);
    drop(shell.stdin.take());
    let ended = recorder.wait();
    assert_eq!(shell.wait().unwrap().code(), Some(RAN));
    let reported = report_as(&ended.recording(), "json", &["--by", "lock,caller"]);
    assert!(is_named(&reported), "{reported}");
}
