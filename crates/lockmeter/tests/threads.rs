//! Where the time of threads goes, and waits that do not end.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use support::control_group::ControlGroup;
use support::recorder::Recorder;
use support::waiting::Waiting;
use support::{Folder, json, lockmeter, machine, refused, run, skip, text, until, user_workload, wait};

fn program(folder: &Folder, name: &str, argument: &str) -> Command {
    let mut command = Command::new(user_workload(folder.path(), name, &[]));
    command.arg(argument);
    command
}

/// What a recording made with these arguments says.
fn recorded(folder: &Folder, arguments: &[&str]) -> Value {
    let recorder = Recorder::start_all(folder, "recording", arguments);
    let recording = recorder.wait().recording();
    json(lockmeter(["report", "--format", "json", &recording]))
}

fn open_waits(report: &Value) -> Vec<&Value> {
    report["threads"]["open_waits"].as_array().unwrap().iter().collect()
}

fn cut_waits(report: &Value) -> &Vec<Value> {
    report["threads"]["cut_waits"].as_array().unwrap()
}

fn alarm(report: &Value) -> &str {
    report["head"]["alarm"].as_str().unwrap_or_default()
}

/// Makes sure of what is true of two threads in a deadlock and one behind them.
fn is_deadlock(report: &Value) {
    let waits = open_waits(report);
    let alarm = alarm(report);
    assert!(alarm.starts_with("deadlock: "), "{alarm}\n{report:#}");
    assert!(alarm.contains("debit_lock") && alarm.contains("credit_lock"), "{alarm}");
    assert!(alarm.contains("1 thread waits for a lock besides"), "{alarm}");
    assert_eq!(waits.len(), 3, "{report:#}");
    let (circle, behind): (Vec<&Value>, Vec<&Value>) = waits.into_iter().partition(|wait| wait["deadlock"] == 0);
    assert_eq!((circle.len(), behind.len()), (2, 1));
    for (wait, other) in [(circle[0], circle[1]), (circle[1], circle[0]), (behind[0], &behind[0]["holder"])] {
        assert_eq!(wait["holder"]["tid"], other["tid"]);
    }
    let function = |wait: &Value| wait["stack"][0].as_str().unwrap_or_default().to_owned();
    let mut functions: Vec<String> = circle.iter().map(|wait| function(wait)).collect();
    functions.sort();
    // What takes the lock for both is compiled into them.
    assert_eq!(functions, ["credit_first", "debit_first"], "{report:#}");
    assert_eq!(function(behind[0]), "audit");
    let rows = report["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["lock"].as_str().unwrap().contains("credit_lock")), "it is in the table, too");
    assert_eq!(report["lost"].get("unfinished"), None, "{}", report["lost"]);
}

#[test]
fn a_deadlock_is_called_one_in_the_first_sentence() {
    let Some(_machine) = machine("a deadlock") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "deadlock"));
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
    is_deadlock(&report);
    assert!(open_waits(&report).iter().all(|wait| wait["older"] == true));
    let all = recorded(&folder, &["-a", "-d", "1s"]);
    assert!(alarm(&all).contains("debit_lock"), "{}", alarm(&all));
}

/// Regression: a lock's owner is read later than who waits for it, and may have waited itself.
#[test]
fn threads_that_wait_long_for_their_turn_are_in_no_deadlock() {
    let Some(_machine) = machine("a queue that moves on") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "in-turn"));
    for _ in 0..4 {
        for scope in [&["-a"][..], &["-p", &waiting.pid()]] {
            let report = recorded(&folder, &[scope, &["-d", "500ms"]].concat());
            assert!(!open_waits(&report).is_empty(), "{report:#}");
            assert!(!alarm(&report).contains("deadlock"), "{}", alarm(&report));
        }
    }
}

/// Regression: a holder in another process was not looked for, and a lock at the begin of a page was not read.
#[test]
fn processes_that_wait_for_each_others_shared_locks_are_in_a_deadlock() {
    let Some(_machine) = machine("a deadlock over two processes") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "processes"));
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "500ms"]);
    let alarm = alarm(&report);
    let names = ["anonymous shared memory+0x0", "anonymous shared memory+0x28"];
    assert!(alarm.starts_with("deadlock: ") && names.iter().all(|name| alarm.contains(name)), "{alarm}");
    let waits = open_waits(&report);
    assert_eq!(waits.len(), 2, "{report:#}");
    assert_eq!(waits[0]["holder"]["tid"], waits[1]["tid"]);
    assert_eq!(waits[1]["holder"]["tid"], waits[0]["tid"]);
}

#[test]
fn a_thread_that_ended_with_a_lock_is_named() {
    let Some(_machine) = machine("a holder that has ended") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "ended"));
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
    let waits = open_waits(&report);
    assert_eq!(waits.len(), 2, "{report:#}");
    for wait in waits {
        assert!(wait["lock"].as_str().unwrap().ends_with(":big_lock"), "{wait}");
        let ended = wait["ended_holder"].as_u64().unwrap_or_else(|| panic!("{wait}"));
        assert!(!Path::new(&format!("/proc/{}/task/{ended}", waiting.pid())).exists());
    }
    let alarm = alarm(&report);
    assert!(alarm.ends_with(" had it when it ended"), "{alarm}");
}

