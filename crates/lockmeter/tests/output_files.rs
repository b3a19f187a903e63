//! What lockmeter writes harms nobody: no file of another user is changed, no older recording is lost, nobody else reads it.
//! And it goes through pipes, which may not be read.
//!
//! The traps of other users are laid by root, who runs the recorder, too: in a directory like `/tmp`, without the kernel's
//! `fs.protected_*`, which may be off.

mod support;

use std::fs::{self, File, Permissions};
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use lockmeter_profile::Interval;
use lockmeter_profile::recording::RecordingReader;
use support::{Load, copy_program, lockmeter, machine, preload_library, run, signal, skip, text, until, wait};

/// Users that are neither root nor each other.
const ALICE: u32 = 65_534;
const BOB: u32 = 54_321;

const USAGE: i32 = 2;
const NO_OUTPUT: i32 = 6;
const NOT_FOUND: i32 = 127;

const BINARY: &str = env!("CARGO_BIN_EXE_lockmeter");

/// A directory in which everybody may make files, as `/tmp`; root's.
struct Shared(tempfile::TempDir);

impl Shared {
    /// `None`, after a visible line, where this user cannot lay traps in the name of others.
    fn new(test: &str) -> Option<Self> {
        // SAFETY: takes nothing and returns a number.
        if unsafe { libc::geteuid() } != 0 {
            skip(test, "needs root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        Some(Self(folder))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A directory of this user's, in which nobody else may make files.
    fn home_of(&self, user: u32, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        chown(&path, Some(user), Some(user)).unwrap();
        path
    }

    fn names(&self) -> Vec<String> {
        names_in(self.0.path())
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn link_of(user: u32, target: &Path, link: &Path) {
    symlink(target, link).unwrap();
    lchown(link, Some(user), Some(user)).unwrap();
}

fn named_pipe_of(user: u32, path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
    fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
    chown(path, Some(user), Some(user)).unwrap();
}

/// A recorder of a command that ends at once, which needs no privileges.
fn record(output: &Path, flags: &[&str]) -> Command {
    record_command(output, flags, &["true"])
}

fn record_command(output: &Path, flags: &[&str], metered: &[&str]) -> Command {
    let mut command = lockmeter(["record", "--user", "-q", "-o"]);
    command.arg(output).args(flags).arg("--").args(metered).env("LOCKMETER_PRELOAD", preload_library());
    command
}

fn succeeds(command: Command) -> Output {
    let shown = format!("{command:?}");
    let output = run(command);
    assert!(output.status.success(), "{shown} ended with {}:\n{}", output.status, text(&output.stderr));
    output
}

/// Fails unless the command ended with this status and one sentence that holds all these parts.
fn refuses(command: Command, status: i32, parts: &[&str]) {
    let shown = format!("{command:?}");
    let output = run(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{shown} ended with {} and said:\n{said}", output.status);
    let is_one = said.starts_with("lockmeter: ") && said.lines().count() == 1;
    assert!(is_one, "{shown} did not say one sentence:\n{said}");
    for part in parts {
        assert!(said.contains(part), "{shown} did not say `{part}`:\n{said}");
    }
}

/// A small recording at this path.
fn recorded(path: &Path) -> Vec<u8> {
    succeeds(record(path, &[]));
    fs::read(path).unwrap()
}

fn intervals(recording: &Path) -> Vec<Interval> {
    RecordingReader::open(recording).unwrap().map(Result::unwrap).collect()
}

fn mode_of(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

fn report_into(recording: &Path, output: &Path, format: &str) -> Command {
    let mut command = lockmeter(["report", "--format", format, "-o"]);
    command.arg(output).arg(recording);
    command
}

// ---- links -----------------------------------------------------------------------------------------------------------

/// Makes sure that a link which another user laid at the output's name is not followed, whatever it leads to.
#[test]
fn a_symbolic_link_of_another_user_is_refused() {
    let Some(shared) = Shared::new("a link of another user") else { return };
    let victim = shared.path("victim");
    let original = recorded(&victim);
    let (link, report) = (shared.path("out"), shared.path("report"));
    link_of(ALICE, &victim, &link);
    refuses(record(&link, &[]), NO_OUTPUT, &["symbolic link", "another user", "65534", "-o"]);
    // Where the kernel lets nobody follow it, what it leads to is not known.
    let is_protected = fs::read_to_string("/proc/sys/fs/protected_symlinks").is_ok_and(|value| value.trim() == "1");
    let told = if is_protected { "symbolic link" } else { "is the recording itself" };
    for format in ["json", "table", "pprof"] {
        refuses(report_into(&victim, &link, format), NO_OUTPUT, &[told]);
        link_of(ALICE, &shared.path("precious"), &report);
        fs::write(shared.path("precious"), "root's").unwrap();
        refuses(report_into(&victim, &report, format), NO_OUTPUT, &["symbolic link", "another user"]);
        assert_eq!(fs::read_to_string(shared.path("precious")).unwrap(), "root's");
        fs::remove_file(&report).unwrap();
    }
    assert_eq!(fs::read(&victim).unwrap(), original);
    // One that leads nowhere would make a file where its owner wants one.
    fs::remove_file(&link).unwrap();
    link_of(ALICE, &shared.path("new"), &link);
    refuses(record(&link, &[]), NO_OUTPUT, &["symbolic link"]);
    assert_eq!(shared.names(), ["out", "precious", "victim"]);
}

/// Makes sure that this holds for the directories on the way, and for a link that a link of one's own leads to.
#[test]
fn a_symbolic_link_of_another_user_is_refused_in_any_part_of_the_path() {
    let Some(shared) = Shared::new("a directory that is a link") else { return };
    let target = shared.home_of(0, "target");
    link_of(ALICE, &target, &shared.path("directory"));
    link_of(0, &shared.path("directory"), &shared.path("own"));
    for path in ["directory/out", "own/out", "directory/../out", "own/./out"] {
        refuses(record(&shared.path(path), &[]), NO_OUTPUT, &["symbolic link directory of another user"]);
    }
    assert!(names_in(&target).is_empty());
    assert_eq!(shared.names(), ["directory", "own", "target"]);
}

/// Makes sure that one's own links, and root's, are followed and stay links.
#[test]
fn links_of_ones_own_and_of_root_are_followed() {
    let Some(shared) = Shared::new("own links") else { return };
    let target = shared.home_of(0, "target");
    link_of(0, Path::new("target"), &shared.path("directory"));
    link_of(0, Path::new("../target/file"), &target.join("link"));
    let path = shared.path("directory/link");
    for _ in 0..2 {
        recorded(&path);
        assert!(!intervals(&target.join("file")).is_empty());
        assert!(fs::symlink_metadata(target.join("link")).unwrap().is_symlink());
    }
    assert_eq!(names_in(&target), ["file", "link"]);
}

/// Makes sure that links which lead in a circle are told as such.
#[test]
fn links_in_a_circle_are_refused() {
    let Some(shared) = Shared::new("links in a circle") else { return };
    symlink("b", shared.path("a")).unwrap();
    symlink("a", shared.path("b")).unwrap();
    refuses(record(&shared.path("a"), &[]), NO_OUTPUT, &["symbolic links"]);
}

/// Makes sure that what a file's other name shows is never changed.
#[test]
fn a_hard_link_is_replaced_and_never_written_to() {
    let Some(shared) = Shared::new("hard links") else { return };
    let home = shared.home_of(0, "home");
    let [precious, path] = ["precious", "out"].map(|name| home.join(name));
    let original = recorded(&precious);
    fs::hard_link(&precious, &path).unwrap();
    refuses(report_into(&precious, &path, "json"), NO_OUTPUT, &["is the recording itself"]);
    recorded(&path);
    assert_eq!(fs::read(&precious).unwrap(), original);
    // Empty, it would be written in place.
    let [empty, path] = ["empty", "second"].map(|name| home.join(name));
    fs::write(&empty, "").unwrap();
    fs::hard_link(&empty, &path).unwrap();
    refuses(report_into(&precious, &path, "json"), NO_OUTPUT, &["hard links"]);
    recorded(&path);
    assert_eq!(fs::read(&empty).unwrap(), b"");
}

/// Makes sure that in a directory that all share a file of another user, who could read and change it, is not written to.
#[test]
fn a_file_of_another_user_in_a_shared_directory_is_refused() {
    let Some(shared) = Shared::new("files of others") else { return };
    let recording = shared.path("recording");
    let original = recorded(&recording);
    for content in [&b""[..], &original] {
        let path = shared.path("out");
        // Not even root may write to what another user has there, where the kernel protects such files (fs.protected_regular).
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        chown(&path, Some(ALICE), Some(ALICE)).unwrap();
        let parts = &["directory that all users share", "another user", "65534"];
        refuses(record(&path, &[]), NO_OUTPUT, parts);
        refuses(report_into(&recording, &path, "json"), NO_OUTPUT, parts);
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

/// Makes sure that to anybody but root root is another user as well, and that one's own files can be replaced.
#[test]
fn in_a_shared_directory_a_user_replaces_only_what_is_theirs() {
    let Some(shared) = Shared::new("a user's own files") else { return };
    let (binary, library) = (shared.path("lockmeter"), shared.path("liblockmeter_preload.so"));
    // The build folder may be closed to others.
    copy_program(BINARY, &binary);
    copy_program(preload_library(), &library);
    let record = |path: &Path| {
        let mut command = Command::new(&binary);
        command.args(["record", "--user", "-q", "-o"]).arg(path).args(["--", "true"]);
        command.env("LOCKMETER_PRELOAD", &library).stdin(Stdio::null()).current_dir("/").uid(BOB).gid(BOB);
        command
    };
    for owner in [0, ALICE] {
        let path = shared.path(&format!("of-{owner}"));
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
        refuses(record(&path), NO_OUTPUT, &["directory that all users share"]);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
    let own = shared.path("own");
    link_of(BOB, &own, &shared.path("link"));
    link_of(0, &own, &shared.path("link-of-root"));
    for path in [own.clone(), shared.path("link"), shared.path("link-of-root")] {
        succeeds(record(&path));
        assert_eq!((fs::metadata(&own).unwrap().uid(), mode_of(&own)), (BOB, 0o600));
    }
    link_of(ALICE, &own, &shared.path("link-of-alice"));
    refuses(record(&shared.path("link-of-alice")), NO_OUTPUT, &["symbolic link", "another user"]);
}

// ---- permissions -----------------------------------------------------------------------------------------------------

fn with_umask(umask: libc::mode_t, mut command: Command) -> Command {
    // SAFETY: umask is async-signal-safe and takes a number.
    unsafe {
        command.pre_exec(move || {
            libc::umask(umask);
            Ok(())
        })
    };
    command
}

/// Makes sure that a recording is its owner's alone, or has exactly the permissions asked for, whatever the umask.
#[test]
fn a_recording_has_the_permissions_asked_for_whatever_the_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    for umask in [0o022, 0, 0o777] {
        let _ = fs::remove_file(&path);
        succeeds(with_umask(umask, record(&path, &[])));
        assert_eq!(mode_of(&path), 0o600, "umask {umask:o}");
        // Replaced, it stays so.
        succeeds(with_umask(umask, record(&path, &[])));
        assert_eq!(mode_of(&path), 0o600, "replaced, umask {umask:o}");
        for (flag, mode) in [("0644", 0o644), ("640", 0o640)] {
            succeeds(with_umask(umask, record(&path, &["--mode", flag])));
            assert_eq!(mode_of(&path), mode, "--mode {flag}, umask {umask:o}");
        }
    }
    let report = folder.path().join("report");
    succeeds(with_umask(0o027, report_into(&path, &report, "json")));
    assert_eq!(mode_of(&report), 0o640, "a report has ordinary permissions");
    for bad in ["rw", "1777", "999"] {
        let output = run(record(&path, &["--mode", bad]));
        assert_eq!(output.status.code(), Some(USAGE), "{}", text(&output.stderr));
    }
    for flags in [&["mmap", "-a", "--mode", "0644"][..], &["latency", "--kernel-addresses"]] {
        let mut command = lockmeter([]);
        command.args(flags);
        refuses(command, USAGE, &["--mode", "--kernel-addresses"]);
    }
}

// ---- the page of a recording --------------------------------------------------------------------------------------------

fn record_page(recording: &Path, page: &Path, flags: &[&str]) -> Command {
    record(recording, &[&["--html", page.to_str().unwrap()], flags].concat())
}

/// Makes sure that the page that `record --html` writes is treated as the recording is: what another user laid in its place is refused
/// before anything is metered, and it has the recording's permissions.
#[test]
fn the_page_of_a_recording_is_written_as_the_recording_is() {
    let Some(shared) = Shared::new("the page of a recording") else { return };
    let (recording, page, precious) = (shared.path("out"), shared.path("page"), shared.path("precious"));
    fs::write(&precious, "root's").unwrap();
    link_of(ALICE, &precious, &page);
    refuses(record_page(&recording, &page, &[]), NO_OUTPUT, &["symbolic link", "another user", "65534", "--html"]);
    fs::remove_file(&page).unwrap();
    named_pipe_of(ALICE, &page);
    refuses(record_page(&recording, &page, &[]), NO_OUTPUT, &["another user", "--html"]);
    fs::remove_file(&page).unwrap();
    assert_eq!(shared.names(), ["precious"], "something was metered");

    for (flags, mode) in [(&[][..], 0o600), (&["--mode", "0644"], 0o644)] {
        succeeds(with_umask(0, record_page(&recording, &page, flags)));
        assert_eq!((mode_of(&recording), mode_of(&page)), (mode, mode), "{flags:?}");
    }
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
    // The other name of a file keeps what it has.
    fs::remove_file(&page).unwrap();
    fs::hard_link(&precious, &page).unwrap();
    succeeds(record_page(&recording, &page, &[]));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "root's");
    assert!(fs::read_to_string(&page).unwrap().starts_with("<!doctype html>"));
    assert_eq!(shared.names(), ["out", "page", "precious"]);
}

/// Makes sure that a page which cannot be made is refused before anything is metered, and that nothing is lost or left behind.
#[test]
fn a_page_that_cannot_be_made_is_refused_first() {
    let folder = tempfile::tempdir().unwrap();
    let [recording, page] = ["out", "page"].map(|name| folder.path().join(name));
    let other_way = folder.path().join("..").join(folder.path().file_name().unwrap()).join("out");
    for same in [&recording, &other_way] {
        refuses(record_page(&recording, same, &[]), NO_OUTPUT, &["is the recording", "--html"]);
    }
    refuses(record_page(Path::new("/dev/null"), &page, &[]), USAGE, &["a pipe or a device cannot be read again", "-o"]);
    refuses(record_page(&recording, &folder.path().join("missing/page"), &[]), NO_OUTPUT, &["missing/page"]);
    assert!(names_in(folder.path()).is_empty());
    fs::write(&page, "the older page").unwrap();
    let not_found = record_command(&recording, &["--html", page.to_str().unwrap()], &["./no-such-command"]);
    refuses(not_found, NOT_FOUND, &["no-such-command"]);
    assert_eq!(fs::read_to_string(&page).unwrap(), "the older page");
    assert_eq!(names_in(folder.path()), ["page"]);
}

// ---- the older recording ---------------------------------------------------------------------------------------------

/// Regression: a command that was not found cost the older recording.
#[test]
fn a_command_that_is_not_found_leaves_the_older_recording_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keep.lockmeter");
    let missing = || record_command(&path, &[], &["./no-such-command"]);
    refuses(missing(), NOT_FOUND, &["no-such-command"]);
    assert!(names_in(folder.path()).is_empty());
    let original = recorded(&path);
    let inode = fs::metadata(&path).unwrap().ino();
    refuses(missing(), NOT_FOUND, &["no-such-command"]);
    assert_eq!(fs::read(&path).unwrap(), original);
    assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    assert_eq!(names_in(folder.path()), ["keep.lockmeter"]);
}

/// Makes sure that a recorder which is killed before its first interval leaves the older recording, and nothing else.
#[test]
fn a_recorder_killed_at_once_leaves_the_older_recording_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (path, begun) = (folder.path().join("keep.lockmeter"), folder.path().join("begun"));
    let original = recorded(&path);
    let script = format!("touch {}; exec cat", begun.display());
    let mut command = record_command(&path, &["--interval", "1h"], &["sh", "-c", &script]);
    let mut recorder = command.stdin(Stdio::piped()).spawn().unwrap();
    until("the command runs", || begun.exists());
    // Another one sees that it will be replaced.
    refuses(record(&path, &[]), NO_OUTPUT, &["being written by another lockmeter"]);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    assert_eq!(fs::read(&path).unwrap(), original);
    assert_eq!(names_in(folder.path()), ["begun", "keep.lockmeter"]);
    recorded(&path);
}

// ---- pipes and devices -----------------------------------------------------------------------------------------------

#[test]
fn pipes_and_devices_of_another_user_are_refused() {
    let Some(shared) = Shared::new("pipes of others") else { return };
    let recording = shared.path("recording");
    recorded(&recording);
    let home = shared.home_of(ALICE, "home");
    let [pipe, device, block] = ["pipe", "device", "block"].map(|name| home.join(name));
    named_pipe_of(ALICE, &pipe);
    refuses(record(&pipe, &[]), NO_OUTPUT, &["named pipe of another user", "65534"]);
    refuses(report_into(&recording, &pipe, "json"), NO_OUTPUT, &["named pipe of another user"]);
    let made = |path: &Path, numbers: [&str; 3]| {
        let made = Command::new("mknod").arg(path).args(numbers).status().unwrap().success();
        made.then(|| chown(path, Some(ALICE), Some(ALICE)).unwrap()).is_some()
    };
    if !(made(&device, ["c", "1", "3"]) && made(&block, ["b", "7", "250"])) {
        return skip("devices of others", "devices cannot be made here");
    }
    assert!(fs::metadata(&device).unwrap().file_type().is_char_device());
    for (path, words) in [(&device, "device of another user"), (&block, "block device")] {
        refuses(record(path, &[]), NO_OUTPUT, &[words]);
        refuses(report_into(&recording, path, "json"), NO_OUTPUT, &[words]);
    }
}

/// Whether a process catches a signal by now.
fn catches(process: &Child, number: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

/// Ends a recorder that waits for a pipe with a signal; gives what it said.
fn ended_by(number: i32, mut recorder: Child) -> String {
    until("the recorder catches signals", || catches(&recorder, number));
    signal(recorder.id(), number);
    let status = wait(&mut recorder, "a recorder that was asked to stop");
    let mut said = String::new();
    recorder.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(status.code(), Some(NO_OUTPUT), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Regression: a pipe without a reader could not be given up.
#[test]
fn a_signal_ends_the_wait_for_the_reader_of_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe_of(fs::metadata(folder.path()).unwrap().uid(), &pipe);
    for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let said = ended_by(number, record(&pipe, &[]).stderr(Stdio::piped()).spawn().unwrap());
        assert!(said.contains("stopped before any program read from the pipe"), "{said}");
    }
}

/// Opens a named pipe to read it, and makes it so small that the head of a recording fits and the first interval does not.
fn one_page_reader(pipe: &Path) -> File {
    let reader = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(pipe).unwrap();
    // SAFETY: takes an open descriptor and a number.
    let size = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETPIPE_SZ, 4096) };
    assert_eq!(size, 4096);
    reader
}

/// Makes sure that a reader which does not read does not keep the recorder from ending, before metering and after.
#[test]
fn a_signal_ends_the_wait_for_room_in_a_pipe() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe_of(fs::metadata(folder.path()).unwrap().uid(), &pipe);
    let reader = one_page_reader(&pipe);
    let has_come = || {
        let mut bytes: libc::c_int = 0;
        // SAFETY: writes one integer, which is ours.
        unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut bytes) };
        bytes > 0
    };
    let recorder = record(&pipe, &[]).stderr(Stdio::piped()).spawn().unwrap();
    until("the head is in the pipe", has_come);
    let said = ended_by(libc::SIGINT, recorder);
    assert!(said.contains("stopped while no program read from the pipe"), "{said}");
    // Full from the start.
    let said = ended_by(libc::SIGTERM, record(&pipe, &[]).stderr(Stdio::piped()).spawn().unwrap());
    assert!(said.contains("stopped while no program read from the pipe"), "{said}");
}

/// Makes sure that this is so, too, when the signal came before the pipe was full: Ctrl-C ends the command first.
#[test]
fn after_a_signal_a_pipe_that_is_not_read_is_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, begun) = (folder.path().join("pipe"), folder.path().join("begun"));
    named_pipe_of(fs::metadata(folder.path()).unwrap().uid(), &pipe);
    let _reader = one_page_reader(&pipe);
    let script = format!("touch {}; cat", begun.display());
    let mut command = record_command(&pipe, &["--interval", "1h"], &["sh", "-c", &script]);
    let mut recorder = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the command runs", || begun.exists());
    signal(recorder.id(), libc::SIGINT);
    drop(recorder.stdin.take());
    let status = wait(&mut recorder, "a recorder whose command has ended after Ctrl-C");
    assert_eq!(status.code(), Some(NO_OUTPUT));
}

