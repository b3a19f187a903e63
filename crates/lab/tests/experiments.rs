//! `overhead` and `bench`: that they measure what they say, leave nothing behind, and say what is wrong. Nothing here
//! asserts how fast anything is.

#[path = "../../lockmeter/tests/support/mod.rs"]
mod support;

use std::convert::Infallible;
use std::error::Error;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use lockmeter_kernel::contention::Scope;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{Dimension, Interval, RecordingKind, Source};
use lockmeter_recorder::target::{self, CommandOutput};
use lockmeter_recorder::{HoldOptions, LockOptions, LockSources, Recorder, Sink, StopSignals, Which, describe};
use lockmeter_render::{Exporter, Json};
use serde_json::Value;
use support::{
    Folder, PATIENCE, copy_program, json, lockmeter_lab, machine, preload_library, refused, run, say, signal, skip,
    text, until, wait, workload_path,
};

/// A folder of temporary files that must be empty in the end.
struct Temporary(Folder);

impl Temporary {
    fn new() -> Self {
        Self(Folder::new())
    }

    fn used_by(&self, mut command: Command) -> Command {
        command.env("TMPDIR", self.0.path());
        command
    }

    fn check_empty(&self) {
        let left: Vec<_> = std::fs::read_dir(self.0.path()).unwrap().flatten().map(|entry| entry.path()).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        let groups = Path::new("/sys/fs/cgroup");
        for folder in [groups.to_owned(), groups.join("unified")] {
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            // Of a process that has ended: another test may be measuring.
            let is_left = |name: &String| {
                let pid = name.strip_prefix("lockmeter-overhead-");
                pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
            };
            assert_eq!(names.filter(is_left).collect::<Vec<_>>(), [""; 0], "a control group was left behind");
        }
    }
}

fn cost<'a>(costs: &'a Value, level: &str) -> &'a Value {
    let mut all = costs["costs"].as_array().unwrap().iter();
    all.find(|cost| cost["level"] == level).unwrap_or_else(|| panic!("no cost of {level} in {costs}"))
}

#[test]
fn a_command_that_fails_is_shown_with_its_own_status_and_gives_no_ratio() {
    let (status, said) =
        refused(lockmeter_lab(["overhead", "--levels", "wait", "--", "sh", "-c", "echo the reason; exit 7"]));
    assert_eq!(status, 7);
    assert!(said.contains("the reason") && said.contains("nothing to compare"), "{said}");
}

#[test]
fn overhead_says_what_is_wrong_with_what_it_was_told() {
    let folder = Folder::new();
    let (empty, absent) = (folder.file("empty"), folder.file("absent"));
    std::fs::write(&empty, "# nothing\n\n").unwrap();
    let cases: [(&[&str], i32, &str); 9] = [
        (&["--runs", "0", "--", "true"], 2, "at least 6"),
        (&["--levels", "much", "--", "true"], 2, "off, wait, hold and naive"),
        (&["--limit", "1", "--", "true"], 2, "percentage"),
        (&["--slice", "1ms", "--attach", "1"], 2, "20ms"),
        (&[], 2, "-- COMMAND"),
        (&["--", "/no/such/command"], 127, "command not found"),
        (&["--attach", "4194304"], 5, "no process"),
        (&["--each-of", &absent], 4, "cannot read the commands"),
        (&["--each-of", &empty], 4, "holds no command"),
    ];
    for (arguments, status, words) in cases {
        let mut command = lockmeter_lab(["overhead"]);
        command.args(arguments);
        let output = run(command);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?} said: {said}");
    }
    let (status, said) = refused(lockmeter_lab(["overhead", "--clean", "exit 3", "--levels", "wait", "--", "true"]));
    assert!(status == 1 && said.contains("every run must begin alike"), "{status}: {said}");
}

#[test]
fn whole_runs_compare_every_level_and_say_when_they_are_too_few() {
    let Some(_machine) = machine("whole_runs_compare_every_level_and_say_when_they_are_too_few") else { return };
    preload_library();
    let temporary = Temporary::new();
    let work = workload_path("file-pos");
    let mut command = lockmeter_lab(["overhead", "--format", "json", "--runs", "2", "--"]);
    command.arg(work).args(["--seconds", "0.2"]);
    let output = run(temporary.used_by(command));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let costs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(said.matches("the contended part of each hold").count() <= 1, "said for each run: {said}");
    assert_eq!(costs["rounds"], 2);
    for level in ["off", "wait", "hold", "naive"] {
        let cost = cost(&costs, level);
        assert_eq!(cost["cost"]["samples"], 2);
        assert_eq!(cost["verdict"]["too-few"]["more_rounds"], 4, "{cost}");
    }
    temporary.check_empty();
}

