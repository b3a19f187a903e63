//! What the end-to-end tests share: the real binary, the real programs of `workloads/`, and a place of their own.
//!
//! Every test that meters begins with [`machine`]: it waits until no other test meters, for all of them see the whole
//! machine, and says why a test cannot run here. Under `CI` such a test fails instead of being skipped.

#![allow(dead_code, reason = "each test uses a part")]

pub mod agent;
pub mod browser;
pub mod bystanders;
pub mod control_group;
pub mod firefox;
pub mod harmful_names;
pub mod kernel_counts;
pub mod made;
pub mod recorder;
pub mod report;
pub mod runner_loads;
pub mod trace;
pub mod users;
pub mod waiting;
pub mod witness;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockmeter_kernel::probe::{self, Verdict};

/// No command of a test takes longer; one that does is killed and the test fails. The longest takes twelve seconds on a machine that is
/// neither slow nor busy.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// How far above what else runs here a test and all that it starts is scheduled: contention for a spinlock needs two CPUs at
/// once. Recorder and workload alike, so that nothing changes between them.
const NICENESS: libc::c_int = -15;

/// How often something is looked at that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Exit status of a workload that is not possible here.
pub const NOT_POSSIBLE_HERE: i32 = 77;

/// The machine, for one test alone until this is dropped.
pub struct Machine {
    _lock: File,
}

/// Waits until the machine is free for this test. `None`, after a visible line, if kernel locks cannot be metered here.
pub fn machine(test: &str) -> Option<Machine> {
    static WHY_NOT: OnceLock<Option<String>> = OnceLock::new();
    // One for the whole machine: tests may run from several build folders.
    let lock = File::create(std::env::temp_dir().join("lockmeter-tests.lock")).unwrap();
    // SAFETY: flock takes an open descriptor and touches no memory.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0, "{}", io::Error::last_os_error());
    if let Some(why) = WHY_NOT.get_or_init(why_not_here) {
        skip(test, why);
        return None;
    }
    // SAFETY: takes integers; it sets the priority of this thread and of what it starts, and may fail.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
    Some(Machine { _lock: lock })
}

fn why_not_here() -> Option<String> {
    // SAFETY: takes nothing and returns a number.
    if unsafe { libc::geteuid() } != 0 {
        return Some("needs root".into());
    }
    let lacks = probe::examine().into_iter().filter(|finding| finding.verdict == Verdict::No);
    let lacks: Vec<String> = lacks.map(|finding| format!("{}: {}", finding.what, finding.found)).collect();
    // A guest has a kernel that is to be metered: what it cannot do is what its tests are for.
    assert!(lacks.is_empty() || !is_emulated(), "{lacks:?}");
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// Says on standard error that a test did not run and why; under `CI` it fails.
pub fn skip(test: &str, why: &str) {
    assert!(std::env::var_os("CI").is_none(), "{test} cannot run here, and CI may skip nothing: {why}");
    say(&format!("SKIPPED: {test}: {why}"));
}

/// Says that a load did not contend enough to judge anything, because the machine has other work. That is no missing
/// capability, so it is said and let pass even under `CI`.
pub fn too_busy(test: &str, what: &str) {
    say(&format!("SKIPPED: {test}: the machine is too busy with something else: {what}"));
}

/// Whether this is a guest whose CPUs are emulated.
pub fn is_emulated() -> bool {
    std::env::var_os("LOCKMETER_TEST_EMULATED").is_some()
}

/// A line for the person who watches: the test harness does not hold it back.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// The binary of the package whose tests these are.
pub const BINARY: &str = match (option_env!("CARGO_BIN_EXE_lockmeter"), option_env!("CARGO_BIN_EXE_lockmeter-lab")) {
    (Some(path), _) | (None, Some(path)) => path,
    (None, None) => panic!("the package has neither binary"),
};

/// The binary under test.
pub fn lockmeter<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new(BINARY);
    command.args(arguments).stdin(Stdio::null()).env_remove("LOCKMETER_DEBUG");
    // So that no line is cut or broken that a test looks for.
    command.env("COLUMNS", "10000");
    command
}

/// The same, by its name in the tests of its own package.
pub fn lockmeter_lab<const N: usize>(arguments: [&str; N]) -> Command {
    lockmeter(arguments)
}

/// The library that is preloaded into commands, built on first use: cargo builds no library that only the program's user
/// loads.
pub fn preload_library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let folder = Path::new(BINARY).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "lockmeter-preload", "--target-dir"]);
        build.arg(folder.parent().unwrap());
        if folder.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success(), "the preloaded library does not build");
        folder.join("liblockmeter_preload.so")
    })
}

/// One of the programs in `workloads/`, built on first use.
pub fn workload(name: &str) -> Command {
    let mut command = Command::new(workload_path(name));
    // Its threads may be waited for by name: no shell in between.
    command.stdin(Stdio::null());
    command
}

/// Where a workload's program lies.
pub fn workload_path(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        // In a virtual machine they were built outside.
        if let Some(built) = std::env::var_os("LOCKMETER_TEST_WORKLOADS") {
            return built.into();
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("workloads");
        let mut make = Command::new("make");
        make.arg("-s").arg("-C").arg(workload_sources()).arg(format!("OUT={}", folder.display()));
        let built = run(make);
        assert!(built.status.success(), "the workloads do not build:\n{}", text(&built.stderr));
        folder
    });
    folder.join(name)
}

pub fn workload_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads")
}

