//! The agent's flight recorder: what pulls its triggers, what it writes then, and what it does not.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;
use support::agent::{Agent, get};
use support::waiting::Waiting;
use support::{BINARY, Folder, json, lockmeter, machine, run, signal, text, until, user_workload};

/// A configuration that records into the test's folder, by these settings only, and sheds nothing meanwhile: builds for tests are slow.
fn recording(folder: &Folder, settings: &str) -> String {
    let path = folder.file("recordings");
    let none =
        ["deadlock = false", "hung_after = \"0s\"", "wait_longer_than = \"0s\"", "apart = \"0s\"", "after = \"1s\""];
    let name = |setting: &str| setting.split(' ').next().unwrap_or_default().to_owned();
    let rest = none.iter().filter(|setting| !settings.lines().any(|line| name(line) == name(setting)));
    let rest: Vec<&str> = rest.copied().collect();
    format!("cpu_budget_percent = 100.0\n[recorder]\nfolder = \"{path}\"\n{}\n{settings}\n", rest.join("\n"))
}

/// All recordings, the oldest first.
fn recordings(folder: &Folder) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.file("recordings")).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn report(recording: &Path) -> Value {
    json(lockmeter(["report", "--format", "json", recording.to_str().unwrap()]))
}

/// The first recording that this agent writes because of this trigger, for a reason with these words.
fn first_recording(folder: &Folder, agent: &Agent, trigger: &str, words: &str) -> (PathBuf, Value) {
    let mut found = None;
    until(&format!("a recording because of {trigger}, {words}"), || {
        let is_written = agent.sum("lockmeter_agent_recordings_total", "result=\"written\"") > 0.0;
        let named = |path: &PathBuf| path.to_string_lossy().ends_with(&format!("Z-{trigger}.lockmeter"));
        let of_trigger = recordings(folder).into_iter().filter(|_| is_written).filter(named);
        // One may be without its end yet.
        let with_reports = of_trigger.map(|path| (report(&path), path));
        found = with_reports
            .map(|(report, path)| (path, report))
            .find(|(_, report)| report["reason"].as_str().is_some_and(|reason| reason.contains(words)));
        found.is_some()
    });
    found.unwrap()
}

fn program(folder: &Folder, name: &str, argument: &str) -> Command {
    let mut command = Command::new(user_workload(folder.path(), name, &[]));
    command.arg(argument);
    command
}