#[test]
fn processes_that_wait_for_each_others_files_are_in_a_deadlock() {
    let Some(_machine) = machine("a deadlock by files") else { return };
    let folder = Folder::new();
    let mut program = program(&folder, "waits-for-ever", "files");
    program.current_dir(folder.path());
    let waiting = Waiting::start(program);
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "500ms"]);
    let alarm = alarm(&report);
    assert!(alarm.starts_with("deadlock: ") && alarm.contains("one-file") && alarm.contains("other-file"), "{alarm}");
}

/// Regression: the kernel names the process that took a lock on a file, and its first thread was said to have it.
#[test]
fn which_thread_of_a_process_has_a_file_is_not_guessed() {
    let Some(_machine) = machine("a file locked by a thread of many") else { return };
    let folder = Folder::new();
    let mut program = program(&folder, "waits-for-ever", "one-file");
    program.current_dir(folder.path());
    let waiting = Waiting::start(program);
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
    let waits = open_waits(&report);
    assert_eq!(waits.len(), 1, "{report:#}");
    let holder = &waits[0]["holder"];
    assert_eq!((holder["tgid"].to_string(), &holder["state"]), (waiting.pid(), &Value::Null), "{holder:#}");
    let alarm = alarm(&report);
    assert!(alarm.ends_with(&format!("waits-for-ever (process {}) has it", waiting.pid())), "{alarm}");
}

#[test]
fn a_command_that_deadlocks_is_seen_to() {
    let Some(_machine) = machine("a command's deadlock") else { return };
    let folder = Folder::new();
    let file = folder.file("recording");
    let program = user_workload(folder.path(), "waits-for-ever", &[]);
    let mut command = lockmeter(["record", "-d", "3s", "-o", &file, "--"]);
    command.arg(program).arg("deadlock").current_dir(folder.path()).stdin(Stdio::piped());
    let mut recorder = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The recording is whole when metering has ended; the command goes on.
    let is_whole = || {
        let output = run(lockmeter(["report", "--format", "json", &file]));
        output.status.success() && !text(&output.stderr).contains("the recording has no end")
    };
    until("the recording has ended", is_whole);
    let report = json(lockmeter(["report", "--format", "json", &file]));
    drop(recorder.stdin.take());
    wait(&mut recorder, "the recorder");
    is_deadlock(&report);
    assert!(open_waits(&report).iter().all(|wait| wait["older"] == false));
}

/// Regression: of a deadlock that ended with its program the report said nothing.
#[test]
fn a_deadlock_that_ends_with_its_program_is_called_one() {
    let Some(_machine) = machine("a deadlock that ends") else { return };
    let folder = Folder::new();
    let all_wait = |recording: &str| {
        let output = run(lockmeter(["report", "--format", "json", recording]));
        output.status.success() && open_waits(&serde_json::from_slice(&output.stdout).unwrap()).len() == 3
    };
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "deadlock"));
    let recorder = Recorder::start_all(&folder, "ends", &["-p", &waiting.pid()]);
    until("all that wait are seen", || all_wait(&recorder.file));
    drop(waiting);
    let outside = recorder.wait().recording();
    let inside = folder.file("started");
    let program = user_workload(folder.path(), "waits-for-ever", &[]);
    let mut command = lockmeter(["record", "--quiet", "-o", &inside, "--"]);
    command.arg(program).arg("deadlock").current_dir(folder.path());
    // Its program reads what it is given, and says when it is in its deadlock.
    let waiting = Waiting::start(command);
    until("all that wait are seen", || all_wait(&inside));
    drop(waiting);
    for file in [outside, inside] {
        let report = json(lockmeter(["report", "--format", "json", &file]));
        let alarm = alarm(&report);
        assert!(alarm.starts_with("deadlock until the threads ended: "), "{alarm}\n{report:#}");
        assert!(alarm.contains("debit_lock") && alarm.contains("credit_lock"), "{alarm}");
        assert!(alarm.contains("1 thread waited for a lock besides"), "{alarm}");
        assert!(open_waits(&report).is_empty(), "{report:#}");
        assert_eq!(cut_waits(&report).len(), 3, "{report:#}");
    }
}

/// Who is released, or gives up, and then ends the process, has not ended in its wait.
#[test]
fn who_ends_after_a_wait_did_not_end_in_it() {
    let Some(_machine) = machine("threads that end after a wait") else { return };
    let folder = Folder::new();
    for how in ["given", "gives-up"] {
        let file = folder.file(how);
        let mut command = lockmeter(["record", "-o", &file, "--"]);
        command.arg(user_workload(folder.path(), "waits-for-ever", &[])).arg(how).current_dir(folder.path());
        let report =
            json(lockmeter(["report", "--format", "json", &Recorder::spawn(command, file).wait().recording()]));
        assert_eq!(cut_waits(&report).len(), 0, "{how}: {report:#}");
    }
}