/// Makes sure that a recording is not poured over a terminal.
#[test]
fn a_terminal_is_refused() {
    let (mut terminal, mut slave) = (0, 0);
    let null = std::ptr::null_mut();
    // SAFETY: writes two integers, which are ours; name, modes and size are optional.
    let opened = unsafe { libc::openpty(&raw mut terminal, &raw mut slave, null, null.cast(), null.cast()) };
    assert_eq!(opened, 0);
    // SAFETY: both were just opened and belong to nothing else.
    let (_terminal, slave) = unsafe { (File::from_raw_fd(terminal), File::from_raw_fd(slave)) };
    let mut command = record(Path::new("-"), &[]);
    let output = command.stdout(slave).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(NO_OUTPUT), "{said}");
    assert!(said.contains("standard output is a terminal"), "{said}");
}

/// Makes sure that what another process has open is not written to by its number there, and that its directories are found.
#[test]
fn files_that_another_process_has_open_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = File::create(folder.path().join("file")).unwrap();
    let of_this = format!("/proc/{}/fd", std::process::id());
    refuses(record(&PathBuf::from(format!("{of_this}/{}", file.as_raw_fd())), &[]), NO_OUTPUT, &["another process"]);
    let directory = File::open(folder.path()).unwrap();
    succeeds(record(&PathBuf::from(format!("{of_this}/{}/out", directory.as_raw_fd())), &[]));
    assert_eq!(names_in(folder.path()), ["file", "out"]);
}

