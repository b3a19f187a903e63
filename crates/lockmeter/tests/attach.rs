//! `lockmeter record -p`: the locks of programs that run already, metered from outside.

mod support;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::recorder::{Ended, Recorder};
use support::report::{Report, Row, report, sum};
use support::{
    Folder, copy_program, lockmeter, machine, preload_library, run, skip, text, too_busy, until, wait, workload_sources,
};

/// What a program measures itself and what is seen from outside may differ by this much: a thread that takes a lock runs a
/// while before it sleeps.
const TOLERANCE_PERCENT: u64 = 10;

const NO_TARGET: i32 = 5;

/// A program of `workloads/user`, built with these flags.
fn build(folder: &Folder, name: &str, flags: &[&str]) -> PathBuf {
    let program = folder.path().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-o"]).arg(&program);
    compiler.arg(workload_sources().join("user").join(name).with_extension("c")).args(flags);
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}

/// A program that begins to work when it is told.
struct Program(Child);

impl Program {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(program);
        Self(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Lets it work to its end; gives what it measured itself.
    fn work(mut self) -> serde_json::Value {
        drop(self.0.stdin.take());
        let mut said = String::new();
        self.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(wait(&mut self.0, "the program").success());
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }
}

/// Meters a program from before its first wait to its end.
fn meter(folder: &Folder, program: &Path, arguments: &[&str]) -> (serde_json::Value, String) {
    let program = Program::start(program, arguments);
    let recorder = Recorder::start_all(folder, "recording", &["--user", "-p", &program.pid()]);
    let said = program.work();
    (said, recorder.wait().recording())
}

fn assert_near(measured_ns: u64, said: &serde_json::Value, shown: &str) {
    let known_ns = said["wait_ns"].as_u64().unwrap();
    assert!(known_ns > 0 && is_near(measured_ns, known_ns, known_ns), "{measured_ns}, but {said}\n{shown}");
}

/// Whether a part is known well, in terms of its whole.
fn is_near(measured_ns: u64, known_ns: u64, whole_ns: u64) -> bool {
    measured_ns.abs_diff(known_ns) * 100 <= whole_ns * TOLERANCE_PERCENT
}

fn functions(stack: Option<&Vec<String>>) -> Vec<&str> {
    stack.into_iter().flatten().map(String::as_str).collect()
}

/// Makes sure that the one lock is named, that both callers are told apart as the program itself does, and that those who
/// made them wait are known.
fn callers_and_blockers_are_known(recording: &str, lock: &str, said: &serde_json::Value) {
    let of = |caller: &str, rows: &[Row]| {
        let its =
            rows.iter().filter(|row| functions(row.caller.as_ref()).iter().take(2).any(|name| name.contains(caller)));
        sum(its).1
    };
    let callers = report(recording, &["--by", "lock,caller"]);
    let (often_ns, seldom_ns) = (of("often", &callers.rows), of("seldom", &callers.rows));
    let all_ns = sum(&callers.rows).1;
    assert!((often_ns + seldom_ns) * 100 > all_ns * 95, "waits without their caller\n{}", callers.shown);
    // A lock that any thread may take at any time lets most of its waiters wait where each began: which site that is, is luck.
    let known_ns = said["seldom_wait_ns"].as_u64().unwrap();
    assert!(is_near(seldom_ns, known_ns, all_ns), "{seldom_ns} in seldom(), but {said}\n{}", callers.shown);
    for row in &callers.rows {
        assert_eq!((row.happened.as_str(), row.lock()), ("wait", lock), "{}", callers.shown);
        assert_eq!(row.kind.as_deref(), Some("mutex"), "{}", callers.shown);
    }
    let blockers = report(recording, &["--by", "lock,blocker"]);
    let is_known = |row: &&Row| {
        let stack = functions(row.blocker.as_ref());
        row.blocker_source.as_deref() == Some("releaser")
            && stack.iter().take(2).any(|name| name.contains("often") || name.contains("seldom"))
    };
    let known_ns = sum(blockers.rows.iter().filter(is_known)).1;
    assert!(known_ns * 100 > all_ns * 80, "too many waits without their blocker\n{}", blockers.shown);
}

const LONG_HOLDS: [&str; 6] = ["--wait", "--sleep", "--hold-ns", "3000000", "--rounds", "50"];

#[test]
fn a_running_programs_waits_are_metered_with_callers_and_blockers() {
    let Some(_machine) = machine("locks of a running program") else { return };
    let folder = Folder::new();
    let program = build(&folder, "two-locks", &[]);
    let (said, recording) = meter(&folder, &program, &LONG_HOLDS);
    let locks = report(&recording, &["--lock", "hot_lock"]);
    assert_near(sum(&locks.rows).1, &said, &locks.shown);
    callers_and_blockers_are_known(&recording, "two-locks:hot_lock", &said);
    // The main thread waits for the others, which is no wait for a lock.
    assert!(!report(&recording, &["--kind", "join"]).rows.is_empty());
}

#[test]
fn top_shows_the_locks_of_a_process_itself() {
    let Some(_machine) = machine("top of a running program") else { return };
    let folder = Folder::new();
    let program = Program::start(&build(&folder, "two-locks", &[]), &LONG_HOLDS);
    let mut top = lockmeter(["top", "-p", &program.pid(), "--interval", "200ms"]);
    let mut top = top.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    // Its first table says that it has begun.
    let mut tables = top.stdout.take().unwrap();
    let mut first = [0; 64];
    tables.read_exact(&mut first).unwrap();
    program.work();
    let mut said = String::new();
    tables.read_to_string(&mut said).unwrap();
    assert!(wait(&mut top, "top").success());
    assert!(said.contains("two-locks:hot_lock"), "{said}");
}

/// The first bucket of a histogram in which every wait is at least 50 µs long.
const LONG_WAIT_NS: u64 = 1 << 16;

/// Fewer waits are nothing to compare.
const ENOUGH_WAITS: u64 = 100;

/// A mean of the short holds above this, one and a half times what it is meant to be, shows that they hardly had a CPU.
const LONGEST_MEAN_NS: u64 = 281_250;

/// How many waits were long, and their sum.
fn long_waits(rows: &[Row]) -> (u64, u64) {
    let buckets = rows.iter().flat_map(|row| &row.histogram);
    let long = buckets.filter(|(from_ns, ..)| *from_ns >= LONG_WAIT_NS);
    long.fold((0, 0), |(count, ns), (_, more, more_ns)| (count + more, ns + more_ns))
}

#[test]
fn inside_and_outside_see_the_same_long_waits() {
    let Some(_machine) = machine("preload against attach") else { return };
    let folder = Folder::new();
    let program = build(&folder, "two-locks", &[]);
    // Held while asleep, and on a CPU for so short that waits of 50 µs are among the short ones.
    let short_holds = ["--wait", "--hold-ns", "150000", "--rounds", "400"];
    for (arguments, needs_cpus) in [(&LONG_HOLDS[..], false), (&short_holds, true)] {
        let (said, inside, outside) = both_views(&folder, &program, arguments);
        let shown = format!("{arguments:?}\ninside:\n{}\noutside:\n{}", inside.shown, outside.shown);
        let ((inside_count, inside_ns), (outside_count, outside_ns)) =
            (long_waits(&inside.rows), long_waits(&outside.rows));
        // From outside a wait has ended when its thread leaves the kernel, from inside when it has its CPU back.
        let mean_ns = said["hold_ns"].as_u64().unwrap() / said["acquisitions"].as_u64().unwrap();
        if needs_cpus && (inside_count < ENOUGH_WAITS || mean_ns > LONGEST_MEAN_NS) {
            return too_busy("inside and outside", &format!("{inside_count} waits for holds of {mean_ns} ns"));
        }
        assert!(
            inside_count >= ENOUGH_WAITS && inside_ns >= ENOUGH_WAITS * LONG_WAIT_NS,
            "too few to compare: {shown}"
        );
        assert!(is_near(outside_ns, inside_ns, inside_ns), "{inside_ns} ns inside, {outside_ns} outside: {shown}");
        // One that finds the lock taken again when it wakes sleeps again, which is another wait from outside.
        let are_all_seen = outside_count * 100 >= inside_count * (100 - TOLERANCE_PERCENT);
        assert!(are_all_seen, "{inside_count} waits inside, {outside_count} outside: {shown}");
    }
}

/// What a program measures itself, and what a preloaded library and `-p` report of the same run's hot lock.
fn both_views(folder: &Folder, program: &Path, arguments: &[&str]) -> (serde_json::Value, Report, Report) {
    let (inside, outside) = (folder.file("inside"), folder.file("outside"));
    let mut command = lockmeter(["record", "--user", "-o", &inside]);
    command.env("LOCKMETER_PRELOAD", preload_library()).arg("--").arg(program).args(arguments).stdin(Stdio::piped());
    let mut recorder = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut pid = None;
    until("the command runs", || {
        pid = child_running(recorder.id(), program);
        pid.is_some()
    });
    let mut command = lockmeter(["record", "--user", "-p", &pid.unwrap().to_string(), "-o", &outside]);
    command.current_dir(folder.path());
    let watcher = Recorder::spawn(command, outside);
    drop(recorder.stdin.take());
    let mut said = String::new();
    recorder.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(wait(&mut recorder, "the recorder").success());
    let said = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let outside = watcher.wait().recording();
    (said, report(&inside, &["--lock", "hot_lock"]), report(&outside, &["--lock", "hot_lock"]))
}

/// Regression: four waits of 0.2 s were 160 of 5 ms, without a blocker.
#[test]
fn a_wait_that_signals_interrupt_is_one() {
    let Some(_machine) = machine("waits that signals interrupt") else { return };
    let folder = Folder::new();
    let program = build(&folder, "interrupted-waits", &[]);
    for arguments in [&[][..], &["without-restart"]] {
        let (said, recording) = meter(&folder, &program, arguments);
        assert!(said["handled"].as_u64().unwrap() > 40, "{said}");
        let of_lock = report(&recording, &["--by", "lock,blocker"]);
        let rows: Vec<&Row> = of_lock.rows.iter().filter(|row| row.lock().ends_with(":kept_lock")).collect();
        let (count, total_ns) = sum(rows.iter().copied());
        assert_near(total_ns, &said, &of_lock.shown);
        // A release while the waiter handles a signal wakes nobody: that wait has no blocker, and one that begins soon after goes on. On a
        // busy machine a handler may take so long that the wait ends.
        assert!((3..=12).contains(&count), "{count} waits\n{}", of_lock.shown);
        let is_keeper = |row: &&&Row| functions(row.blocker.as_ref()).iter().any(|name| name.contains("keeper"));
        let (_, by_keeper_ns) = sum(rows.iter().filter(is_keeper).copied());
        assert!(by_keeper_ns * 2 > total_ns, "{}", of_lock.shown);
    }
}

/// The child of a process that runs this program already.
fn child_running(parent: u32, program: &Path) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let mut children = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    children.find(|pid: &u32| std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program))
}