/// Regression: the time of threads went on to be counted while the interval's other sources were read.
#[test]
fn in_a_short_recording_there_are_as_many_threads_as_there_are() {
    let Some(_machine) = machine("a short recording") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "held"));
    for _ in 0..5 {
        let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "200ms"]);
        let threads = report["threads"]["threads"].as_f64().unwrap();
        assert!((6.9..=7.1).contains(&threads), "{threads} of 7 threads");
    }
}

#[test]
fn a_lock_that_is_held_throughout_is_no_deadlock() {
    let Some(_machine) = machine("a lock held throughout") else { return };
    let folder = Folder::new();
    // The kernel waits for a mutex that lends priority by a lock of its own.
    for how in ["held", "lends"] {
        let waiting = Waiting::start(program(&folder, "waits-for-ever", how));
        let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
        let waits = open_waits(&report);
        let of = |lock: &str| waits.iter().filter(|wait| wait["lock"].as_str().unwrap().contains(lock)).count();
        assert_eq!((of("big_lock"), of("table_lock"), waits.len()), (4, 1, 5), "{how}: {report:#}");
        for wait in &waits {
            let holder = &wait["holder"];
            assert_eq!((&wait["deadlock"], &holder["state"]), (&Value::Null, &Value::from("sleep")), "{how}: {wait}");
            let stack = holder["stack"].as_array().unwrap();
            assert!(stack.iter().any(|function| function == "keeper"), "{holder}");
        }
        assert!(alarm(&report).starts_with("still waiting: 4 threads"), "{}", alarm(&report));
        assert!(alarm(&report).contains("big_lock"), "{}", alarm(&report));
        assert!(alarm(&report).contains("keeper"), "{}", alarm(&report));
        // Nobody has released it, but who has it is known.
        let head = report["head"]["sentence"].as_str().unwrap();
        assert!(head.contains("blocked mostly by waits-for-ever"), "{how}: {head}");
        let asleep = report["head"]["asleep"].as_f64().unwrap();
        assert!((4.5..=5.1).contains(&asleep), "{how}: five threads were asleep all the time, not {asleep}");
    }
}

/// Makes sure that the threads which locks name are found where a process counts its threads for itself.
#[test]
fn a_deadlock_in_a_container_is_called_one() {
    let Some(_machine) = machine("a deadlock in a container") else { return };
    let folder = Folder::new();
    let program = user_workload(folder.path(), "waits-for-ever", &[]);
    let mut container = Command::new("unshare");
    container.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(program).arg("deadlock");
    let waiting = Waiting::start(container);
    is_deadlock(&recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]));
}

#[test]
fn who_gives_up_is_in_no_deadlock() {
    let Some(_machine) = machine("waits that give up") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "waits-for-ever", "timed"));
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
    assert!(!alarm(&report).contains("deadlock"), "{}", alarm(&report));
    let timed = open_waits(&report).iter().filter(|wait| wait["timed"] == true).count();
    assert_eq!(timed, 2, "{report:#}");
}

/// Makes sure that waits which end at their time limit are counted, and are told from those that got the lock.
#[test]
fn waits_that_time_out_are_counted_as_such_from_inside_and_outside() {
    let Some(_machine) = machine("waits that time out") else { return };
    let folder = Folder::new();
    let timed_out = |recording: &str, said: &str| {
        let report = json(lockmeter(["report", "--format", "json", "--by", "lock,caller", recording]));
        let rows = report["rows"].as_array().unwrap().clone();
        let mut rows = rows.into_iter().filter(|row| row["lock"].as_str().unwrap().contains("kept_lock"));
        let row = rows.next().unwrap_or_else(|| panic!("{report:#}"));
        assert!(rows.next().is_none(), "{report:#}");
        assert_eq!((row["happened"].as_str(), row["count"].as_u64()), (Some("timed-out"), Some(4)), "{row}");
        let (waited_ns, known_ns) = (row["total_ns"].as_u64().unwrap(), said.trim().parse::<u64>().unwrap());
        assert!(known_ns >= 400_000_000 && waited_ns.abs_diff(known_ns) * 100 <= known_ns * 5, "{known_ns}: {row}");
        assert!(row["caller"][0].as_str().unwrap().contains("tries"), "{row}");
        let mut command = lockmeter(["report", recording]);
        command.env("COLUMNS", "1000");
        let shown = run(command);
        let (head, warnings) = (text(&shown.stdout), text(&shown.stderr));
        assert!(head.contains(": 4 waits for timed-waits:kept_lock (exclusive) timed out after "), "{head}");
        assert!(head.lines().next().unwrap().ends_with(" in all, held mostly by timed-waits."), "{head}");
        assert!(!warnings.contains("no lock was contended"), "{warnings}");
    };
    let program = user_workload(folder.path(), "timed-waits", &[]);
    let file = folder.file("inside");
    let mut command = lockmeter(["record", "--user", "-o", &file, "--"]);
    command.arg(&program).stdin(Stdio::null());
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    timed_out(&file, &text(&output.stdout));
    let mut waiting = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let recorder = Recorder::start_all(&folder, "outside", &["--user", "-p", &waiting.id().to_string()]);
    drop(waiting.stdin.take());
    let recording = recorder.wait().recording();
    timed_out(&recording, &text(&waiting.wait_with_output().unwrap().stdout));
}