/// A shell that runs lockmeter as `$lockmeter` and a recorder as `$record`.
fn shell(folder: &Path, script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-ec", script]).current_dir(folder).stdin(Stdio::null());
    command
        .env("lockmeter", BINARY)
        .env("record", format!("{BINARY} record --user"))
        .env("LOCKMETER_PRELOAD", preload_library());
    command
}

/// Makes sure that a recording goes through standard output and input, by each of their names, and nothing with it.
#[test]
fn a_recording_goes_through_standard_output_and_input() {
    let folder = tempfile::tempdir().unwrap();
    for output in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        for input in ["-", "/dev/stdin"] {
            // Not quiet: a summary, or what the command prints, would be in the way.
            let script = format!("$record -o {output} -- echo words | $lockmeter report {input} --format json");
            let report = succeeds(shell(folder.path(), &script));
            let said = text(&report.stderr);
            let parsed: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
            assert!(parsed["intervals"].as_u64() >= Some(1), "{parsed}");
            assert!(said.contains("words\n") && said.contains("wrote the recording to"), "{said}");
            assert!(!said.contains("no end"), "{said}");
        }
    }
    let script = "$record -q -o /dev/fd/3 -- true 3> file; $lockmeter report file --format json";
    succeeds(shell(folder.path(), script));
}