#[test]
fn idle_threads_are_not_in_the_table_of_locks() {
    let Some(_machine) = machine("idle threads") else { return };
    let folder = Folder::new();
    let program = build(&folder, "pipeline", &[]);
    let (said, recording) = meter(&folder, &program, &["--wait", "--rounds", "200", "--pause-ns", "3000000"]);
    let conditions = report(&recording, &["--kind", "condvar"]);
    let idle_ns = sum(&conditions.rows).1;
    assert_near(idle_ns, &said, &conditions.shown);
    for row in &conditions.rows {
        let is_condition = row.lock().starts_with("pipeline:queue_filled");
        assert!(row.happened == "idle" && is_condition, "{}", conditions.shown);
    }
    let locks = report(&recording, &[]);
    assert!(locks.rows.iter().all(|row| row.happened == "wait"), "{}", locks.shown);
    assert!(sum(&locks.rows).1 < idle_ns / 4, "{}", locks.shown);
}

#[test]
fn a_static_program_is_metered_from_outside() {
    let Some(_machine) = machine("static program") else { return };
    let folder = Folder::new();
    let program = build(&folder, "two-locks", &["-static"]);
    let recording = folder.file("recording");
    let mut command = lockmeter(["record", "--user", "-o", &recording, "--"]);
    command.arg(program).args(LONG_HOLDS);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("linked statically"), "{}", text(&output.stderr));
    let said = serde_json::from_slice(&output.stdout).unwrap();
    let locks = report(&recording, &["--lock", "hot_lock"]);
    assert_near(sum(&locks.rows).1, &said, &locks.shown);
    callers_and_blockers_are_known(&recording, "two-locks:hot_lock", &said);
}