/// The share of the time of threads of one name that was spent so, and their time.
fn exact_times(recording: &str, name: &str) -> (BTreeMap<String, u64>, u64) {
    let report = json(lockmeter(["report", "--format", "json", "--task", name, recording]));
    let threads = &report["threads"];
    let mut times = BTreeMap::new();
    for state in threads["states"].as_array().unwrap() {
        times.insert(state["state"].as_str().unwrap().to_owned(), state["total_ns"].as_u64().unwrap());
    }
    for sleep in threads["sleeps"].as_array().unwrap().iter().filter(|sleep| sleep["at_rest"] == true) {
        *times.entry(sleep["state"].as_str().unwrap().to_owned()).or_default() += sleep["total_ns"].as_u64().unwrap();
    }
    (times, threads["total_ns"].as_u64().unwrap())
}

#[test]
fn every_threads_time_is_told_by_what_it_waits_for() {
    let Some(_machine) = machine("the threads' time") else { return };
    let folder = Folder::new();
    let waiting = Waiting::start(program(&folder, "thread-states", &folder.file("locked")));
    let recorder = Recorder::start_all(&folder, "recording", &["-p", &waiting.pid(), "-d", "2s"]);
    let recording = recorder.wait().recording();
    let report = json(lockmeter(["report", "--format", "json", &recording]));
    let wall_ns = report["duration_ns"].as_u64().unwrap();
    // Ten threads and a child.
    let total_ns = report["threads"]["total_ns"].as_u64().unwrap();
    assert!(total_ns.abs_diff(11 * wall_ns) * 100 <= 11 * wall_ns * 3, "{total_ns} is not 11 × {wall_ns}");
    for (name, threads) in [
        ("user-lock", 1),
        ("condition", 1),
        ("file-lock", 1),
        ("network-or-poll", 1),
        ("pipe-or-socket", 3),
        ("sleep", 1),
        ("child", 1),
    ] {
        let (times, all_ns) = exact_times(&recording, name);
        let here_ns = times.get(name).copied().unwrap_or(0);
        assert!(here_ns * 100 >= all_ns * 98, "{name}: {times:?}");
        assert!(all_ns.abs_diff(threads * wall_ns) * 100 <= threads * wall_ns * 3, "{name}: {all_ns}, {wall_ns}");
    }
    let waits = open_waits(&report);
    let file = waits.iter().find(|wait| wait["kind"] == "file").expect("a wait for a lock on a file goes on");
    assert_eq!((&file["task"], &file["holder"]["task"]), (&Value::from("file-lock"), &Value::from("main")), "{file}");
    assert!(file["lock"].as_str().unwrap().ends_with("/locked"), "{file}");
    let (times, all_ns) = exact_times(&recording, "running");
    let on_or_for_cpu: u64 = ["running", "runnable", "woken"].iter().filter_map(|state| times.get(*state)).sum();
    assert!(on_or_for_cpu * 100 >= all_ns * 98 && times["running"] > 0, "{times:?}");
}

#[test]
fn who_waits_for_a_condition_is_told_with_who_wakes_it() {
    let Some(_machine) = machine("waits for a condition") else { return };
    let folder = Folder::new();
    let program = user_workload(folder.path(), "pipeline", &[]);
    let mut command = Command::new(program);
    // Nearly all of the time is waited; the consumers run for more than a hundredth of theirs.
    let mut child = command.args(["--threads", "3", "--wait", "--pause-ns", "300000", "--rounds", "12000"]);
    child = child.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = child.spawn().unwrap();
    let recorder = Recorder::start_all(&folder, "recording", &["-p", &child.id().to_string()]);
    drop(child.stdin.take());
    wait(&mut child, "the program");
    let report = json(lockmeter(["report", "--format", "json", &recorder.wait().recording()]));
    let places = report["threads"]["sleeps"].as_array().unwrap();
    let functions =
        |stack: &Value| stack.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    let of_consumers = places.iter().find(|place| {
        let stack: Vec<String> = functions(&place["stack"]);
        place["state"] == "condition" && stack.iter().any(|name| name == "consume")
    });
    let place = of_consumers.unwrap_or_else(|| panic!("no place of consumers\n{places:#?}"));
    let wakers: Vec<String> = functions(&place["woken_by"]["stack"]);
    assert!(wakers.iter().any(|name| name == "produce"), "{place:#}");
}

