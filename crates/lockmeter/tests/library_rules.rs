//! Shipped rules on the libraries that they are about: programs of `workloads/libraries` contend on a lock, or are idle, and the report must
//! say so.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use serde_json::Value;
use support::recorder::Recorder;
use support::report::{json_report, report_as};
use support::{Folder, Machine, child_of, lockmeter, machine, run, skip, text, until, workload_sources};

/// How long is recorded: long enough that readings ten times a second say what each thread waits for.
const DURATION: &str = "600ms";
const DURATION_NS: u64 = 600_000_000;
const DURATION_OF_STARTED: Duration = Duration::from_nanos(DURATION_NS);

/// What a scene must show.
struct Expected {
    scene: &'static str,
    /// For which sort of lock, and in which function; none: an idle scene.
    locks: &'static [(&'static str, &'static str, &'static str)],
}

/// Threads are idle.
const fn idle(scene: &'static str) -> Expected {
    Expected { scene, locks: &[] }
}

/// Threads wait for locks of these kinds and modes in these functions.
const fn contends(scene: &'static str, locks: &'static [(&'static str, &'static str, &'static str)]) -> Expected {
    Expected { scene, locks }
}

/// A scene that plays until it is dropped.
struct Scene {
    program: Child,
    input: Option<ChildStdin>,
}

impl Scene {
    fn start(mut command: Command) -> Self {
        let mut program = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let input = program.stdin.take();
        until("the scene has begun", || has_begun(program.id()) || program.try_wait().unwrap().is_some());
        Self { program, input }
    }
}

/// Every scene has several threads. An interpreter takes its time on a busy machine.
fn has_begun(pid: u32) -> bool {
    std::fs::read_dir(format!("/proc/{pid}/task")).is_ok_and(|threads| threads.count() > 1)
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn ns(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn program(folder: &Folder, library: &str, flags: &[&str]) -> PathBuf {
    let source = workload_sources().join("libraries").join(library).with_extension("cc");
    let program = folder.path().join(library);
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-pthread", "-fPIC", "-o"]).arg(&program).arg(source).args(flags);
    let output = run(compiler);
    assert!(output.status.success(), "{library}:\n{}", text(&output.stderr));
    program
}

/// What `pkg-config` says of a library; `None` if it is not installed.
fn package(name: &str) -> Option<Vec<String>> {
    let output = Command::new("pkg-config").args(["--cflags", "--libs", name]).output().ok()?;
    let flags = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| flags.split_whitespace().map(str::to_owned).collect())
}

/// Plays the scenes, and fails unless the report of each says what it must. All are played at once: threads that sleep disturb nobody.
fn plays(folder: &Folder, command: impl Fn(&str) -> Command, scenes: &[Expected]) {
    let playing: Vec<Scene> = scenes.iter().map(|expected| Scene::start(command(expected.scene))).collect();
    let start = |(scene, expected): (&Scene, &Expected)| {
        let pid = scene.program.id().to_string();
        Recorder::start_all(folder, expected.scene, &["--user", "-p", &pid, "-d", DURATION])
    };
    let recorders: Vec<Recorder> = playing.iter().zip(scenes).map(start).collect();
    for (recorder, Expected { scene, locks }) in recorders.into_iter().zip(scenes) {
        judge(scene, locks, &recorder.wait().recording());
    }
}

/// The same of one that lockmeter starts.
fn plays_started(folder: &Folder, program: &Path, Expected { scene, locks }: &Expected) -> String {
    let mut command = Command::new(program);
    command.arg(scene);
    let file = started(folder, &command, DURATION_OF_STARTED);
    judge(scene, locks, &file);
    file
}

/// A recording of a scene that lockmeter starts.
fn started(folder: &Folder, scene: &Command, duration: Duration) -> String {
    let file = folder.file("started");
    let mut command = lockmeter(["record", "--user", "-o", &file, "--"]);
    let (input, end_of_input) = std::io::pipe().unwrap();
    command.arg(scene.get_program()).args(scene.get_args()).stdin(input);
    let recorder = Recorder::spawn(command, file);
    until("the scene has begun", || child_of(recorder.pid()).is_some_and(has_begun));
    std::thread::sleep(duration);
    drop(end_of_input);
    recorder.wait().recording()
}

/// The report of a scene that plays on.
fn report_of(folder: &Folder, scene: &str, command: Command) -> Value {
    let playing = Scene::start(command);
    let pid = playing.program.id().to_string();
    let recorder = Recorder::start_all(folder, scene, &["--user", "-p", &pid, "-d", DURATION]);
    json_report(&recorder.wait().recording(), &[])
}

fn judge(scene: &str, locks: &[(&str, &str, &str)], recording: &str) {
    let report = json_report(recording, &["--by", "lock,caller"]);
    let shown = || report_as(recording, "table", &["--by", "lock,caller"]);
    let rows: Vec<&Value> = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait").collect();
    let calls = |row: &Value, function: &str| row["caller"][0].as_str().is_some_and(|caller| caller.contains(function));
    for (function, kind, mode) in locks {
        let sum = |of_it: &dyn Fn(&Value) -> bool| -> u64 {
            rows.iter().filter(|row| calls(row, function) && of_it(row)).map(|row| ns(&row["total_ns"])).sum()
        };
        let (right_ns, all_ns) = (sum(&|row| row["kind"] == *kind && row["mode"] == *mode), sum(&|_| true));
        let said = || format!("{scene}: {right_ns} ns of {all_ns} in {function} for a {kind} ({mode})\n{}", shown());
        assert!(right_ns > 0 && right_ns >= all_ns / 10 * 9, "{}", said());
    }
    if locks.is_empty() {
        let unfinished = &report["lost"]["unfinished"];
        assert!(unfinished.as_u64().unwrap_or(0) == 0, "{scene}: {unfinished} waits at the end\n{}", shown());
    }
    let others = rows.iter().filter(|row| !locks.iter().any(|(function, ..)| calls(row, function)));
    let false_ns: u64 = others.map(|row| ns(&row["total_ns"])).sum();
    assert!(false_ns < DURATION_NS / 10, "{scene}: {false_ns} ns in other functions\n{}", shown());
    // The threads' time says the same, and leaves nothing untold.
    for sleep in report["threads"]["sleeps"].as_array().unwrap() {
        let stack = sleep["stack"].as_array().unwrap();
        let in_it = |function: &str| stack.iter().any(|name| name.as_str().is_some_and(|name| name.contains(function)));
        // Looks come ten times a second: by chance none of them meets sleeps that are short, together.
        let least_ns = if sleep["looks"] == 0 { DURATION_NS / 2 } else { DURATION_NS / 10 };
        let is_long = ns(&sleep["total_ns"]) > least_ns;
        let is_lock = sleep["state"] == "user-lock";
        let is_told = sleep["state"] != "futex" && (!is_lock || locks.iter().any(|(function, ..)| in_it(function)));
        assert!(is_told || !is_long, "{scene}: {sleep:#}");
    }
}

/// The place of the machine, and a folder for programs; `None` if it cannot meter here.
fn place(test: &str) -> Option<(Machine, Folder)> {
    Some((machine(test)?, Folder::new()))
}

fn plays_program(folder: &Folder, program: &Path, scenes: &[Expected]) {
    let command = |scene: &str| {
        let mut command = Command::new(program);
        command.arg(scene);
        command
    };
    plays(folder, command, scenes);
}

const MUTEX: (&str, &str, &str) = ("post_entry", "mutex", "exclusive");

#[test]
fn locks_of_abseil_are_told_from_its_conditions() {
    let Some(flags) = package("absl_synchronization") else { return skip("Abseil", "libabsl-dev is not installed") };
    let Some((_machine, folder)) = place("Abseil") else { return };
    let program = program(&folder, "absl", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    // Nothing tells readers apart where the library's functions have no names.
    let readers = contends("readers", &[("read_entries", "mutex", "exclusive"), MUTEX]);
    plays_program(&folder, &program, &[contends("mutex", &[MUTEX]), readers, idle("idle")]);
    // Who waits for long sleeps, for a thread that has the spinlock and no CPU.
    plays_program(&folder, &program, &[contends("spin", &[("count", "spin", "exclusive")])]);
    plays_started(&folder, &program, &contends("mutex", &[MUTEX]));
    // Who waits for what: four threads in functions of the mutex, and two of its condition variable.
    let recording = plays_started(&folder, &program, &idle("idle"));
    let idle = json_report(&recording, &["--by", "lock,caller", "--kind", "condvar"]);
    let waited_ns: u64 = idle["rows"].as_array().unwrap().iter().map(|row| ns(&row["total_ns"])).sum();
    assert!(waited_ns > 3 * ns(&idle["duration_ns"]), "{waited_ns} ns\n{idle:#}");
    // The library's functions have their names only in a program of which it is a part.
    let whole: Vec<&str> = flags
        .iter()
        .map(|flag| if flag == "-labsl_synchronization" { "-l:libabsl_synchronization.a" } else { flag })
        .collect();
    let program = self::program(&folder, "absl", &whole);
    let readers = contends("readers", &[("read_entries", "rwlock", "read"), MUTEX]);
    plays_program(&folder, &program, &[readers]);
}

#[test]
fn semaphores_of_the_standard_library_are_told_from_its_latches_and_barriers() {
    let Some((_machine, folder)) = place("C++'s standard library") else { return };
    let program = program(&folder, "std", &["-std=c++20"]);
    plays_program(
        &folder,
        &program,
        &[contends("semaphore", &[("take_turn", "semaphore", "exclusive")]), idle("idle")],
    );
}

/// The first thread's stack is told from the heap, from outside and from inside.
#[test]
fn a_mutex_on_the_stack_is_called_so() {
    let Some((_machine, folder)) = place("a mutex on the stack") else { return };
    let program = program(&folder, "std", &["-std=c++20"]);
    let mut command = Command::new(&program);
    command.arg("mutex on stack");
    let inside = started(&folder, &command, DURATION_OF_STARTED);
    let playing = Scene::start(command);
    let pid = playing.program.id().to_string();
    let outside = Recorder::start_all(&folder, "outside", &["--user", "-p", &pid, "-d", DURATION]).wait().recording();
    // From inside the stack of the first use may begin further out.
    for (recording, begin) in [(inside, "stack, first seen at "), (outside, "stack, first seen at post_entry(")] {
        let report = json_report(&recording, &[]);
        let lock = report["rows"][0]["lock"].as_str().unwrap();
        assert!(lock.starts_with(begin), "{report:#}");
    }
}

#[test]
fn locks_of_sqlite_are_told_by_the_functions_that_wait_for_them() {
    let Some(flags) = package("sqlite3") else { return skip("SQLite", "libsqlite3-dev is not installed") };
    let Some((_machine, folder)) = place("SQLite") else { return };
    let program = program(&folder, "sqlite", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    for (scene, state, lock) in
        [("connection", "user-lock", "SQLite connection mutex"), ("database", "file-lock", "SQLite database lock")]
    {
        let mut command = Command::new(&program);
        command.arg(scene);
        let report = report_of(&folder, scene, command);
        let sleeps = report["threads"]["sleeps"].as_array().unwrap();
        let ns = sum(sleeps, |sleep| sleep["state"] == state && sleep["lock"] == lock);
        // Threads that compute wait for a CPU, too.
        assert!(ns > DURATION_NS / 4, "{scene}: {ns} ns\n{report:#}");
        if state == "user-lock" {
            assert_eq!(report["rows"][0]["lock"], lock, "{report:#}");
        }
    }
}

#[test]
fn locks_of_tbb_are_told_from_its_queues_and_workers() {
    if !Path::new("/usr/include/oneapi/tbb/mutex.h").exists() {
        return skip("oneTBB", "libtbb-dev is not installed");
    }
    let Some((_machine, folder)) = place("oneTBB") else { return };
    let program = program(&folder, "tbb", &["-ltbb"]);
    let readers = contends("readers", &[("read_price", "rwlock", "read"), ("set_price", "rwlock", "write")]);
    plays_program(&folder, &program, &[contends("mutex", &[MUTEX]), readers, idle("idle")]);
    // What is part of its caller is seen to spin, but not to be a lock.
    spins(&folder, &program, "spin", ("count()", Some("spin")));
    spins(&folder, &program, "spin_inlined", ("count_inlined()", None));
}

/// Plays a scene whose threads spin in a function, and fails unless the report says so, and for which kind of lock.
fn spins(folder: &Folder, program: &Path, scene: &str, (function, kind): (&str, Option<&str>)) {
    let mut command = Command::new(program);
    command.arg(scene);
    let playing = Scene::start(command);
    let pid = playing.program.id().to_string();
    let recorder = Recorder::start_all(folder, scene, &["--user", "-p", &pid, "-d", "1500ms"]);
    let report = json_report(&recorder.wait().recording(), &[]);
    let spins = report["threads"]["spins"].as_array().unwrap();
    assert!(!spins.is_empty(), "{scene}: {report:#}");
    for spin in spins {
        let is_in_function = spin["stack"][0].as_str().is_some_and(|caller| caller.contains(function));
        assert!(is_in_function && spin["kind"].as_str() == kind, "{scene}: {spin:#}");
    }
    let of_locks = report["rows"].as_array().unwrap().iter().filter(|row| !row["spin_samples"].is_null()).count();
    assert_eq!(of_locks, usize::from(kind.is_some()), "{scene}: {report:#}");
}

#[test]
fn locks_of_openmp_are_told_from_its_barriers_and_teams() {
    let Some((_machine, folder)) = place("OpenMP") else { return };
    let program = program(&folder, "openmp", &["-fopenmp"]);
    let scenes = [
        contends("critical", &[("add_total", "mutex", "exclusive")]),
        contends("lock", &[MUTEX]),
        contends("nested", &[("walk_tree", "mutex", "exclusive")]),
        idle("barrier"),
        idle("idle"),
    ];
    plays_program(&folder, &program, &scenes);
    plays_started(&folder, &program, &contends("lock", &[MUTEX]));
}

#[test]
fn locks_of_glib_are_told_from_its_conditions() {
    let library = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu"]
        .map(|folder| Path::new(folder).join("libglib-2.0.so.0"))
        .into_iter()
        .find(|library| library.exists());
    let Some(library) = library else { return skip("GLib", "libglib2.0-0 is not installed") };
    let Some((_machine, folder)) = place("GLib") else { return };
    let program = program(&folder, "glib", &[library.to_str().unwrap()]);
    plays_program(&folder, &program, &[contends("mutex", &[("libglib-2.0", "mutex", "exclusive")]), idle("idle")]);
}

#[test]
fn locks_of_libuv_are_told_from_its_pool_of_threads() {
    let Some(flags) = package("libuv") else { return skip("libuv", "libuv1-dev is not installed") };
    let Some((_machine, folder)) = place("libuv") else { return };
    let program = program(&folder, "uv", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let scenes = [
        contends("mutex", &[("uv_mutex_lock", "mutex", "exclusive")]),
        contends("semaphore", &[("uv_sem_wait", "semaphore", "exclusive")]),
        idle("idle"),
    ];
    plays_program(&folder, &program, &scenes);
}

fn python(scene: &str) -> Command {
    let mut command = Command::new("/usr/bin/python3");
    command.arg(workload_sources().join("libraries/python.py")).arg(scene);
    command
}

#[test]
fn locks_of_cpython_are_told_from_its_queues_and_joins() {
    let Some((_machine, folder)) = place("CPython") else { return };
    // Debian's interpreter has no names for its inner functions.
    let semaphore = &[("python3", "semaphore", "exclusive")];
    plays(&folder, python, &[contends("lock", semaphore), contends("rlock", semaphore), idle("idle")]);
}

/// Both sleep in the same functions. Who ends a wait says which it was, and `with lock` calls otherwise than `join`.
#[test]
fn joins_of_cpython_are_no_waits_for_the_locks_beside_them() {
    let Some((_machine, folder)) = place("CPython's joins beside a lock") else { return };
    let playing = Scene::start(python("joins beside a lock"));
    let pid = playing.program.id().to_string();
    let recorder = Recorder::start_all(&folder, "joins", &["--user", "-p", &pid, "-d", "1500ms"]);
    let recording = recorder.wait().recording();
    let calls = |of: &Value, call: &str| of.as_array().unwrap().iter().any(|name| name == call);
    let waits = json_report(&recording, &["--by", "lock,caller"]);
    let waits: Vec<Value> =
        waits["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait").cloned().collect();
    let of = |call: &str| sum(&waits, |row| row["kind"] == "semaphore" && calls(&row["caller"], call));
    let (locks_ns, others_ns) = (of("_PyObject_MakeTpCall"), of("PyObject_Vectorcall"));
    assert!(others_ns * 20 < locks_ns, "{locks_ns}, {others_ns} ns: {waits:#?}");
    let joins = json_report(&recording, &["--by", "lock", "--kind", "join"]);
    assert!(sum(joins["rows"].as_array().unwrap(), |_| true) > DURATION_NS, "{joins:#}");
    let report = json_report(&recording, &[]);
    let sleeps = report["threads"]["sleeps"].as_array().unwrap();
    let of = |call: &str| sum(sleeps, |sleep| sleep["state"] == "user-lock" && calls(&sleep["stack"], call));
    let (locks_ns, others_ns) = (of("_PyObject_MakeTpCall"), of("PyObject_Vectorcall"));
    assert!(others_ns * 20 < locks_ns, "{locks_ns}, {others_ns} ns: {sleeps:#?}");
}

/// `Thread.join` waits for a semaphore that the thread has taken and posts at its end, as it would a lock.
#[test]
fn from_inside_joins_of_cpython_are_no_waits_for_locks() {
    let Some((_machine, folder)) = place("CPython's joins, from inside") else { return };
    let recording = started(&folder, &python("joins"), DURATION_OF_STARTED);
    let waits = waits_by_blocker(&recording);
    let semaphores_ns = sum(&waits, |row| row["kind"] == "semaphore");
    let joins = json_report(&recording, &["--by", "lock", "--kind", "join"]);
    let joined_ns = sum(joins["rows"].as_array().unwrap(), |_| true);
    assert!(
        joined_ns > DURATION_NS / 2 && semaphores_ns * 20 < joined_ns,
        "{joined_ns}, {semaphores_ns} ns: {waits:#?}"
    );
}

/// It is waited for in parts of 5 ms, most of which time out while some thread has it.
#[test]
fn who_has_the_interpreter_lock_meanwhile_is_known() {
    let Some((_machine, folder)) = place("CPython's interpreter lock") else { return };
    let playing = Scene::start(python("compute"));
    let pid = playing.program.id().to_string();
    let recorder = Recorder::start_all(&folder, "compute", &["--user", "-p", &pid, "-d", DURATION]);
    // A release that wakes nobody is not seen.
    holders_are_known(&waits_by_blocker(&recorder.wait().recording()), 4);
}

/// Fails unless the waits for the interpreter lock whose holder is known are this many times those whose holder is not.
fn holders_are_known(waits: &[Value], times: u64) {
    let sum = |sources: &[&str]| {
        sum(waits, |row| named(row, ":GIL") && sources.iter().any(|it| row["blocker_source"] == *it))
    };
    let (known_ns, unknown_ns) = (sum(&["releaser", "handover"]), sum(&["wakeup-not-seen", "earlier-holder"]));
    assert!(sum(&["releaser"]) > 0 && unknown_ns * times < known_ns, "{known_ns}, {unknown_ns} ns: {waits:#?}");
}

/// From inside such a part was taken for a wait for the condition's mutex, once another thread had been signalled.
#[test]
fn from_inside_waits_for_the_interpreter_lock_are_none_for_its_mutex() {
    let Some((_machine, folder)) = place("CPython's interpreter lock, from inside") else { return };
    // On a busy machine its parts are of many lengths. Of the last ones nobody knows who has it: they are a small part of a long scene.
    let scene = || started(&folder, &python("compute"), 6 * DURATION_OF_STARTED);
    let waits = waits_by_blocker(&beside_busy_loops(scene));
    let (lock_ns, mutex_ns) = (sum(&waits, |row| named(row, ":GIL")), sum(&waits, |row| named(row, ":GIL's mutex")));
    assert!(lock_ns > 0 && mutex_ns * 10 < lock_ns, "{lock_ns}, {mutex_ns} ns: {waits:#?}");
    holders_are_known(&waits, 8);
}

/// Does this while twice as many threads compute as there are CPUs.
fn beside_busy_loops<T>(work: impl FnOnce() -> T) -> T {
    struct EndOnDrop<'a>(&'a AtomicBool);
    impl Drop for EndOnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Also where the work fails.
        let _end = EndOnDrop(&is_over);
        for _ in 0..2 * std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while !is_over.load(Relaxed) {
                    std::hint::spin_loop()
                }
            });
        }
        work()
    })
}