/// Makes sure that every reader takes a pipe, and reads it once.
#[test]
fn every_reader_of_recordings_takes_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    recorded(&folder.path().join("file"));
    for input in ["-", "/dev/stdin"] {
        for format in ["table", "json", "csv", "folded", "pprof"] {
            let read = |file: &str| format!("cat file | $lockmeter report {file} --format {format} | cat");
            let [piped, named] = [input, "file"].map(|file| succeeds(shell(folder.path(), &read(file))).stdout);
            assert_eq!(text(&piped), text(&named), "{format}");
        }
        succeeds(shell(folder.path(), &format!("cat file | $lockmeter diff file {input}")));
        succeeds(shell(folder.path(), &format!("cat file | $lockmeter diff {input} file")));
        // Nothing was held: the sentence shows that it was read.
        let predicted = run(shell(folder.path(), &format!("cat file | $lockmeter predict {input}")));
        assert!(text(&predicted.stderr).contains("has no hold times"));
    }
    refuses(shell(folder.path(), "cat file | $lockmeter diff - -"), USAGE, &["standard input"]);
    refuses(shell(folder.path(), "$lockmeter report - -o file < file"), NO_OUTPUT, &["the recording itself"]);
    succeeds(shell(folder.path(), "$lockmeter report file -o - --format json | grep -q rows"));
    succeeds(shell(
        folder.path(),
        "mkfifo pipe; cat pipe > copy & $lockmeter report file -o pipe; wait; grep -q . copy",
    ));
}