#[test]
fn a_deadlock_is_recorded_with_what_was_before_and_its_reason() {
    let Some(_machine) = machine("a recorded deadlock") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, &recording(&folder, "deadlock = true"));
    until("some of what was before is kept", || agent.sum("lockmeter_agent_recorder_kept_seconds", "") > 3.0);
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "deadlock"));
    let (path, report) = first_recording(&folder, &agent, "deadlock", "threads that wait in a circle");
    let alarm = report["head"]["alarm"].as_str().unwrap();
    assert!(alarm.contains("debit_lock") && alarm.contains("credit_lock"), "{alarm}");
    let (seconds, intervals) = (report["duration_ns"].as_f64().unwrap() / 1e9, report["intervals"].as_u64().unwrap());
    assert!(seconds > 3.0 && intervals > 1, "seconds before, and at least an interval after: {report:#}");
    let shown = text(&run(lockmeter(["report", path.to_str().unwrap()])).stdout);
    assert!(shown.contains("; recorded because of 2 threads that wait in a circle, one of them"), "{shown}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    // It goes on, and is told once.
    let intervals = agent.sum("lockmeter_agent_intervals_total", "");
    until("some more intervals", || agent.sum("lockmeter_agent_intervals_total", "") > intervals + 3.0);
    assert_eq!(recordings(&folder).len(), 1);
    assert_eq!(agent.sum("lockmeter_agent_recordings_total", "suppressed"), 0.0);
    drop(waiting);
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn a_hung_task_is_recorded() {
    let Some(_machine) = machine("a recorded hung task") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, &recording(&folder, "hung_after = \"3s\""));
    let _waiting = Waiting::start(program(&folder, "waits-for-ever", "held"));
    // Other threads of the machine may hang as well: what hangs while a recording goes on is in that one.
    until("a recording has who waits for big_lock", || {
        recordings(&folder).iter().map(|path| report(path)).any(|report| {
            let waits = report["threads"]["open_waits"].as_array().unwrap();
            let is_long = |wait: &Value| wait["age_ns"].as_u64() >= Some(3_000_000_000);
            let is_it = |wait: &Value| wait["lock"] == "waits-for-ever:big_lock" && is_long(wait);
            let reason = report["reason"].as_str().unwrap_or_default();
            reason.contains("which has waited for") && waits.iter().any(is_it)
        })
    });
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn a_long_wait_is_recorded_and_its_bucket_points_to_the_recording() {
    let Some(_machine) = machine("a recorded long wait") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, &recording(&folder, "wait_longer_than = \"200ms\""));
    let metrics = || get(&agent.address, "/metrics", "application/openmetrics-text;version=1.0.0").1;
    let of_waits = |text: &str| -> Option<String> {
        let mut lines = text.lines().filter(|line| line.starts_with("lockmeter_lock_wait_seconds_bucket"));
        lines.find(|line| line.contains("# {recording=\"flight-")).map(str::to_owned)
    };
    let mut with = None;
    until("a wait points to its recording", || {
        let mut chain = program(&folder, "blame", "chain");
        chain.stdin(Stdio::null());
        run(chain);
        with = of_waits(&metrics());
        with.is_some()
    });
    let with = with.unwrap();
    let name = with.split('"').find(|part| part.starts_with("flight-")).unwrap();
    let report = report(&Path::new(&folder.file("recordings")).join(name));
    let reason = report["reason"].as_str().unwrap();
    assert!(reason.starts_with("a wait of ") && reason.ends_with("(limit: 200 ms)"), "{reason}");
    let lock = with.split('"').nth(1).unwrap();
    assert!(reason.contains(lock), "{reason}: {with}");
    let row = report["rows"].as_array().unwrap().iter().find(|row| row["lock"] == lock).unwrap();
    assert!(row["max_ns"].as_u64().unwrap() >= 200_000_000, "{row:#}");
    let counted = metrics();
    let is_written =
        |line: &&str| line.starts_with("lockmeter_agent_recordings_total") && line.contains("result=\"written\"");
    let counted = counted.lines().find(is_written).unwrap();
    assert!(counted.contains("long-wait") && counted.contains("# {recording=\"flight-"), "{counted}");
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn a_machine_whose_threads_mostly_wait_is_recorded() {
    let Some(_machine) = machine("a recorded share of waiting") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, &recording(&folder, "waited_percent = 400.0"));
    let _waiting = Waiting::start(program(&folder, "waits-for-ever", "in-turn"));
    let (_, report) = first_recording(&folder, &agent, "waited-share", "of the machine's CPU time");
    assert!(report["rows"].as_array().unwrap().iter().any(|row| row["lock"] == "waits-for-ever:big_lock"));
    assert_eq!(agent.end(), Some(0));
}

#[test]
fn recordings_are_apart_and_few_and_a_signal_is_never_too_soon() {
    let Some(_machine) = machine("recordings that are apart") else { return };
    let folder = Folder::new();
    let settings = "deadlock = true\napart = \"1h\"\nmost_recordings = 2";
    let agent = Agent::plain(&folder, &recording(&folder, settings));
    let counted = |trigger: &str, result: &str| {
        agent.sum("lockmeter_agent_recordings_total", &format!("trigger=\"{trigger}\",result=\"{result}\""))
    };
    let first = Waiting::start(program(&folder, "waits-for-ever", "deadlock"));
    until("the first is written", || counted("deadlock", "written") == 1.0);
    let second = Waiting::start(program(&folder, "waits-for-ever", "deadlock"));
    until("the second is too soon", || counted("deadlock", "suppressed") == 1.0);
    for times in 1..=3 {
        signal(agent.pid(), libc::SIGUSR1);
        until("it is written", || counted("signal", "written") == f64::from(times));
    }
    assert_eq!(counted("deadlock", "written"), 1.0);
    let left = recordings(&folder);
    assert!(left.len() == 2 && left.iter().all(|path| path.to_string_lossy().contains("signal")), "{left:?}");
    // One more while the last still goes on is counted only.
    signal(agent.pid(), libc::SIGUSR1);
    until("it is seen", || {
        signal(agent.pid(), libc::SIGUSR1);
        counted("signal", "suppressed") > 0.0
    });
    drop((first, second));
    assert_eq!(agent.end(), Some(0));
    let last = recordings(&folder).pop().unwrap();
    assert_eq!(report(&last)["lost"].get("no_end"), None, "the end of the agent ends the recording");
}