fn waits_by_blocker(recording: &str) -> Vec<Value> {
    let mut report = json_report(recording, &["--by", "lock,blocker"]);
    let rows = std::mem::take(report["rows"].as_array_mut().unwrap());
    rows.into_iter().filter(|row| row["happened"] == "wait").collect()
}

fn named(row: &Value, end: &str) -> bool {
    row["lock"].as_str().unwrap().ends_with(end)
}

fn sum(rows: &[Value], is_it: impl Fn(&Value) -> bool) -> u64 {
    rows.iter().filter(|row| is_it(row)).map(|row| ns(&row["total_ns"])).sum()
}

#[test]
fn the_locks_of_ruby_are_told_from_its_queues_and_sleepers() {
    let ruby = Path::new("/usr/bin/ruby");
    if !ruby.exists() {
        return skip("Ruby", "ruby is not installed");
    }
    let Some((_machine, folder)) = place("Ruby") else { return };
    let command = |scene: &str| {
        let mut command = Command::new(ruby);
        command.arg(workload_sources().join("libraries/ruby.rb")).arg(scene);
        command
    };
    // Debian's library has no names for its inner functions.
    let mutex = &[("libruby", "mutex", "exclusive")];
    let locks = ["compute", "mutex", "lock", "monitor"].map(|scene| contends(scene, mutex));
    plays(&folder, command, &locks);
    plays(&folder, command, &[idle("idle")]);
    for (scene, lock) in [("mutex", "Ruby Mutex"), ("lock", "Ruby Mutex"), ("monitor", "Ruby Monitor")] {
        let report = report_of(&folder, scene, command(scene));
        let ns = sum(report["rows"].as_array().unwrap(), |row| row["happened"] == "wait" && row["lock"] == lock);
        assert!(ns > DURATION_NS, "{scene}: {ns} ns\n{report:#}");
    }
}