/// Makes sure that with the recording on standard output what else a subcommand prints goes to standard error.
#[test]
fn mmap_and_latency_print_beside_a_recording_on_standard_output() {
    let Some(_machine) = machine("recordings on standard output") else { return };
    let folder = tempfile::tempdir().unwrap();
    let runs = [
        "latency -d 200ms --format json -o -",
        "latency --interval 100ms -d 300ms --format json -o -",
        "mmap -a -d 200ms --format json --record -",
    ];
    for run in runs {
        let output = succeeds(shell(folder.path(), &format!("$lockmeter {run} > out; $lockmeter report - < out")));
        assert!(text(&output.stderr).contains("\"rows\""), "{run} printed nothing:\n{}", text(&output.stderr));
        // Recordings are compressed: these words are from a report.
        let written = fs::read(folder.path().join("out")).unwrap();
        assert!(!text(&written).contains("\"rows\""), "{run} printed into the recording");
    }
}

// ---- limits ----------------------------------------------------------------------------------------------------------

/// Makes sure that the limit on the size of files ends the recording with one sentence, and what fitted is readable.
#[test]
fn at_the_limit_on_file_sizes_what_was_recorded_stays_readable() {
    let Some(_machine) = machine("ulimit -f") else { return };
    let folder = tempfile::tempdir().unwrap();
    // 512 or 1024 bytes a block, by the shell.
    let script = "ulimit -f 64; exec $lockmeter record --kernel -q -a -d 1h --interval 50ms -o out";
    refuses(shell(folder.path(), script), NO_OUTPUT, &["File too large", "ulimit -f"]);
    let kept = intervals(&folder.path().join("out"));
    assert!(!kept.is_empty());
    let script = "ulimit -f 0; exec $lockmeter report out -o report --format json";
    refuses(shell(folder.path(), script), NO_OUTPUT, &["File too large", "ulimit -f"]);
    // The older recording is not lost to a limit that not even the head fits into.
    let before = fs::read(folder.path().join("out")).unwrap();
    refuses(shell(folder.path(), "ulimit -f 0; exec $lockmeter record --kernel -q -a -d 1s -o out"), NO_OUTPUT, &[]);
    assert_eq!(fs::read(folder.path().join("out")).unwrap(), before);
}