/// A process that a process has started, by its name.
fn child_of(pid: u32, name: &str) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    let mut pids = children.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.find(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name))
}

/// Makes sure that a bare run and a metered one end alike: the command gets the signal, and what ignores it ends with the second one.
#[test]
fn a_signal_ends_a_bare_run_and_a_metered_one_with_their_command() {
    let Some(_machine) = machine("a signal ends a run") else { return };
    preload_library();
    // The first run is bare.
    for only in ["", "[ $LOCKMETER_DIR ] || exit 0; "] {
        for (command, name, signals) in [("exec sleep 600", "sleep", 1), ("trap '' TERM; sleep 600; true", "sh", 2)] {
            let mut overhead = lockmeter_lab(["overhead", "--levels", "wait", "--runs", "1", "--", "sh", "-c"]);
            overhead.arg(format!("{only}{command}")).stdout(Stdio::null()).stderr(Stdio::piped());
            let mut running = overhead.spawn().unwrap();
            let mut pid = None;
            until("the command runs", || {
                // A shell that has started its `sleep` has set its trap.
                pid = child_of(running.id(), name).filter(|pid| name == "sleep" || child_of(*pid, "sleep").is_some());
                pid.is_some()
            });
            for _ in 0..signals {
                signal(running.id(), libc::SIGTERM);
                std::thread::sleep(Duration::from_millis(200));
            }
            let status = wait(&mut running, "overhead");
            let said = text(&running.wait_with_output().unwrap().stderr);
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("interrupted before every level had run once"), "{said}");
            let command_is_there = Path::new("/proc").join(pid.unwrap().to_string()).exists();
            assert!(!command_is_there, "{only}{command} goes on");
        }
    }
}

/// Makes sure that nobody's privileges suffice for what a program's own locks cost, and that the rest is said to be missing, once.
#[test]
fn overhead_without_privileges_measures_the_commands_own_locks_and_says_what_is_missing() {
    let Some(_machine) = machine("overhead without privileges") else { return };
    let temporary = Temporary::new();
    let folder = Folder::new();
    for (path, mode) in [(folder.path(), 0o755), (temporary.0.path(), 0o777)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }
    let (binary, library) = (folder.path().join("lockmeter-lab"), folder.path().join("library.so"));
    copy_program(env!("CARGO_BIN_EXE_lockmeter-lab"), &binary);
    copy_program(preload_library(), &library);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(binary);
    command.args(["overhead", "--format", "json", "--runs", "2", "--", "sleep", "0.1"]);
    command.env("LOCKMETER_PRELOAD", library).env_remove("XDG_RUNTIME_DIR");
    let output = run(temporary.used_by(command));
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let costs: Value = serde_json::from_slice(&output.stdout).unwrap();
    for level in ["wait", "hold"] {
        assert_eq!(cost(&costs, level)["cost"]["samples"], 2, "{costs}");
    }
    let missing = costs["missing"].to_string();
    assert!(missing.contains("off") && missing.contains("naive") && missing.contains("CAP_BPF"), "{costs}");
    assert_eq!(said.matches("only the command's own locks").count(), 1, "{said}");
    temporary.check_empty();
}

#[test]
fn slices_of_one_run_compare_kernel_metering_and_leave_nothing_behind() {
    let Some(_machine) = machine("slices_of_one_run_compare_kernel_metering_and_leave_nothing_behind") else { return };
    let temporary = Temporary::new();
    // Of a load that hardly leaves the kernel the share of user time would be that of a few clock ticks.
    let counts = "i=0; while [ $i -lt 2000 ]; do i=$((i + 1)); done";
    let load = format!("end=$(($(date +%s) + 5)); while [ $(date +%s) -lt $end ]; do {counts}; done");
    let mut command = lockmeter_lab(["overhead", "--slices", "--format", "json", "--", "sh", "-c"]);
    command.arg(load);
    let output = run(temporary.used_by(command));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let costs: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(costs["rounds"].as_u64().unwrap() >= 2, "{costs}");
    assert_eq!(cost(&costs, "wait")["of"], "user-share");
    // The naive meter saw the lock that every new process takes.
    let said = text(&output.stderr);
    let timed = said.split_whitespace().zip(said.split_whitespace().skip(1)).find(|(_, next)| *next == "of");
    assert!(timed.is_some_and(|(count, _)| count.parse::<u64>().is_ok_and(|count| count > 1_000)), "{said}");
    temporary.check_empty();
}