/// Builds what Cargo does not build for a test of another package.
fn rust_runtimes() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_lockmeter")).parent().unwrap();
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--locked", "--quiet", "--package", "rust-runtimes", "--target-dir"]);
    build.arg(folder.parent().unwrap());
    if folder.ends_with("release") {
        build.arg("--release");
    }
    let output = run(build);
    assert!(output.status.success(), "{}", text(&output.stderr));
    folder.join("rust-runtimes")
}

/// Its readers and writers meet in one function, and its threads wait on words of their own.
#[test]
fn locks_of_parking_lot_are_told_and_idle_pools_of_rayon_and_tokio_are_none() {
    let program = rust_runtimes();
    let Some((_machine, folder)) = place("Rust's runtimes") else { return };
    let readers = contends("readers", &[("read_price", "rwlock", "read"), ("set_price", "rwlock", "write")]);
    let scenes = [
        contends("mutex", &[MUTEX]),
        contends("fair", &[("play_fair", "mutex", "exclusive")]),
        readers,
        idle("idle"),
        idle("rayon"),
        idle("tokio"),
    ];
    plays_program(&folder, &program, &scenes);
    // Regression: a static variable was called "heap", and after where all threads begin.
    for (scene, user) in [("mutex", "post_entry"), ("inlined", "")] {
        let mut command = Command::new(&program);
        command.arg(scene);
        let report = report_of(&folder, scene, command);
        let name = report["rows"][0]["lock"].as_str().unwrap_or_default();
        let is_honest = name.starts_with("unknown address, first seen at ") && !name.contains("start_thread");
        assert!(is_honest && name.contains(user), "{scene}: {name}\n{report:#}");
    }
    // Workers that have something to do now and then are at rest between.
    for (scene, function) in [("rayon-sparse", "rayon_core::sleep::"), ("tokio-mutex", "multi_thread::park::")] {
        let mut command = Command::new(&program);
        command.arg(scene);
        let playing = Scene::start(command);
        let pid = playing.program.id().to_string();
        let recorder = Recorder::start_all(&folder, scene, &["--user", "-p", &pid, "-d", DURATION]);
        let report = json_report(&recorder.wait().recording(), &[]);
        let sleeps = report["threads"]["sleeps"].as_array().unwrap().iter();
        let workers: Vec<&Value> = sleeps.filter(|sleep| sleep["stack"].to_string().contains(function)).collect();
        assert!(!workers.is_empty() && workers.iter().all(|sleep| sleep["at_rest"] == true), "{scene}: {report:#}");
    }
}