/// A folder that every user can read.
fn open_folder() -> tempfile::TempDir {
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    tempfile::Builder::new().permissions(everybody).tempdir().unwrap()
}

/// Regression: these drop `LD_PRELOAD`, or start a user who cannot open the recording's memory, so their programs were not metered.
#[test]
fn a_program_that_is_run_as_another_user_is_metered_from_outside() {
    let Some(_machine) = machine("programs run as another user") else { return };
    let folder = Folder::new();
    let open = open_folder();
    let program = open.path().join("two-locks");
    copy_program(build(&folder, "two-locks", &[]), &program);
    let program = program.to_str().unwrap();
    let line = format!("{program} {}", LONG_HOLDS.join(" "));
    let direct = [&[program][..], &LONG_HOLDS].concat();
    let ways = [
        [&["setpriv", "--reuid=65534", "--clear-groups"][..], &direct].concat(),
        [&["runuser", "-u", "nobody", "--"][..], &direct].concat(),
        vec!["su", "nobody", "-s", "/bin/sh", "-c", &line],
        vec!["su", "-", "nobody", "-s", "/bin/sh", "-c", &line],
        [&["sudo", "-n", "-u", "nobody"][..], &direct].concat(),
    ];
    for way in ways {
        let name = way[0];
        let recording = folder.file("recording");
        let mut command = lockmeter(["record", "--user", "-o", &recording, "--"]);
        command.args(&way).env("LOCKMETER_PRELOAD", preload_library());
        let output = run(command);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "{way:?}: {errors}");
        assert!(errors.contains(&format!("{name} runs its program as another user")), "{way:?}: {errors}");
        let said = serde_json::from_slice(&output.stdout).unwrap();
        let locks = report(&recording, &["--lock", "hot_lock"]);
        assert_near(sum(&locks.rows).1, &said, &format!("{way:?}: {}", locks.shown));
    }
}