#[test]
fn a_semaphore_that_hands_out_work_is_no_lock_and_one_that_guards_is() {
    let Some(_machine) = machine("semaphores") else { return };
    let folder = Folder::new();
    let measured = |argument: &str| {
        let waiting = Waiting::start(program(&folder, "semaphore-uses", argument));
        let report = recorded(&folder, &["--user", "-p", &waiting.pid(), "-d", "2s"]);
        let states = report["threads"]["states"].as_array().unwrap().clone();
        let for_locks = states.iter().find(|time| time["state"] == "user-lock");
        let threads = for_locks.map_or(0.0, |time| time["total_ns"].as_f64().unwrap());
        let threads = threads / report["duration_ns"].as_f64().unwrap();
        (report["head"]["asleep"].as_f64().unwrap_or(0.0), threads)
    };
    let (asleep, threads) = measured("work");
    assert!(asleep < 0.05 && threads < 0.05, "four threads wait for work, and {asleep} or {threads} for locks");
    let (asleep, threads) = measured("lock");
    assert!((2.5..=3.01).contains(&asleep), "three of four threads wait for a lock, not {asleep}");
    // A thread that happened to sleep there at nine of ten looks counts as at rest.
    assert!((1.0..=3.05).contains(&threads), "three of four threads wait for a lock, not {threads}");
}

#[test]
fn from_inside_a_semaphore_that_hands_out_work_is_no_lock_either() {
    let folder = Folder::new();
    let _machine = machine("semaphores from inside");
    let program = user_workload(folder.path(), "semaphore-uses", &[]);
    let metered = |how: &str| {
        let file = folder.file(how);
        let mut command = lockmeter(["record", "--quiet", "--user", "-o", &file, "--", "sh", "-c"]);
        command.arg(format!("sleep 2 | {} {how}", program.display()));
        assert!(run(command).status.success());
        let report = json(lockmeter(["report", "--format", "json", "--by", "lock", "--kind", "semaphore", &file]));
        let asleep = report["head"]["asleep"].as_f64().unwrap_or(0.0);
        let happened: Vec<String> =
            report["rows"].as_array().unwrap().iter().map(|row| row["happened"].as_str().unwrap().to_owned()).collect();
        (asleep, happened)
    };
    let (asleep, happened) = metered("work");
    assert!(asleep < 0.05, "four threads wait for work, and {asleep} for locks");
    assert_eq!(happened, ["idle"]);
    let (asleep, happened) = metered("lock");
    assert!(asleep > 1.5, "three of four threads wait for a lock, not {asleep}");
    assert_eq!(happened, ["wait"]);
}

/// How many threads were blocked for user locks, and how many the head says slept for locks, on average.
fn for_locks(report: &Value) -> (f64, f64) {
    let states = report["threads"]["states"].as_array().unwrap();
    let blocked = states.iter().find(|time| time["state"] == "user-lock");
    let blocked_ns = blocked.map_or(0.0, |time| time["total_ns"].as_f64().unwrap());
    let threads = blocked_ns / report["duration_ns"].as_f64().unwrap();
    (threads, report["head"]["asleep"].as_f64().unwrap_or(0.0))
}

#[test]
fn who_takes_turns_in_waiting_for_work_is_at_rest() {
    let Some(_machine) = machine("workers that take turns") else { return };
    let folder = Folder::new();
    for how in ["processes", "threads", "connections"] {
        let waiting = Waiting::start(program(&folder, "turns-at-work", how));
        let report = recorded(&folder, &["--user", "-p", &waiting.pid(), "-d", "3s"]);
        let (threads, asleep) = for_locks(&report);
        assert!(threads < 0.2 && asleep < 0.2, "{how}: nobody waits for a lock, and {threads} or {asleep} do");
        assert_eq!(open_waits(&report).len(), 0, "{how}");
        let rest = report["threads"]["rest_ns"].as_f64().unwrap() / report["duration_ns"].as_f64().unwrap();
        assert!(rest > 4.0, "{how}: five workers are at rest, not {rest}");
    }
    let waiting = Waiting::start(program(&folder, "turns-at-work", "asks"));
    let report = recorded(&folder, &["--user", "-p", &waiting.pid(), "-d", "3s"]);
    let (threads, asleep) = for_locks(&report);
    assert!(threads > 2.0 && asleep > 2.0, "four of five wait for a lock, not {threads} or {asleep}");
}

/// Makes sure that what goes on is seen where many sleeps come and go: a look takes the stacks of few.
#[test]
fn waits_that_go_on_are_seen_among_a_thousand_threads() {
    let Some(_machine) = machine("a thousand threads") else { return };
    let folder = Folder::new();
    let mut waiting = Waiting::start(program(&folder, "many-sleepers", ""));
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &waiting.pid(), "-d", "3s"]);
    std::io::Write::write_all(waiting.0.stdin.as_mut().unwrap(), b"\n").unwrap();
    let report = json(lockmeter(["report", "--format", "json", &recorder.wait().recording()]));
    let waits = open_waits(&report);
    assert_eq!(waits.len(), 5, "{waits:#?}");
    assert!(waits.iter().all(|wait| wait["lock"].as_str().unwrap().contains("late_lock")), "{waits:#?}");
}

/// A program of `bench/real-programs`; `None`: what runs it is not installed.
fn real_program(test: &str, interpreter: &str, source: &str, arguments: &[&str]) -> Option<Waiting> {
    let mut command = Command::new(interpreter);
    command.arg(format!("{}/../../bench/real-programs/programs/{source}", env!("CARGO_MANIFEST_DIR")));
    command.args(arguments);
    program_of(test, interpreter, command)
}