/// Redis puts its threads for input and output to rest with a mutex that its main thread has.
#[test]
fn threads_of_redis_without_work_are_at_rest() {
    if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
        return skip("Redis", "redis-server is not installed");
    }
    let Some((_machine, folder)) = place("Redis") else { return };
    let socket = folder.file("redis.sock");
    let command = |_: &str| {
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--io-threads", "3", "--dir"]).arg(folder.path());
        command.args(["--unixsocket", &socket]);
        command
    };
    plays(&folder, command, &[idle("idle")]);
}

#[test]
#[ignore = "its packages are large: make test-libraries"]
fn locks_of_qt_are_told_from_its_conditions_and_pools() {
    let Some(flags) = package("Qt5Core") else { return skip("Qt", "qtbase5-dev is not installed") };
    let Some((_machine, folder)) = place("Qt") else { return };
    let program = program(&folder, "qt", &flags.iter().map(String::as_str).collect::<Vec<_>>());
    let scenes = [
        contends("mutex", &[MUTEX]),
        contends("recursive", &[("libQt5Core", "mutex", "exclusive")]),
        contends("writers", &[("set_price", "rwlock", "write")]),
        contends("readers", &[("read_price", "rwlock", "read"), ("set_price", "rwlock", "write")]),
        contends("semaphore", &[("take_turn", "semaphore", "exclusive")]),
        contends("timed", &[("take_turn_in_time", "semaphore", "exclusive")]),
        idle("idle"),
    ];
    plays_program(&folder, &program, &scenes);
    plays_started(&folder, &program, &contends("mutex", &[MUTEX]));
}