const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_NET_RAW: u32 = 13;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_SYSLOG: u32 = 34;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// As `setcap CAPABILITIES+ep`.
fn give_capabilities(program: &Path, capabilities: &[u32]) {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    let bits = capabilities.iter().fold(0_u64, |bits, capability| bits | 1 << capability);
    // Permitted and inheritable, the lower halves first.
    let words = [REVISION_2_EFFECTIVE, bits as u32, 0, (bits >> 32) as u32, 0];
    let bytes: Vec<u8> = words.into_iter().flat_map(u32::to_le_bytes).collect();
    rustix::fs::setxattr(program, "security.capability", &bytes, rustix::fs::XattrFlags::empty()).unwrap();
}

/// The loader of a program that gets capabilities of its file ignores `LD_PRELOAD`, unless root runs it.
#[test]
fn a_program_with_capabilities_of_its_file_is_metered_from_outside_unless_root_runs_it() {
    let Some(_machine) = machine("a program with capabilities") else { return };
    let folder = Folder::new();
    let open = open_folder();
    let place = |from: &Path| {
        let to = open.path().join(from.file_name().unwrap());
        copy_program(from, &to);
        to
    };
    let program = place(&build(&folder, "two-locks", &[]));
    let (binary, library) = (place(Path::new(env!("CARGO_BIN_EXE_lockmeter"))), place(preload_library()));
    give_capabilities(&program, &[CAP_NET_RAW]);
    // The first three to meter from outside, the others to read what a program maps that others may not look into.
    let rights = [CAP_BPF, CAP_PERFMON, CAP_SYSLOG, CAP_SYS_PTRACE, CAP_DAC_READ_SEARCH];
    give_capabilities(&binary, &rights);
    let home = open.path().join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(65534), None).unwrap();
    let recording = home.join("recording");
    let recording = recording.to_str().unwrap();
    for user in ["65534", "0"] {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", user, "--clear-groups", "--"]);
        command.arg(&binary).args(["record", "--user", "-o", recording, "--"]).arg(&program).args(LONG_HOLDS);
        command.env("LOCKMETER_PRELOAD", &library).current_dir(&home);
        let output = run(command);
        let errors = text(&output.stderr);
        assert!(output.status.success(), "as {user}: {errors}");
        let is_outside = errors.contains("privileges of its own") && errors.contains("from outside");
        assert_eq!(is_outside, user != "0", "as {user}: {errors}");
        let said = serde_json::from_slice(&output.stdout).unwrap();
        let locks = report(recording, &["--lock", "hot_lock"]);
        assert_near(sum(&locks.rows).1, &said, &format!("as {user}: {}", locks.shown));
        std::fs::remove_file(recording).unwrap();
    }
}