/// The program that this command starts; `None`: what runs it is not installed.
fn program_of(test: &str, interpreter: &str, command: Command) -> Option<Waiting> {
    let version = Command::new(interpreter).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !version.is_ok_and(|status| status.success()) {
        skip(test, &format!("{interpreter} is not installed"));
        return None;
    }
    Some(Waiting::start(command))
}

/// How many threads were blocked for a lock of this name, not at rest, on average.
fn blocked_for(report: &Value, lock: &str) -> f64 {
    let sleeps = report["threads"]["sleeps"].as_array().unwrap().iter();
    let of_lock = sleeps.filter(|sleep| sleep["lock"] == lock && sleep["at_rest"] == false);
    let total_ns: f64 = of_lock.map(|sleep| sleep["total_ns"].as_f64().unwrap()).sum();
    total_ns / report["duration_ns"].as_f64().unwrap()
}

#[test]
fn threads_that_are_parked_for_a_java_lock_wait_for_a_lock() {
    let Some(_machine) = machine("a Java lock") else { return };
    let folder = Folder::new();
    let Some(waiting) = real_program("a Java lock", "java", "HotLocks.java", &["lock"]) else { return };
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "2s"]);
    let threads = blocked_for(&report, "Java ReentrantLock");
    assert!(threads > 2.0, "of eight threads most wait for the lock, not {threads}: {:#}", report["threads"]["sleeps"]);
    drop(waiting);
    let Some(waiting) = real_program("an idle Java pool", "java", "IdlePool.java", &[]) else { return };
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "2s"]);
    let threads = for_locks(&report).0;
    assert!(threads < 0.2, "nobody waits for a lock in an idle pool, and {threads} do");
}

/// The Java machine says which monitor or lock a thread waits for, and which thread has it.
#[test]
fn java_threads_that_wait_for_each_other_are_in_a_deadlock() {
    let Some(_machine) = machine("a deadlock in Java") else { return };
    let folder = Folder::new();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/libraries/Deadlock.java");
    for (how, lock) in [("synchronized", "Java monitor of Deadlock$Account"), ("lock", "Java ReentrantLock")] {
        for is_in_container in [false, true] {
            let mut command = Command::new("unshare");
            if is_in_container {
                command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
            }
            command.args(["java", source, how]);
            let Some(waiting) = program_of("a deadlock in Java", "java", command) else { return };
            let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "2500ms"]);
            let (alarm, waits) = (alarm(&report), open_waits(&report));
            assert!(alarm.starts_with("deadlock: "), "{how}: {alarm}\n{waits:#?}");
            // For a monitor they are parked for a second at a time, which is one wait all the same.
            let is_whole = |wait: &&Value| wait["age_ns"].as_u64().unwrap() > 2_000_000_000;
            assert!(waits.iter().all(is_whole), "{how}: {waits:#?}");
            assert!(alarm.contains("1 thread waits for a lock besides"), "{how}: {alarm}");
            assert!(waits.len() == 3 && waits.iter().all(|wait| wait["lock"] == lock), "{how}: {waits:#?}");
            let name = |wait: &Value| (wait["task"].to_string(), wait["holder"]["task"].to_string());
            let mut names: Vec<_> = waits.into_iter().map(name).collect();
            names.sort();
            let pair = |waits: &str, has: &str| (format!("\"{waits}\""), format!("\"{has}\""));
            let known = [("refund", "transfer"), ("report", "transfer"), ("transfer", "refund")];
            assert_eq!(names, known.map(|(waits, has)| pair(waits, has)), "{how}");
        }
    }
}

#[test]
fn a_lock_made_of_atomics_in_javascript_is_a_lock() {
    let Some(_machine) = machine("a lock of Atomics") else { return };
    let folder = Folder::new();
    let Some(waiting) = real_program("a lock of Atomics", "node", "worker-lock.js", &[]) else { return };
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "2s"]);
    let threads = blocked_for(&report, "Atomics.wait");
    assert!(threads > 0.7, "of four workers most wait for the lock, not {threads}: {:#}", report["threads"]["sleeps"]);
}

/// Makes sure that a condition is a lock where its variable says so: the distribution's Python has no names of inner functions.
#[test]
fn threads_that_wait_for_pythons_interpreter_lock_wait_for_a_lock() {
    let Some(_machine) = machine("Python's interpreter lock") else { return };
    let folder = Folder::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/real-programs/programs/interpreter_lock.py");
    let mut python = Command::new("/usr/bin/python3");
    python.arg(script);
    let waiting = Waiting::start(python);
    let recorder = Recorder::start_all(&folder, "recording", &["--user", "-p", &waiting.pid(), "-d", "2s"]);
    let recording = recorder.wait().recording();
    let (times, total_ns) = exact_times(&recording, "python3");
    let of = |state: &str| times.get(state).copied().unwrap_or(0);
    // Of four threads that compute, one has it.
    assert!(of("user-lock") * 10 >= total_ns, "{times:?}");
    assert!(of("condition") * 10 <= of("user-lock"), "{times:?}");
    // Most of its waits time out after 5 ms and begin again: the head counts them, too.
    let (threads, asleep) = for_locks(&json(lockmeter(["report", "--format", "json", &recording])));
    assert!(asleep > threads * 0.8, "{threads} threads wait for the lock, {asleep} by the head");
}