/// A program of `workloads/user`, built into a folder.
pub fn user_workload(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let source = workload_sources().join("user").join(name).with_extension("c");
    let program = folder.join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source);
    assert!(compiler.args(flags).status().unwrap().success());
    program
}

/// Runs a workload to its end and gives what it printed. `Err` says why it is not possible here.
pub fn run_workload(name: &str, arguments: &[&str]) -> Result<serde_json::Value, String> {
    let mut command = workload(name);
    command.args(arguments);
    let output = run(command);
    if output.status.code() == Some(NOT_POSSIBLE_HERE) {
        return Err(text(&output.stderr).trim().to_owned());
    }
    assert!(output.status.success(), "{name} {arguments:?} failed: {}\n{}", output.status, text(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{name} printed no JSON: {error}")))
}

/// A workload that runs until this is dropped.
pub struct Load(Child);

impl Load {
    pub fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = workload(name);
        // Longer than whatever the test does meanwhile.
        command.args(arguments).arg("--seconds").arg((2 * PATIENCE).as_secs().to_string());
        Self(command.stdout(Stdio::null()).spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // SIGINT: it ends cleanly and removes what it made.
        signal(self.0.id(), libc::SIGINT);
        let _ = wait(&mut self.0, "the load");
    }
}

/// Sends a signal to a process that this test started and has not yet waited for.
pub fn signal(pid: u32, signal: libc::c_int) {
    // SAFETY: kill takes two integers.
    unsafe { libc::kill(pid.cast_signed(), signal) };
}

/// The first child of a process, as long as it has one.
pub fn child_of(pid: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// What a command prints as JSON; it must succeed.
pub fn json(command: Command) -> serde_json::Value {
    let shown = format!("{command:?}");
    let output = run(command);
    assert!(output.status.success(), "{shown}: {}\n{}", output.status, text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{shown}: {error}: {}", text(&output.stdout)))
}

/// The status that a command ends with which prints no result, and what it says.
pub fn refused(command: Command) -> (i32, String) {
    let shown = format!("{command:?}");
    let output = run(command);
    assert!(output.stdout.is_empty(), "{shown} printed a result: {}", text(&output.stdout));
    (output.status.code().unwrap(), text(&output.stderr))
}

/// Copies a program, or a library, to be executed. Another process does it: while a test has such a file open to write it, whatever
/// another one starts has it open, too, and it cannot be executed ("Text file busy").
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let mut copy = Command::new("cp");
    copy.arg(from.as_ref()).arg(to.as_ref());
    let output = run(copy);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

/// Runs a command to its end, which must come within [`PATIENCE`].
pub fn run(mut command: Command) -> Output {
    let shown = format!("{command:?}");
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap_or_else(|e| panic!("{shown}: {e}"));
    let stdout = drain(child.stdout.take());
    let stderr = drain(child.stderr.take());
    let status = wait(&mut child, &shown);
    Output { status, stdout: stdout.join().unwrap(), stderr: stderr.join().unwrap() }
}

/// Reads a pipe to its end beside the test, so that the writer never waits.
pub fn drain(pipe: Option<impl io::Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// The ids of the BPF programs that a process has open.
pub fn bpf_programs_of(pid: u32) -> BTreeSet<u32> {
    bpf_ids_of(pid, "prog_id:")
}

/// The ids of the BPF programs' links that a process has open: of what is attached.
pub fn bpf_links_of(pid: u32) -> BTreeSet<u32> {
    bpf_ids_of(pid, "link_id:")
}

fn bpf_ids_of(pid: u32, field: &str) -> BTreeSet<u32> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = files.filter_map(|file| fs::read_to_string(file.path()).ok());
    let id_in = |text: String| text.lines().find_map(|line| line.strip_prefix(field)?.trim().parse().ok());
    texts.filter_map(id_in).collect()
}

/// Whether the kernel still has a BPF program of this id.
pub fn program_exists(id: u32) -> bool {
    const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
    let attributes: [u32; 3] = [id, 0, 0];
    // SAFETY: the kernel reads the twelve bytes given and returns a new descriptor or -1.
    let fd = unsafe {
        libc::syscall(libc::SYS_bpf, BPF_PROG_GET_FD_BY_ID, attributes.as_ptr(), std::mem::size_of_val(&attributes))
    };
    let Ok(fd) = i32::try_from(fd) else { return false };
    if fd >= 0 {
        // SAFETY: a descriptor just opened, owned by nobody else; it is closed here.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
    }
    fd >= 0
}

/// What is pinned in the file system of BPF.
pub fn pinned_objects() -> Vec<String> {
    let names = fs::read_dir("/sys/fs/bpf").into_iter().flatten().flatten();
    let mut names: Vec<String> = names.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Waits for a child, and kills it when it outlasts [`PATIENCE`].
pub fn wait(child: &mut Child, shown: &str) -> std::process::ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            let _ = child.kill();
            let _ = child.wait();
            panic!("{shown} still runs after {PATIENCE:?}");
        }
        thread::sleep(LOOK_AGAIN);
    }
}

/// Waits until something is so, within [`PATIENCE`].
pub fn until(what: &str, mut so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < deadline, "waited {PATIENCE:?} in vain until {what}");
        thread::sleep(LOOK_AGAIN);
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A folder of a test's own, removed when the test ends.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        if count == 0 {
            remove_folders_of_the_dead();
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("test-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as an argument.
    pub fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a test keeps to the end of its process, or was killed with, nobody has removed.
fn remove_folders_of_the_dead() {
    for entry in fs::read_dir(env!("CARGO_TARGET_TMPDIR")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix("test-").and_then(|rest| rest.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