#[test]
fn locks_of_rusts_standard_library_are_metered() {
    const TEST: &str = "Rust's std::sync::Mutex";
    let Some(_machine) = machine(TEST) else { return };
    let folder = Folder::new();
    let program = folder.path().join("std-mutex");
    let mut compiler = Command::new("rustc");
    compiler.args(["--edition", "2024", "-O", "-g", "-o"]).arg(&program);
    compiler.arg(workload_sources().join("user/std-mutex.rs"));
    if Command::new("rustc").arg("--version").output().is_err() {
        return skip(TEST, "no rustc");
    }
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let (said, recording) = meter(&folder, &program, &[]);
    let locks = report(&recording, &["--kind", "mutex"]);
    assert_near(sum(&locks.rows).1, &said, &locks.shown);
    callers_and_blockers_are_known(&recording, "std-mutex:std_mutex::HOT", &said);
    // A preloaded library would see none of it.
    let recording = folder.file("command");
    let record = |flags: &[&str]| {
        let mut command = lockmeter(["record", "--user", "-o", &recording]);
        command.args(flags).arg("--").arg(&program).env("LOCKMETER_PRELOAD", preload_library());
        let output = run(command);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let how = text(&output.stderr).lines().find(|line| line.contains("the locks of Rust")).map(str::to_owned);
        (output, how.expect("how Rust's locks are metered is said"))
    };
    let (output, how) = record(&[]);
    assert!(how.ends_with("from there"), "{how}");
    let locks = report(&recording, &["--kind", "mutex"]);
    assert_near(sum(&locks.rows).1, &serde_json::from_slice(&output.stdout).unwrap(), &locks.shown);
    // Where a thread is sampled spinning, no register has the lock's address.
    let is_known = |lock: &str| {
        lock == "std-mutex:std_mutex::HOT" || lock.starts_with("unknown address, first seen at std_mutex::")
    };
    assert!(locks.rows.iter().all(|row| is_known(row.lock())), "{}", locks.shown);
    let (_, how) = record(&["--hold"]);
    assert!(how.contains("only locks of its C libraries"), "{how}");
}

/// Its `main` ends its own thread, the others fight for a lock once standard input ends.
const WITHOUT_ITS_FIRST_THREAD: &str = "
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin;
static void *take(void *first)
{
	char byte;
	while (first && read(0, &byte, 1) > 0)
		;
	pthread_barrier_wait(&begin);
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&left_lock);
		usleep(2000);
		pthread_mutex_unlock(&left_lock);
	}
	return NULL;
}
int main(void)
{
	pthread_t thread;
	pthread_barrier_init(&begin, NULL, 2);
	pthread_create(&thread, NULL, take, &begin);
	pthread_create(&thread, NULL, take, NULL);
	pthread_exit(NULL);
}
";