#[test]
#[ignore = "its packages are large: make test-libraries"]
fn locks_of_boost_are_told_from_its_conditions_and_pools() {
    if !Path::new("/usr/include/boost/thread/mutex.hpp").exists() {
        return skip("Boost", "libboost-thread-dev is not installed");
    }
    let Some((_machine, folder)) = place("Boost") else { return };
    let program = program(&folder, "boost", &["-lboost_thread"]);
    let scenes =
        [contends("mutex", &[MUTEX]), contends("recursive", &[("walk_tree", "mutex", "exclusive")]), idle("idle")];
    plays_program(&folder, &program, &scenes);
}

#[test]
#[ignore = "its packages are large: make test-libraries"]
fn the_write_group_of_rocksdb_is_a_lock() {
    if !Path::new("/usr/include/rocksdb/db.h").exists() {
        return skip("RocksDB", "librocksdb-dev is not installed");
    }
    let Some((_machine, folder)) = place("RocksDB") else { return };
    let source = workload_sources().join("../bench/real-programs/programs/rocksdb-writers.cc");
    let program = folder.path().join("rocksdb-writers");
    let mut compiler = Command::new("g++");
    compiler.args(["-std=c++17", "-O2", "-pthread", "-o"]).arg(&program).arg(source).arg("-lrocksdb");
    assert!(run(compiler).status.success());
    let mut command = Command::new(program);
    command.arg(folder.path().join("data"));
    let playing = Scene::start(command);
    let pid = playing.program.id().to_string();
    let recorder = Recorder::start_all(&folder, "rocksdb", &["--user", "-p", &pid, "-d", DURATION]);
    let recording = recorder.wait().recording();
    let report = json_report(&recording, &["--by", "lock,blocker"]);
    let worst = &report["rows"][0];
    assert_eq!(worst["lock"], "RocksDB write group", "{report:#}");
    let blocker = worst["blocker"][0].as_str().unwrap_or_default();
    assert!(!blocker.contains("SetState"), "the lock's own function says nothing of who has it: {blocker}");
}