#[test]
fn a_folder_that_others_may_write_to_is_refused_and_counted() {
    let Some(_machine) = machine("a folder of somebody else") else { return };
    let folder = Folder::new();
    let agent = Agent::plain(&folder, &recording(&folder, ""));
    let path = folder.file("recordings");
    fs::create_dir(&path).unwrap();
    let failed = || agent.sum("lockmeter_agent_recordings_total", "failed");
    let ask = |times: f64| {
        signal(agent.pid(), libc::SIGUSR1);
        until("it has failed", || failed() == times);
    };
    chown(&path, Some(65_534), None).unwrap();
    ask(1.0);
    chown(&path, Some(0), None).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    ask(2.0);
    fs::remove_dir(&path).unwrap();
    std::os::unix::fs::symlink(folder.path(), &path).unwrap();
    ask(3.0);
    assert!(agent.has_said("belongs to another user or may be written by others"));
    let files: Vec<_> = fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(!files.iter().any(|name| name.to_string_lossy().starts_with("flight-")), "{files:?}");
    fs::remove_file(&path).unwrap();
    signal(agent.pid(), libc::SIGUSR1);
    until("it is written", || agent.sum("lockmeter_agent_recordings_total", "written") == 1.0);
    assert_eq!(agent.end(), Some(0));
}

/// The agent's own wall clock alone is set: the machine's is others' as well.
#[test]
fn when_the_wall_clock_is_set_its_times_follow_and_stay_in_order() {
    let Some(_machine) = machine("a wall clock that is set") else { return };
    const HOUR_S: f64 = 3_600.0;
    let (folder, ahead) = (Folder::new(), Folder::new());
    let ahead = ahead.file("ahead");
    fs::write(&ahead, "+0").unwrap();
    let mut command = Command::new(BINARY);
    command.env("LD_PRELOAD", "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1");
    command
        .env("FAKETIME_TIMESTAMP_FILE", &ahead)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let agent = Agent::start(&folder, &recording(&folder, ""), command);
    let now_s = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
    let is_near = |seconds: f64, ahead_s: f64| (seconds - now_s() - ahead_s).abs() < HOUR_S / 10.0;
    for (known, (set, ahead_s)) in (1..).zip([("+0", 0.0), ("+1h", HOUR_S), ("-2h", -2.0 * HOUR_S)]) {
        fs::write(&ahead, set).unwrap();
        until(&format!("the last interval ended when the clock was at {set}"), || {
            is_near(agent.sum("lockmeter_agent_last_interval_timestamp_seconds", ""), ahead_s)
        });
        signal(agent.pid(), libc::SIGUSR1);
        until("it is recorded", || {
            agent.sum("lockmeter_agent_recordings_total", "result=\"written\"") >= f64::from(known)
        });
        let reports = recordings(&folder).into_iter().map(|path| report(&path));
        let begins = |report: &Value| report["start_unix_ns"].as_f64().unwrap() * 1e-9;
        let of_now: Vec<Value> = reports.filter(|report| is_near(begins(report), ahead_s)).collect();
        let [report] = &of_now[..] else { panic!("{set}: {of_now:#?}") };
        assert!(report["duration_ns"].as_u64().unwrap() < 100_000_000_000, "{report:#}");
        assert!(report["intervals"].as_u64().unwrap() >= 1, "{report:#}");
    }
    let exemplars = get(&agent.address, "/metrics", "application/openmetrics-text;version=1.0.0").1;
    let exemplar = exemplars.lines().find(|line| line.contains("signal") && line.contains("recording=")).unwrap();
    assert!(is_near(exemplar.rsplit(' ').next().unwrap().parse().unwrap(), -2.0 * HOUR_S), "{exemplar}");
    assert_eq!(agent.end(), Some(0));
}