/// Regression: nothing was named of a process whose first thread had ended, and it was said to have ended itself.
#[test]
fn a_process_without_its_first_thread_is_metered() {
    let Some(_machine) = machine("a process without its first thread") else { return };
    let folder = Folder::new();
    let (source, program) = (folder.path().join("left.c"), folder.path().join("left"));
    std::fs::write(&source, WITHOUT_ITS_FIRST_THREAD).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(&source);
    let built = run(compiler);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let mut program = Program::start(&program, &[]);
    let first = format!("/proc/{}/exe", program.pid());
    until("the first thread has ended", || std::fs::read_link(&first).is_err());
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &program.pid()]);
    drop(program.0.stdin.take());
    let recording = recorder.wait().recording();
    assert!(wait(&mut program.0, "the program").success());
    let locks = report(&recording, &["--kind", "mutex"]);
    assert!(sum(&locks.rows).0 > 0, "{}", locks.shown);
    assert!(locks.rows.iter().all(|row| row.lock() == "left:left_lock"), "{}", locks.shown);
}

/// Four threads that do nothing but take a lock and hold it for a millisecond: three of them wait, always.
const FOUR_TAKE_TURNS: &str = r"
import threading, time
lock = threading.Lock()
def work():
    while True:
        with lock:
            time.sleep(0.001)
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
print('they work', flush=True)
time.sleep(600)
";

/// Regression: the time that it took to attach counted as metered, so that of seven threads that waited 2.7 were seen in half a second.
#[test]
fn the_time_to_attach_is_not_metered() {
    let Some(_machine) = machine("the time to attach") else { return };
    let folder = Folder::new();
    let mut python = Command::new("python3");
    python.args(["-c", FOUR_TAKE_TURNS]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut program = python.spawn().unwrap();
    let mut said = [0; 10];
    program.stdout.take().unwrap().read_exact(&mut said).unwrap();
    let pid = program.id().to_string();
    let recording = Recorder::start_all(&folder, "recording", &["-p", &pid, "-d", "500ms"]).wait().recording();
    program.kill().unwrap();
    program.wait().unwrap();
    let locks = report(&recording, &["--by", "lock"]);
    let of_python = locks.rows.iter().filter(|row| row.lock().ends_with("by Python code"));
    let waiting = sum(of_python).1 as f64 / locks.duration_ns as f64;
    // A thread that is woken waits for a CPU, too; what still waits at the end is not counted.
    assert!((2.4..3.6).contains(&waiting), "three wait; seen: {waiting:.2}\n{}", locks.shown);
}

#[test]
fn what_has_no_locks_of_its_own_is_refused() {
    let Some(_machine) = machine("processes without locks") else { return };
    // The kernel's mother of threads.
    let kernel_thread = run(lockmeter(["record", "--user", "-p", "2", "-d", "1s", "-o", "/dev/null"]));
    let said = text(&kernel_thread.stderr);
    assert_eq!(kernel_thread.status.code(), Some(NO_TARGET), "{said}");
    assert!(said.contains("thread of the kernel") && said.lines().count() == 1, "{said}");
    // Its waits for the kernel's locks can be metered all the same.
    let folder = Folder::new();
    let ended: Ended = Recorder::start_all(&folder, "recording", &["-p", "2", "-d", "100ms"]).wait();
    assert!(ended.stderr.contains("metering kernel locks only"), "{}", ended.stderr);
    report(&ended.recording(), &[]);
    let everything = run(lockmeter(["record", "--user", "-a", "-d", "1s", "-o", "/dev/null"]));
    let said = text(&everything.stderr);
    assert!(everything.status.success() && said.contains("metering user locks of whole machine"), "{said}");
}

/// Makes sure that `--quiet` says nothing of how things are metered.
#[test]
fn a_quiet_recorder_does_not_say_how_a_static_program_is_metered() {
    let Some(_machine) = machine("a_quiet_recorder_does_not_say_how_a_static_program_is_metered") else { return };
    let folder = Folder::new();
    let program = build(&folder, "two-locks", &["-static"]);
    let recording = folder.file("recording");
    let said = |flags: &[&str]| {
        let mut record = lockmeter(["record", "--user", "-o", &recording]);
        let ended = run({
            record.args(flags).arg("--").arg(&program).args(["--rounds", "5"]);
            record
        });
        assert!(ended.status.success(), "{ended:?}");
        text(&ended.stderr)
    };
    assert!(said(&[]).contains("from outside"), "nothing that --quiet could leave out");
    assert_eq!(said(&["--quiet"]), "");
}
