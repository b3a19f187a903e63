//! Waits of goroutines, which put no thread to sleep.

mod support;

use std::io::{BufRead, BufReader, Write};
use std::process::Command;

use serde_json::Value;
use support::recorder::Recorder;
use support::waiting::Waiting;
use support::{Folder, json, lockmeter, machine, run, skip, text};

/// A program made of a source of Go's with these flags; `None` where Go is not installed.
fn go_program(test: &str, folder: &Folder, source: &str, flags: &[&str]) -> Option<String> {
    let program = folder.file("program");
    let source = format!("{}/../../{source}", env!("CARGO_MANIFEST_DIR"));
    let mut compiler = Command::new("go");
    compiler.arg("build").args(flags).args(["-o", &program, &source]).current_dir(folder.path());
    match compiler.output() {
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stderr)),
        Err(error) => {
            skip(test, &format!("Go is not installed ({error})"));
            return None;
        }
    }
    Some(program)
}

/// What a lock's row says: for how long goroutines waited, and how sure that is.
fn waited(report: &Value, fits: impl Fn(&Value) -> bool) -> (f64, f64) {
    let rows = report["rows"].as_array().unwrap().iter().filter(|row| row["happened"] == "wait" && fits(row));
    rows.fold((0.0, 0.0), |(sum, error), row| {
        (sum + row["total_ns"].as_f64().unwrap(), error + row["sleep_error_ns"].as_f64().unwrap_or(0.0))
    })
}

/// Whether an estimate is as near the truth as it says, or nearly: goroutines' own clocks go on until they run again.
fn assert_near((estimate, error): (f64, f64), truth: f64, what: &str) {
    let allowed = 1.5 * error + 0.15 * truth;
    assert!((estimate - truth).abs() <= allowed, "{what}: {estimate} ± {error}, and in truth {truth}");
}

#[test]
fn goroutines_wait_for_the_lock_that_they_say_for_as_long_as_they_say() {
    let Some(_machine) = machine("locks of goroutines") else { return };
    let folder = Folder::new();
    let Some(program) = go_program("locks of goroutines", &folder, "workloads/user/goroutines.go", &[]) else { return };
    let recording = folder.file("recording");
    let said = run(lockmeter(["record", "-o", &recording, "--", &program, "4s"]));
    let truth: Value = serde_json::from_slice(&said.stdout).unwrap();
    let report = json(lockmeter(["report", "--format", "json", &recording]));
    let is_row = |lock: &'static str, mode: &'static str| {
        move |row: &Value| row["lock"].as_str().is_some_and(|name| name.contains(lock)) && row["mode"] == mode
    };
    let near = |lock, mode, key: &str| {
        assert_near(waited(&report, is_row(lock, mode)), truth[key].as_f64().unwrap(), key);
    };
    near("program:main.ledger", "exclusive", "ledger_ns");
    near("heap, first seen at main.deposit", "exclusive", "heap_ns");
    near("program:main.table", "read", "readers_ns");
    near("program:main.table", "write", "writers_ns");
    // Five wait for a channel, and one for the others' end: for no lock.
    let all: f64 = truth.as_object().unwrap().values().map(|ns| ns.as_f64().unwrap()).sum();
    let of_goroutines = waited(&report, |row| !row["sleep_looks"].is_null());
    assert_near(of_goroutines, all, "all");
    let mean = report["head"]["goroutines"].as_f64().unwrap();
    let duration_ns = report["duration_ns"].as_f64().unwrap();
    assert!((mean - of_goroutines.0 / duration_ns).abs() < 0.01, "{mean}: {:#}", report["head"]);
    assert!(text(&run(lockmeter(["report", &recording])).stdout).contains("goroutines"));
}