/// Makes sure that at the limit the command goes on and that what the recorder made for it is removed.
#[test]
fn at_the_limit_on_file_sizes_nothing_is_left_behind_and_the_command_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (path, runtime) = (folder.path().join("out"), folder.path().join("runtime"));
    fs::create_dir(&runtime).unwrap();
    fs::set_permissions(&runtime, Permissions::from_mode(0o700)).unwrap();
    let mut command = record_command(&path, &["--interval", "50ms"], &["sh", "-c", "cat; echo end; ulimit -f"]);
    command.env("XDG_RUNTIME_DIR", &runtime).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut recorder = command.spawn().unwrap();
    until("an interval is written", || path.exists());
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads one rlimit, which is ours; the old one is not asked for.
    let limited = unsafe {
        libc::prlimit(recorder.id().cast_signed(), libc::RLIMIT_FSIZE, &raw const limit, std::ptr::null_mut())
    };
    assert_eq!(limited, 0);
    until("the recorder has met its limit", || names_in(&runtime).is_empty());
    drop(recorder.stdin.take());
    let output = recorder.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(NO_OUTPUT), "{said}");
    assert!(said.contains("File too large") && said.lines().count() == 1, "{said}");
    assert_eq!(text(&output.stdout), "end\nunlimited\n");
    assert!(!intervals(&path).is_empty());
}