#[test]
fn a_running_process_is_compared_by_its_calls_and_ctrl_c_shows_what_there_is() {
    /// More than there is time for: on a busy machine it is loading the programs that takes long, not a round.
    const RUNS: &str = "10000";
    let Some(_machine) = machine("a_running_process_is_compared_by_its_calls_and_ctrl_c_shows_what_there_is") else {
        return;
    };
    let load = support::Load::start("file-pos", &[]);
    let compare_for = |seconds| {
        let mut command =
            lockmeter_lab(["overhead", "--levels", "wait", "--format", "json", "--runs", RUNS, "--attach"]);
        let mut running =
            command.arg(load.pid().to_string()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        signal(running.id(), libc::SIGINT);
        wait(&mut running, "overhead --attach");
        running.wait_with_output().unwrap()
    };
    // On a machine that has other work not even the first round may be over when it is interrupted.
    let too_early = |output: &Output| {
        output.status.signal().is_some() || text(&output.stderr).contains("before every level had run")
    };
    let output = [2, 8, 60].into_iter().map(compare_for).find(|output| !too_early(output));
    let output = output.expect("no round in a minute");
    assert!(output.status.success(), "{output:?}");
    let result = text(&output.stdout);
    let costs: Value = serde_json::from_str(&result).unwrap();
    let rounds = costs["rounds"].as_u64().unwrap();
    assert!((1..RUNS.parse().unwrap()).contains(&rounds), "{rounds} rounds");
    assert_eq!(cost(&costs, "wait")["of"], "calls");
}

#[test]
fn a_target_that_does_nothing_is_given_up_with_one_sentence() {
    let Some(_machine) = machine("a_target_that_does_nothing_is_given_up_with_one_sentence") else { return };
    let mut asleep = Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = asleep.id().to_string();
    let (status, said) = refused(lockmeter_lab(["overhead", "--levels", "wait", "--slice", "20ms", "--attach", &pid]));
    asleep.kill().unwrap();
    asleep.wait().unwrap();
    assert_eq!(status, 1, "{said}");
    // Of the hundred that are due.
    assert!(
        said.contains(&format!("process {pid} did too little work to compare in 10 rounds of slices of 20ms")),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn the_kernels_breakpoints_are_timed_in_the_fields_that_perf_prints() {
    let mut command = lockmeter_lab(["bench", "breakpoint", "-b", "1", "-p", "2", "-t", "8", "-r", "4"]);
    command.args(["--only", "kernel", "--rounds", "2", "--perf", "/no/such/perf"]);
    let output = run(command);
    let said = text(&output.stdout);
    if output.status.code() == Some(3) {
        return skip("the kernel's breakpoints", text(&output.stderr).trim());
    }
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(said.contains("# Created/joined 4 threads with 1 breakpoints and 2 parallelism"), "{said}");
    let number = |unit: &str| -> f64 {
        let line =
            said.lines().find(|line| line.trim_end().ends_with(unit)).unwrap_or_else(|| panic!("no {unit}: {said}"));
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!((number(" usecs/op/cpu") / number(" usecs/op") - 2.0).abs() < 1e-3, "{said}");
    assert!(said.contains("perf is not installed"), "{said}");
}

#[test]
fn more_breakpoints_than_there_are_is_said_and_the_designs_race_all_the_same() {
    let (status, said) = refused(lockmeter_lab(["bench", "breakpoint", "-b", "60", "--only", "kernel"]));
    assert!(status == 3 && (said.contains("breakpoints")), "{status}: {said}");
    let mut command =
        lockmeter_lab(["bench", "breakpoint", "-b", "60", "--rounds", "1", "--slice", "20ms", "--cpus", "4"]);
    command.args(["--user-threads", "1,3", "--cpu-targets", "20", "--format", "json"]);
    command.env("LOCKMETER_PRELOAD", preload_library());
    let results = json(command);
    assert!(results["kernel"].is_null() && results["kernel_missing"].is_string(), "{results}");
    assert_eq!(results["user"].as_array().unwrap().len(), 2);
    let shares = results["lock_shares"].as_array().unwrap_or_else(|| panic!("{results}"));
    let designs: Vec<&str> = shares.iter().map(|share| share["design"].as_str().unwrap()).collect();
    assert_eq!(designs, ["before", "after", "ideal", "floor"], "{results}");
    assert!(shares.iter().all(|share| share["threads"] == 3 && share["waited_ppm"].is_u64()), "{results}");
}

/// What metering is for: the old design's mutex tops the report, the new design's locks do not.
#[test]
fn the_old_designs_mutex_is_at_the_top_of_lockmeters_report_and_the_new_one_has_none() {
    preload_library();
    let waited = |design: &str| -> u64 {
        let own = env!("CARGO_BIN_EXE_lockmeter-lab");
        let words = ["bench", "breakpoint", "-b", "4", "--cpu-targets", "0", "--only", design];
        let command = [own].into_iter().chain(words).chain(["--user-threads", "4", "--slice", "300ms"]);
        let command: Vec<OsString> = command.map(OsString::from).collect();
        let report = recorded(&command);
        let rows = report["rows"].as_array().unwrap();
        let waits = || rows.iter().filter(|row| row["happened"] == "wait");
        if design == "before" {
            let worst = waits().next().unwrap_or_else(|| panic!("nobody waited: {report}"));
            assert_eq!(worst["kind"], "mutex", "{worst}");
            assert!(worst["caller"].to_string().contains("GlobalMutex"), "{worst}");
        }
        waits().map(|row| row["total_ns"].as_u64().unwrap()).sum()
    };
    let before = waited("before");
    // A holder that loses its CPU has others wait in any design, but not in each of several runs.
    let after: Vec<u64> = (0..3).map(|_| waited("after")).collect();
    assert!(after.iter().any(|after| before > after * 10), "waited {before} ns before, {after:?} ns after");
}

/// What `record --user --hold -- COMMAND` and then `report --by lock,caller --format json` give.
fn recorded(command: &[OsString]) -> Value {
    let options = LockOptions {
        command: command.to_vec(),
        which: Which::User,
        holds: Some(HoldOptions::default()),
        ..LockOptions::usual(Scope::Children)
    };
    let mut sources = LockSources::start(&options).unwrap();
    let target = target::start(command, &sources.environment(), CommandOutput::ToStderr).unwrap();
    sources.command_started().unwrap();
    let query = Query::by([Dimension::Lock, Dimension::Caller]);
    let mut whole = WholeReport(ReportBuilder::new(&describe(RecordingKind::Locks, "a test", options.stacks), &query));
    let mut signals = StopSignals::catch().unwrap();
    let metered: Result<_, Box<dyn Error>> =
        Recorder { signals: &mut signals, target: &target, duration: Some(PATIENCE) }.run(sources, &mut whole);
    metered.unwrap();
    assert_eq!(target.wait(&mut signals).unwrap(), Some(0), "{command:?}");
    let mut json = Vec::new();
    Json.write(&whole.0.finish(), &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Takes all that is metered into one report.
struct WholeReport(ReportBuilder);

impl Sink for WholeReport {
    type Error = Infallible;

    fn next_due(&self) -> Instant {
        Instant::now() + PATIENCE
    }

    fn take(&mut self, interval: Interval) -> Result<(), Infallible> {
        self.0.add(&interval);
        Ok(())
    }

    fn due(&mut self) -> Result<(), Infallible> {
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        say(&sentence);
    }
}

#[test]
fn mail_is_delivered_by_a_process_each_and_nothing_is_left() {
    let temporary = Temporary::new();
    let mut command = lockmeter_lab(["bench", "fork-mail", "-d", "400ms", "--rounds", "1", "--clients", "1,3"]);
    command.args(["--races", "1", "--format", "json"]);
    let results = json(temporary.used_by(command));
    for point in results["points"].as_array().unwrap() {
        assert!(point["per_second"]["median"].as_f64().unwrap() > 1.0 && point["failed"] == 0, "{point}");
    }
    // The same locks race between processes and between threads.
    let names = |field: &str| -> Vec<String> {
        let rows = results[field].as_array().unwrap();
        assert!(rows.iter().all(|row| row["per_second"]["median"].as_f64().unwrap() > 1.0), "{rows:?}");
        rows.iter().map(|row| format!("{} {}", row["at_once"], row["lock"].as_str().unwrap())).collect()
    };
    assert!(names("locks_of_processes").contains(&"3 RwSem, all writers".to_owned()));
    assert_eq!(names("locks_of_processes"), names("locks"));
    temporary.check_empty();
    let (status, said) = refused(lockmeter_lab(["bench", "fork-mail", "--spool", "/proc/no/such"]));
    assert!(status == 6 && said.contains("--spool"), "{status}: {said}");
}

#[test]
fn users_do_their_jobs_and_what_they_waited_for_is_told() {
    let results = json(lockmeter_lab(["bench", "mixed", "--users", "1,4", "--jobs", "1", "--format", "json"]));
    let steps = results["steps"].as_array().unwrap();
    assert_eq!(steps.iter().map(|step| step["jobs"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 4]);
    assert!(steps.iter().all(|step| step["jobs_per_minute"].as_f64().unwrap() > 0.0), "{results}");
    for step in steps {
        // A job maps memory and makes files: more than a thousand acquisitions of locks that sleep. Where they are not counted it is said why.
        match (step["seen"]["Ok"]["acquisitions"]["count"].as_u64(), step["uncounted"].as_str()) {
            (Some(count), None) => {
                let contention = step["contention"].as_f64().unwrap();
                assert!(count > 1_000 && (0.0..=1.0).contains(&contention), "{results}");
            }
            (None, Some(why)) => assert!(!why.is_empty()),
            _ => panic!("neither counted nor explained: {results}"),
        }
    }
    for preset in ["high-systime", "shared"] {
        let results = json(lockmeter_lab([
            "bench", "mixed", "--users", "2", "--jobs", "1", "--preset", preset, "--format", "json",
        ]));
        assert_eq!(results["steps"][0]["jobs"], 2, "{results}");
    }
    let (status, said) = refused(lockmeter_lab(["bench", "mixed", "--mix", "disk=1"]));
    assert!(status == 2 && said.contains("compute, fork"), "{status}: {said}");
}

#[test]
fn each_policy_of_the_semaphore_races_beside_other_locks() {
    let words = ["bench", "rwsem", "--threads", "2", "--reads", "0,50", "--rounds", "1", "--format", "json"];
    let results = json(lockmeter_lab(words));
    let races = results["races"].as_array().unwrap();
    assert_eq!(races.iter().map(|race| race["reads_percent"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 50]);
    for race in races {
        let rows = race["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row["lock"].as_str().unwrap()).collect();
        let policies = ["spinning", "MCS queue", "stealing", "handoff"].map(|policy| format!("RwSem, no {policy}"));
        for policy in &policies {
            assert!(names.contains(&policy.as_str()), "{names:?}");
        }
        let others = ["Mutex", "pthread_mutex", "pthread_rwlock", "std Mutex", "std RwLock"];
        for lock in others.into_iter().chain(["RwSem", "RwSem, none on readers", "RwSem, readers set owner"]) {
            assert!(names.contains(&lock), "{names:?}");
        }
        assert!(rows.iter().all(|row| row["switches_per_message"]["median"].is_number()), "{race}");
    }
}

/// Makes sure that the grid, its picture and its columns come out of lockmeter-lab itself, and that what is missing is named.
#[test]
fn the_grid_of_locks_is_raced_drawn_and_says_which_peers_are_absent() {
    let folder = Folder::new();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (svg, csv) = (file("locks.svg"), file("locks.csv"));
    let short = [
        "bench",
        "locks",
        "--quick",
        "--no-pairs",
        "--no-duels",
        "--rounds",
        "1",
        "--slice",
        "1ms",
        "--locks",
        "Mutex",
    ];
    let mut command = lockmeter_lab(short);
    command.args(["--svg", &svg, "--csv", &csv]);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(printed.contains("absent: folly") && printed.contains("Against the best peer"), "{printed}");
    assert!(std::fs::read_to_string(&svg).unwrap().contains("Throughput of our locks"));
    let rows = std::fs::read_to_string(&csv).unwrap();
    assert!(rows.lines().any(|row| row.contains(",parking_lot Mutex,")), "{rows}");

    let (status, said) =
        refused(lockmeter_lab(["bench", "locks", "--no-grid", "--no-pairs", "--no-duels", "--locks", "nosuch"]));
    assert!(status == 1 && said.contains("no lock has a name"), "{status}: {said}");
}

#[test]
fn a_report_is_written_from_what_was_measured_before() {
    let folder = Folder::new();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let mixed = json(lockmeter_lab(["bench", "mixed", "--users", "1,2", "--jobs", "1", "--format", "json"]));
    // All but one are there, as files that hold nothing: then nothing is measured again.
    for name in ["overhead-mixed", "breakpoint", "locks", "fork-mail", "model"] {
        std::fs::write(data.join(name).with_extension("json"), "{}").unwrap();
    }
    std::fs::write(data.join("mixed.json"), mixed.to_string()).unwrap();
    let folder_name = folder.path().to_str().unwrap();
    let output = run(lockmeter_lab(["bench", "all", "--short", "--report", folder_name]));
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("measured before").count(), 6);
    let report = std::fs::read_to_string(folder.path().join("report.md")).unwrap();
    assert!(report.contains("JOBS/MIN") && report.contains("(mixed.svg)"), "{report}");
    assert!(std::fs::read_to_string(folder.path().join("mixed.svg")).unwrap().contains("jobs a minute"));
    assert!(report.contains("not measured"), "figures without a run must say so: {report}");
}