/// Regression: a stripped program had neither functions nor goroutines, and distributions strip theirs.
#[test]
fn a_stripped_program_of_gos_is_looked_at_and_has_names() {
    let test = "goroutines of a stripped program";
    let Some(_machine) = machine(test) else { return };
    let folder = Folder::new();
    let flags = ["-ldflags=-s -w"];
    let Some(program) = go_program(test, &folder, "workloads/user/goroutines.go", &flags) else { return };
    let recording = folder.file("recording");
    let said = run(lockmeter(["record", "-o", &recording, "--", &program, "3s"]));
    let truth: Value = serde_json::from_slice(&said.stdout).unwrap();
    let report = json(lockmeter(["report", "--by", "lock,caller", "--format", "json", &recording]));
    let of = |caller: &'static str| move |row: &Value| row["caller"][0] == caller && !row["sleep_looks"].is_null();
    for (caller, key) in [("main.post", "ledger_ns"), ("main.lookUp", "readers_ns"), ("main.change", "writers_ns")] {
        assert_near(waited(&report, of(caller)), truth[key].as_f64().unwrap(), key);
    }
    assert!(report["threads"]["goroutine_looks"].as_u64() > Some(10), "{:#}", report["threads"]["goroutine_looks"]);
}

/// A program that answers each line with the time, the work done and the time that goroutines waited, by Go's own metric.
struct HotMutex(Waiting);

impl HotMutex {
    /// The time, and for how long goroutines have waited, both in nanoseconds.
    fn ask(&mut self) -> [f64; 2] {
        let program = &mut self.0.0;
        program.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut said = String::new();
        // Nothing is read ahead: it says a line for each that it is given.
        BufReader::new(program.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        let numbers: Vec<f64> = said.split_whitespace().map(|number| number.parse().unwrap()).collect();
        [numbers[0], numbers[2]]
    }
}

#[test]
fn goroutines_of_a_running_program_are_looked_at() {
    let Some(_machine) = machine("goroutines") else { return };
    let folder = Folder::new();
    let source = "bench/real-programs/programs/hot_mutex.go";
    let Some(program) = go_program("goroutines", &folder, source, &[]) else { return };
    let mut program = HotMutex(Waiting::start(Command::new(program)));
    let pid = program.0.pid();
    let recorder = Recorder::start_all(&folder, "recording", &["-p", &pid]);
    let before = program.ask();
    std::thread::sleep(std::time::Duration::from_secs(3));
    let after = program.ask();
    let recording = recorder.stop().recording();
    let report = json(lockmeter(["report", "--by", "lock,caller", "--format", "json", &recording]));
    let row = report["rows"].as_array().unwrap().iter().find(|row| !row["sleep_looks"].is_null()).unwrap();
    assert_eq!((&row["lock"], &row["kind"]), (&"program:main.hotMutex".into(), &"mutex".into()));
    assert_eq!(row["caller"][0], "main.workUnderLock", "{row:#}");
    let per_second = |(ns, error): (f64, f64), duration_ns: f64| (ns / duration_ns, error / duration_ns);
    let estimate = waited(&report, |row| row["lock"] == "program:main.hotMutex");
    let estimate = per_second(estimate, report["duration_ns"].as_f64().unwrap());
    // The metric has the waits that ended meanwhile, and eight goroutines share two CPUs or more. It also has the time for which one that was
    // given the lock has no CPU, which on a busy machine is half of it; that is no wait for the lock.
    let truth = (after[1] - before[1]) / (after[0] - before[0]);
    let bounds = (0.4 * truth - 2.0 * estimate.1)..=(1.25 * truth + 2.0 * estimate.1);
    assert!(bounds.contains(&estimate.0), "{estimate:?}, and in truth {truth}");
    let said = text(&run(lockmeter(["report", &recording])).stdout);
    assert!(said.starts_with("Waiting for locks") && !said.contains("are not seen"), "{said}");
    let idle = |sleep: &&Value| {
        let stack = sleep["stack"].as_array().unwrap();
        stack.iter().any(|function| function == "runtime.findRunnable" || function == "runtime.stopm")
    };
    let sleeps = report["threads"]["sleeps"].as_array().unwrap().iter().filter(|sleep| sleep["state"] == "condition");
    let without_work: Vec<&Value> = sleeps.filter(idle).collect();
    assert!(!without_work.is_empty() && without_work.iter().all(|sleep| sleep["at_rest"] == true), "{without_work:#?}");
}