/// Makes sure that a command does not inherit that the signal is dealt with.
#[test]
fn a_command_is_killed_at_its_own_limit_on_file_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let script = "$record -q -o /dev/null -- sh -c 'ulimit -f 0; exec sh -c \"echo too much > file\"'";
    let output = run(shell(folder.path(), script));
    assert_eq!(output.status.code(), Some(128 + libc::SIGXFSZ), "{}", text(&output.stderr));
}

// ---- addresses of the kernel -----------------------------------------------------------------------------------------

/// Addresses of the kernel's half in a recording: of frames and of single locks.
fn kernel_addresses(recording: &Path) -> Vec<u64> {
    let of_interval = |interval: Interval| {
        let frames: Vec<u64> = interval.tables.frames().iter().map(|frame| frame.address).collect();
        let instances = interval.sampled.into_iter().filter_map(|sampled| sampled.instance);
        frames.into_iter().chain(instances).filter(|address| *address >= 1 << 63).collect::<Vec<u64>>()
    };
    intervals(recording).into_iter().flat_map(of_interval).collect()
}

/// Makes sure that no recording holds an address of the kernel unless it is asked for, and that single locks and pprof's
/// binaries are told apart all the same.
#[test]
fn kernel_addresses_are_recorded_only_if_asked_for() {
    let Some(_machine) = machine("kernel addresses") else { return };
    /// Below it lies nothing of a kernel's on any 64-bit machine: what stands for addresses does.
    const KERNEL: u64 = 0xff00_0000_0000_0000;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let _load = Load::start("file-pos", &["--rate", "5000"]);
    let record = |flags: &[&str]| {
        let mut command = lockmeter(["record", "--kernel", "-q", "-a", "-d", "1s", "--every", "-o"]);
        command.arg(&path).args(flags);
        succeeds(command);
        kernel_addresses(&path)
    };
    let hidden = record(&[]);
    assert!(!hidden.is_empty(), "nothing was sampled");
    assert!(hidden.iter().all(|address| *address < KERNEL), "{hidden:x?}");
    let raw = fs::read(&path).unwrap();
    let asked_for = record(&["--kernel-addresses"]);
    assert!(!asked_for.is_empty() && asked_for.iter().all(|address| *address >= KERNEL), "{asked_for:x?}");
    fs::write(&path, raw).unwrap();
    let report = lockmeter(["report", path.to_str().unwrap(), "--by", "instance", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&succeeds(report).stdout).unwrap();
    let instances: Vec<&str> =
        report["rows"].as_array().unwrap().iter().filter_map(|row| row["instance"].as_str()).collect();
    assert!(!instances.is_empty() && instances.iter().all(|shown| !shown.starts_with("0xff")), "{instances:?}");
    let mut latency = lockmeter(["latency", "-d", "300ms", "--threshold", "1us", "-o"]);
    latency.arg(&path);
    succeeds(latency);
    let hidden = kernel_addresses(&path);
    assert!(hidden.iter().all(|address| *address < KERNEL), "{hidden:x?}");
}