/// Threads that wait in `waits-for-ever held`.
const HELD: usize = 5;

#[test]
fn several_processes_are_metered_at_once_and_their_number_is_said() {
    let Some(_machine) = machine("several processes") else { return };
    let folder = Folder::new();
    let held = || Waiting::start(program(&folder, "waits-for-ever", "held"));
    let [first, second, other] = [held(), held(), held()];
    let pids = format!("{},{}", first.pid(), second.pid());
    let recorder = Recorder::start_all(&folder, "recording", &["-p", &pids, "-p", &first.pid(), "-d", "1s"]);
    let ended = recorder.wait();
    assert!(ended.stderr.contains("(2 processes now)"), "{}", ended.stderr);
    let report = json(lockmeter(["report", "--format", "json", &ended.recording()]));
    assert_eq!(open_waits(&report).len(), 2 * HELD, "{report:#}");
    let by_two_flags = recorded(&folder, &["-p", &first.pid(), "-p", &other.pid(), "-d", "1s"]);
    assert_eq!(open_waits(&by_two_flags).len(), 2 * HELD, "{by_two_flags:#}");
}

/// Regression: the last table of `top` counted whole waits against a part of an interval.
#[test]
fn top_counts_no_wait_that_goes_on_for_longer_than_its_interval() {
    let Some(_machine) = machine("top's last table") else { return };
    let folder = Folder::new();
    let held = Waiting::start(program(&folder, "waits-for-ever", "held"));
    let shown = run(lockmeter(["top", "-p", &held.pid(), "--interval", "1s", "-d", "2500ms"]));
    let shown = text(&shown.stdout);
    assert!(shown.matches("Still waiting: ").count() >= 2, "a table of a whole interval, and a last one: {shown}");
    assert!(!shown.contains(" tasks asleep on average"), "none of these waits ends: {shown}");
}

/// The recording ends when the last of them has.
#[test]
fn several_processes_are_metered_until_all_have_ended() {
    let Some(_machine) = machine("several processes' end") else { return };
    let folder = Folder::new();
    let held = || Waiting::start(program(&folder, "waits-for-ever", "held"));
    let [first, second] = [held(), held()];
    let pids = format!("{},{}", first.pid(), second.pid());
    let mut recorder = Recorder::start_all(&folder, "recording", &["-p", &pids]);
    drop(first);
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(recorder.runs(), "the second process goes on");
    drop(second);
    recorder.wait();
}

#[test]
fn children_are_left_out_where_that_is_asked_for() {
    let Some(_machine) = machine("no children") else { return };
    let folder = Folder::new();
    let shell = |flag: &str| {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("\"$@\"; exit")
            .arg("sh")
            .arg(user_workload(folder.path(), "waits-for-ever", &[]))
            .arg("held");
        let waiting = Waiting::start(command);
        let flags = ["-p", &waiting.pid(), "-d", "1s", flag];
        let flags: Vec<&str> = flags.into_iter().filter(|flag| !flag.is_empty()).collect();
        open_waits(&recorded(&folder, &flags)).len()
    };
    assert_eq!((shell(""), shell("--no-children")), (HELD, 0));
}

#[test]
fn the_machine_is_metered_while_a_command_runs() {
    let Some(_machine) = machine("the machine while a command runs") else { return };
    let folder = Folder::new();
    let _held = Waiting::start(program(&folder, "waits-for-ever", "held"));
    let file = folder.file("recording");
    let output = run(lockmeter(["record", "-a", "-o", &file, "--", "sh", "-c", "sleep 1; exit 7"]));
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let report = json(lockmeter(["report", "--format", "json", &file]));
    let of_program = open_waits(&report).into_iter().filter(|wait| wait["task"].as_str() == Some("waits-for-ever"));
    assert_eq!(of_program.count(), HELD, "{report:#}");
}

#[test]
fn a_control_group_is_found_by_its_name() {
    let Some(_machine) = machine("a control group's name") else { return };
    let group = match ControlGroup::of_test() {
        Ok(group) => group,
        Err(why) => return skip("a control group's name", &why),
    };
    let name = format!("lockmeter-test-unit-{}.service", std::process::id());
    let unit = ControlGroup::make(group.path().join(&name)).unwrap();
    let folder = Folder::new();
    let held = Waiting::start(program(&folder, "waits-for-ever", "held"));
    std::fs::write(unit.path().join("cgroup.procs"), held.pid()).unwrap();
    let report = recorded(&folder, &["--cgroup", &name, "-d", "1s"]);
    assert_eq!(open_waits(&report).len(), HELD, "{report:#}");
    let twin = ControlGroup::make(unit.path().join(&name)).unwrap();
    let (status, why) = refused(lockmeter(["record", "--cgroup", &name, "-d", "1s"]));
    assert!(status == 5 && why.contains("several control groups"), "{status}: {why}");
    drop((held, twin, unit));
}

#[test]
fn children_that_run_already_are_metered() {
    let Some(_machine) = machine("children that run already") else { return };
    let folder = Folder::new();
    let program = user_workload(folder.path(), "waits-for-ever", &[]);
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("'{}' held; true", program.display()));
    let waiting = Waiting::start(shell);
    let report = recorded(&folder, &["-p", &waiting.pid(), "-d", "1s"]);
    assert_eq!(open_waits(&report).len(), 5, "{report:#}");
}

/// A file system that is frozen: four writers wait for it since before the recording.
#[test]
fn who_waits_for_a_frozen_file_system_is_seen() {
    let Some(_machine) = machine("a frozen file system") else { return };
    let folder = Folder::new();
    let Some(frozen) = Frozen::new(folder.path()) else { return };
    let mut writers = frozen.writers();
    let report = recorded(&folder, &["-a", "-d", "1s"]);
    drop(frozen);
    for writer in &mut writers {
        wait(writer, "a writer");
    }
    let ids: Vec<u64> = writers.iter().map(|writer| writer.id().into()).collect();
    let waits = open_waits(&report);
    let of_writers: Vec<_> =
        waits.iter().filter(|wait| wait["tid"].as_u64().is_some_and(|tid| ids.contains(&tid))).collect();
    assert_eq!(of_writers.len(), 4, "{report:#}");
    for wait in of_writers {
        assert_eq!((wait["kind"].as_str(), wait["mode"].as_str()), (Some("percpu-rwsem"), Some("read")), "{wait}");
        assert!(wait["lock"].as_str().unwrap().contains("s_writers"), "{wait}");
        assert_eq!(wait["older"], true);
    }
}

/// Regression: the wait of one that began before the recording and ended in it was in the threads' time alone.
#[test]
fn waits_of_before_the_recording_that_end_in_it_are_counted_with_their_blocker() {
    let Some(_machine) = machine("a file system that is thawed") else { return };
    let folder = Folder::new();
    let Some(frozen) = Frozen::new(folder.path()) else { return };
    let mut writers = frozen.writers();
    let began = Instant::now();
    let recorder = Recorder::start_all(&folder, "recording", &["-a"]);
    let metered = Instant::now();
    std::thread::sleep(Duration::from_millis(300));
    let at_least = metered.elapsed();
    frozen.thaw();
    for writer in &mut writers {
        wait(writer, "a writer");
    }
    let at_most = began.elapsed();
    let recording = recorder.stop().recording();
    let report = json(lockmeter(["report", "--format", "json", "--by", "lock,blocker", "--task", "dd", &recording]));
    let is_freezing = |row: &&Value| row["lock"].as_str().unwrap().contains("s_writers");
    let rows: Vec<&Value> = report["rows"].as_array().unwrap().iter().filter(is_freezing).collect();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum("count"), 4, "{report:#}");
    let mean = Duration::from_nanos(sum("total_ns") / 4);
    assert!((at_least..at_most).contains(&mean), "{mean:?} is not from {at_least:?} to {at_most:?}: {report:#}");
    let thawed = |row: &&&Value| row["blocker"][0].as_str().is_some_and(|top| top.contains("thaw_super"));
    let by_thaw: u64 = rows.iter().filter(thawed).map(|row| row["total_ns"].as_u64().unwrap()).sum();
    assert!(by_thaw * 10 > sum("total_ns") * 9, "{report:#}");
}

fn writer(file: &Path) -> Child {
    let mut command = Command::new("dd");
    command.arg("if=/dev/zero").arg(format!("of={}", file.display())).args(["bs=4k", "count=1"]);
    command.stderr(Stdio::null()).spawn().unwrap()
}

/// A small file system of its own, frozen; thawed and unmounted when dropped.
struct Frozen {
    mount: std::path::PathBuf,
}

impl Frozen {
    fn new(folder: &Path) -> Option<Self> {
        let (image, mount) = (folder.join("image"), folder.join("mount"));
        std::fs::create_dir(&mount).unwrap();
        std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let sh = |command: String| {
            let output = run({
                let mut shell = Command::new("sh");
                shell.arg("-c").arg(command);
                shell
            });
            (output.status.success(), text(&output.stderr))
        };
        let (image, at) = (image.display(), mount.display());
        let (made, why) = sh(format!("mkfs.ext4 -q '{image}' && mount -o loop '{image}' '{at}' && fsfreeze -f '{at}'"));
        if !made {
            skip("a frozen file system", &format!("no file system can be mounted here: {why}"));
            return None;
        }
        Some(Self { mount })
    }

    /// Four processes that want to write there, and wait.
    fn writers(&self) -> Vec<Child> {
        let writers: Vec<Child> = (0..4).map(|at| writer(&self.mount.join(format!("file{at}")))).collect();
        let is_asleep = |pid: u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
        };
        until("four writers wait", || writers.iter().all(|writer| is_asleep(writer.id())));
        writers
    }

    fn thaw(&self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.mount).stderr(Stdio::null()).status();
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.thaw();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}
