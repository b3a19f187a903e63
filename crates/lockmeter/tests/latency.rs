//! `lockmeter latency` against what the kernel itself counts, on loads whose number is known.
//!
//! Every load begins after metering has begun and ends before it ends. So what it did is in the window as a whole, and what
//! else ran between the edges of two windows is the only difference: the loads are chosen to dwarf that.

mod support;

use std::time::Duration;
use std::{fs, thread};

use serde_json::Value;
use support::control_group::ControlGroup;
use support::recorder::Recorder;
use support::trace::{Ran, Trace};
use support::{Folder, is_emulated, kernel_counts, lockmeter, machine, run, runner_loads, skip, text, too_busy, trace};

const INTERRUPTS: &str = "/proc/interrupts";
const SOFTIRQS: &str = "/proc/softirqs";

/// How far a count may be from the kernel's, in thousandths.
const COUNT_TOLERANCE: u64 = 10;

/// A report of what ran while `load` did its work; its result is handed over.
fn metered<R>(arguments: &[&str], load: impl FnOnce() -> R) -> (Value, R) {
    let folder = Folder::new();
    let file = folder.file("latency.lockmeter");
    let mut command = lockmeter(["latency", "-o", &file]);
    command.args(arguments).current_dir(folder.path());
    let recorder = Recorder::spawn(command, file);
    let result = load();
    let recording = recorder.stop().recording();
    (report(&[&recording, "--format", "json"]), result)
}

fn report(arguments: &[&str]) -> Value {
    let mut command = lockmeter(["report"]);
    command.args(arguments);
    let output = run(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn row<'a>(report: &'a Value, kind: &str, name: &str) -> &'a Value {
    let mut rows = report["rows"].as_array().unwrap().iter();
    rows.find(|row| row["kind"] == kind && row["name"] == name)
        .unwrap_or_else(|| panic!("no row of {kind} {name} in\n{report:#}"))
}

fn number(row: &Value, key: &str) -> u64 {
    row[key].as_u64().unwrap_or_else(|| panic!("{key} is no number in {row}"))
}

/// Fails unless both are the same, but for the tolerance.
fn same_count(what: &str, counted: u64, truth: u64) {
    assert!(
        counted.abs_diff(truth) * 1_000 <= truth * COUNT_TOLERANCE,
        "{what}: lockmeter counted {counted}, the kernel {truth}"
    );
}

/// The window's edges can hold a burst of something else: what fails once is done again before it counts as wrong.
fn patiently(test: &str, mut attempt: impl FnMut() -> Result<(), String>) {
    let mut last = String::new();
    for _ in 0..3 {
        match attempt() {
            Ok(()) => return,
            Err(why) => last = why,
        }
    }
    panic!("{test}: three times in a row: {last}");
}

fn compare(what: &str, counted: u64, truth: u64) -> Result<(), String> {
    if counted.abs_diff(truth) * 1_000 <= truth * COUNT_TOLERANCE {
        Ok(())
    } else {
        Err(format!("{what}: lockmeter counted {counted}, the kernel {truth}"))
    }
}

/// Makes sure that a timer's function is counted once for each time it ran, and its delay with it.
#[test]
fn every_expiration_of_a_timerfd_is_one_run_of_its_function() {
    let Some(_machine) = machine("timerfd") else { return };
    let (report, reads) = metered(&["--timer"], || runner_loads::expire_timerfd(Duration::from_micros(500), 2_000));
    let timerfd = row(&report, "hrtimer", "timerfd_tmrproc");
    same_count("runs of timerfd_tmrproc", number(timerfd, "count"), reads);
    assert_eq!(timerfd["delay_count"], timerfd["count"], "a high-resolution timer knows when it was due: {timerfd}");
    let histogram: u64 =
        timerfd["histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
    assert_eq!(histogram, number(timerfd, "count"), "the histogram holds every run");
    assert!(report["rows"].as_array().unwrap().iter().all(|row| row["kind"] == "timer" || row["kind"] == "hrtimer"));
}

/// Makes sure that network softirqs and the timer interrupt are counted as `/proc/softirqs` and `/proc/interrupts` do.
#[test]
fn softirqs_and_interrupts_are_as_many_as_proc_says() {
    let Some(_machine) = machine("proc") else { return };
    let counts = || (kernel_counts::of(SOFTIRQS, "NET_RX"), kernel_counts::of(INTERRUPTS, "LOC"));
    patiently("counts of /proc", || {
        let (report, (before, after)) = metered(&["--irq", "--softirq"], || {
            let before = counts();
            thread::scope(|scope| {
                scope.spawn(|| runner_loads::expire_timerfd(Duration::from_micros(200), 8_000));
                runner_loads::ping_pong(20_000, Duration::ZERO);
            });
            (before, counts())
        });
        compare("NET_RX", number(row(&report, "softirq", "NET_RX"), "count"), after.0 - before.0)?;
        compare("LOC", number(row(&report, "irq", "LOC"), "count"), after.1 - before.1)
    });
}

/// Makes sure that softirqs which come too often to be timed all the time are as many as `/proc/softirqs` says, that a part of them
/// is timed, that the report says so, and that `--every` times them all.
#[test]
fn what_is_timed_in_windows_only_is_counted_as_a_whole() {
    let Some(_machine) = machine("windows") else { return };
    // Faster than any budget allows, for longer than any gap between two windows.
    const DATAGRAMS: u32 = 800_000;
    let load = || {
        let before = kernel_counts::of(SOFTIRQS, "NET_RX");
        runner_loads::send_to_self(DATAGRAMS);
        kernel_counts::of(SOFTIRQS, "NET_RX") - before
    };
    patiently("counts of what is timed in windows", || {
        let (report, truth) = metered(&["--softirq"], load);
        let row = row(&report, "softirq", "NET_RX");
        compare("NET_RX in windows", number(row, "count"), truth)?;
        let timed = number(row, "timed");
        if timed < 100 || timed * 2 > truth {
            return Err(format!("{timed} of {truth} softirqs were timed"));
        }
        assert!(
            number(row, "mean_ns") * number(row, "count") <= number(row, "total_ns") + number(row, "count"),
            "{row}"
        );
        let histogram: u64 =
            row["histogram"].as_array().unwrap().iter().map(|bucket| bucket[1].as_u64().unwrap()).sum();
        assert_eq!(histogram, number(row, "count"), "the histogram is scaled to all runs");
        Ok(())
    });
    let (report, truth) = metered(&["--softirq", "--every"], load);
    let row = row(&report, "softirq", "NET_RX");
    same_count("NET_RX with --every", number(row, "count"), truth);
    assert_eq!(row["timed"], row["count"], "--every times all: {row}");
}

/// Makes sure that every work item is counted, with the time it was queued.
#[test]
fn every_work_item_is_counted_and_was_seen_queued() {
    let Some(_machine) = machine("work items") else { return };
    let (report, items) = metered(&["--work"], || runner_loads::refresh_statistics(300));
    let refresh = row(&report, "work", "refresh_vm_stats");
    same_count("runs of refresh_vm_stats", number(refresh, "count"), items);
    same_count("delays of refresh_vm_stats", number(refresh, "delay_count"), items);
    assert!(number(refresh, "delay_max_ns") < 10_000_000_000, "a delay of a queue that is waited for: {refresh}");
}

/// Makes sure that writeback's work items are those that the workqueue's own tracepoint shows.
#[test]
fn work_items_of_writeback_are_as_many_as_tracefs_shows() {
    let Some(_machine) = machine("writeback") else { return };
    let folder = Folder::new();
    let trace = match Trace::start(folder.path(), &["workqueue/workqueue_execute_start"]) {
        Ok(trace) => trace,
        Err(why) => return skip("writeback", &why),
    };
    let (report, (begin_ns, end_ns)) = metered(&["--work"], || {
        let begin_ns = monotonic_ns();
        for time in 0..150 {
            let file = fs::File::create(folder.path().join(format!("written-{}", time % 3))).unwrap();
            std::io::Write::write_all(&mut &file, &[7; 65_536]).unwrap();
            file.sync_all().unwrap();
        }
        (begin_ns, monotonic_ns())
    });
    // Traced is from before the meter came until after it went: it saw at least what began while the load ran, and no more
    // than all.
    let mut functions: std::collections::HashMap<String, (u64, u64)> = std::collections::HashMap::new();
    for (_, ns, _, fields) in trace.stop() {
        // `work struct 00000000deadbeef: function wb_workfn` or, as other events have it, `function=`.
        let function = fields.rsplit(['=', ' ']).next().unwrap_or_default();
        let (meanwhile, all) = functions.entry(function.to_owned()).or_default();
        *meanwhile += u64::from((begin_ns..end_ns).contains(&ns));
        *all += 1;
    }
    let Some((function, (meanwhile, all))) =
        functions.into_iter().max_by_key(|(_, (meanwhile, _))| *meanwhile).filter(|(_, (times, _))| *times > 100)
    else {
        // A file system in memory writes nothing back.
        return too_busy("writeback", "no work item ran often enough to be compared; is the test folder on a disk?");
    };
    let counted = number(row(&report, "work", &function), "count");
    // One may still be running when the meter goes.
    assert!(
        (meanwhile.saturating_sub(2)..=all).contains(&counted),
        "{function}: lockmeter counted {counted}, tracefs {meanwhile} while the load ran and {all} in all"
    );
}

fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Makes sure that run times are those that other code makes of the same tracepoints, with interrupts taken out of what they
/// interrupted.
#[test]
fn run_times_are_those_of_the_same_events_in_tracefs() {
    const EVENTS: [&str; 5] = [
        "irq/softirq_entry",
        "irq/softirq_exit",
        "timer/hrtimer_expire_entry",
        "timer/hrtimer_expire_exit",
        "irq_vectors",
    ];
    let Some(_machine) = machine("run times") else { return };
    patiently("run times", || {
        let folder = Folder::new();
        let (report, traced) = metered(&[], || {
            let trace = Trace::start(folder.path(), &EVENTS)?;
            thread::scope(|scope| {
                scope.spawn(|| runner_loads::expire_timerfd(Duration::from_micros(500), 3_000));
                runner_loads::ping_pong(5_000, Duration::from_micros(100));
            });
            Ok::<_, String>(trace::runs(&trace.stop()))
        });
        let traced = traced?;
        for (kind, name) in [("softirq", "NET_RX"), ("hrtimer", "timerfd_tmrproc"), ("irq", "LOC")] {
            let truth = traced.get(&format!("{kind} {name}")).copied().unwrap_or_default();
            same_mean(&format!("{kind} {name}"), row(&report, kind, name), truth)?;
        }
        Ok(())
    });
}

/// Each reads its clock a little before or after the other, and each is seen by the other as a part of the run.
fn same_mean(what: &str, row: &Value, truth: Ran) -> Result<(), String> {
    const OTHER_PROBE_NS: u64 = 1_500;
    let other_probe_ns = if is_emulated() { 20 * OTHER_PROBE_NS } else { OTHER_PROBE_NS };
    let mean_ns = number(row, "mean_ns");
    let truth_ns = truth.total_ns / truth.count.max(1);
    if truth.count < 1_000 {
        return Err(format!("{what}: tracefs shows only {} runs", truth.count));
    }
    if mean_ns.abs_diff(truth_ns) <= truth_ns / 4 + other_probe_ns {
        Ok(())
    } else {
        Err(format!("{what}: a mean run of {mean_ns} ns, of {truth_ns} ns by tracefs ({} runs)", truth.count))
    }
}

/// Makes sure that the time of an outer run holds what it called, and that own times count no moment twice.
#[test]
fn own_times_add_up_to_less_than_the_time_that_passed() {
    let Some(_machine) = machine("own times") else { return };
    let (report, _) = metered(&[], || runner_loads::expire_timerfd(Duration::from_micros(200), 5_000));
    let (interrupt, timer) = (row(&report, "irq", "LOC"), row(&report, "hrtimer", "timerfd_tmrproc"));
    assert!(
        number(interrupt, "own_ns") < number(interrupt, "total_ns"),
        "the timer interrupt calls timers: {interrupt}"
    );
    assert_eq!(timer["own_ns"], timer["total_ns"], "a timer calls nothing that is counted by itself");
    let machine_ns = number(&report, "duration_ns") * number(&report, "cpus");
    assert!(number(&report["head"], "own_ns") < machine_ns, "{}", report["head"]);
}

/// Makes sure that a long run tells which lock it waited for: the work items that bury control groups meet the one that moves a
/// process between others.
#[test]
fn a_long_run_says_which_lock_it_waited_for() {
    const TEST: &str = "long runs";
    let Some(_machine) = machine(TEST) else { return };
    let parent = match ControlGroup::of_test() {
        Ok(group) => group,
        Err(why) => return skip(TEST, &why),
    };
    patiently("waits in work items", || {
        let (report, ()) = metered(&["--threshold", "20us"], || runner_loads::churn_control_groups(&parent));
        let runs = report["long_runs"].as_array().unwrap();
        // The wall clock may have been set a little meanwhile.
        let start_ns = number(&report, "start_unix_ns") - 1_000_000;
        assert!(runs.iter().all(|run| number(run, "begin_unix_ns") >= start_ns), "before {start_ns}: {runs:#?}");
        let is_burial = |run: &&Value| run["name"].as_str().unwrap().starts_with("css_");
        let waited: Vec<_> = runs.iter().filter(is_burial).filter(|run| run["waits"][0].is_object()).collect();
        if waited.is_empty() {
            return Err(format!("no burial waited for a lock: {runs:#?}"));
        }
        let mut interrupted_ns = 0;
        for run in waited {
            let asleep_ns = number(run, "asleep_ns");
            let elapsed_ns = number(run, "run_ns") + asleep_ns;
            for wait in run["waits"].as_array().unwrap() {
                assert!(!wait["lock"].as_str().unwrap().is_empty() && number(wait, "count") > 0, "{run:#}");
                let is_long = number(wait, "total_ns") / number(wait, "count") >= 20_000;
                assert!(!is_long || wait["caller"][0].is_string(), "a long wait without its stack: {run:#}");
                let beyond_ns = number(wait, "total_ns").saturating_sub(elapsed_ns + elapsed_ns / 10);
                // Of a run that did not leave its CPU its own time is known, without the interrupts that a wait holds, too.
                assert!(beyond_ns == 0 || asleep_ns == 0, "a wait longer than its run: {run:#}");
                interrupted_ns += beyond_ns;
            }
        }
        let rows = report["rows"].as_array().unwrap().iter();
        let interrupts = rows.filter(|row| row["kind"] == "irq" || row["kind"] == "softirq");
        let interrupts_ns: u64 = interrupts.map(|row| number(row, "own_ns")).sum();
        assert!(
            interrupted_ns <= interrupts_ns,
            "waits {interrupted_ns} ns beyond their runs, interrupts {interrupts_ns}"
        );
        Ok(())
    });
}

/// Makes sure that the tables of an interval and of the whole, the recording and its formats tell one story.
#[test]
fn tables_json_and_csv_of_a_recording_agree() {
    let Some(_machine) = machine("formats") else { return };
    let folder = Folder::new();
    let file = folder.file("latency.lockmeter");
    let live = run(lockmeter(["latency", "-d", "2s", "--interval", "500ms", "-o", &file, "--format", "json"]));
    assert!(live.status.success(), "{}", text(&live.stderr));
    let objects: Vec<Value> =
        serde_json::Deserializer::from_slice(&live.stdout).into_iter().collect::<Result<_, _>>().unwrap();
    // How many intervals there are is up to a busy machine, too.
    let (all, intervals) = objects.split_last().unwrap();
    assert!(!intervals.is_empty(), "{all}");
    let whole = report(&[&file, "--format", "json"]);
    assert_eq!(all["rows"], whole["rows"]);
    let csv = run(lockmeter(["report", &file, "--format", "csv"]));
    let mut reader = csv::Reader::from_reader(&csv.stdout[..]);
    let mut keys: Vec<String> = reader.headers().unwrap().iter().map(str::to_owned).collect();
    // Both in the same order, but a JSON object that was read back has its own.
    keys.sort();
    assert_eq!(keys, whole["rows"][0].as_object().unwrap().keys().cloned().collect::<Vec<_>>());
    assert_eq!(reader.records().count(), whole["rows"].as_array().unwrap().len());
    let table = text(&run(lockmeter(["report", &file, "--histogram", "-n", "2"])).stdout);
    let sentence = whole["head"]["sentence"].as_str().unwrap();
    assert!(table.to_lowercase().starts_with(&sentence.to_lowercase()), "{sentence}\n{table}");
    assert!(table.contains("#####"), "no histogram in\n{table}");
    let top = run(lockmeter(["top", "--latency", "-d", "300ms"]));
    assert!(text(&top.stdout).contains("LOC"), "{}", text(&top.stdout));
}

/// Makes sure that the sentence of each mistake says what, where and what to do.
#[test]
fn mistakes_on_the_command_line_get_one_sentence_each() {
    const USAGE: i32 = 2;
    for (arguments, parts) in [
        (&["latency", "--threshold", "5"][..], &["unit", "5ms"][..]),
        (&["latency", "--threshold", "0s"], &["1us"]),
        (&["latency", "--threshold", "soon"], &["10s"]),
        (&["latency", "--interval", "2s", "-d", "1s"], &["--interval", "longer than -d"]),
        (&["latency", "--interval", "1s", "--format", "csv"], &["CSV", "--format json"]),
        (&["latency", "--histogram", "--format", "json"], &["--histogram"]),
        (&["latency", "--sort", "maxns"], &["maxns", "did you mean `max_ns`"]),
        (&["latency", "-p", "1"], &["-p"]),
        (&["top", "--latency", "--by", "lock,caller"], &["--latency", "--by"]),
    ] {
        refuses(arguments, USAGE, parts);
    }
}

/// Makes sure that flags which make no sense for what ran are refused by name, and that the rest works.
#[test]
fn a_recording_of_what_ran_refuses_groupings_of_waits() {
    let Some(_machine) = machine("groupings") else { return };
    let folder = Folder::new();
    let file = folder.file("latency.lockmeter");
    assert!(run(lockmeter(["latency", "-d", "300ms", "-o", &file])).status.success());
    for flags in [&["--by", "caller"][..], &["--format", "folded"], &["--format", "pprof"], &["--task", "x"]] {
        refuses(&[&["report", &file], flags].concat(), 2, &[flags[0], "--kind"]);
    }
    let interrupts = report(&[&file, "--kind", "irq", "--format", "json"]);
    let rows = interrupts["rows"].as_array().unwrap();
    assert!(!rows.is_empty() && rows.iter().all(|row| row["kind"] == "irq"), "{rows:?}");
}

/// Makes sure that nobody without privileges is left guessing.
#[test]
fn without_privileges_the_missing_ones_are_named() {
    let Some(_machine) = machine("privileges") else { return };
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-sys_admin,-bpf,-perfmon", "--inh-caps=-all", "--", env!("CARGO_BIN_EXE_lockmeter")]);
    let output = run({
        command.args(["latency", "-d", "1s"]);
        command
    });
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("CAP_BPF") && said.contains("CAP_PERFMON") && said.lines().count() == 1, "{said}");
}

/// Makes sure that a kernel without a tracepoint is said to lack it, with since when others have it, and the rest goes on. The
/// kernel's types are changed for this, for they tell which tracepoints there are.
#[test]
fn a_tracepoint_that_is_missing_is_named_with_its_version_and_the_rest_goes_on() {
    const NAME: &[u8] = b"btf_trace_tasklet_entry";
    let Some(_machine) = machine("a missing tracepoint") else { return };
    let folder = Folder::new();
    let mut types = fs::read("/sys/kernel/btf/vmlinux").unwrap();
    if let Some(at) = types.windows(NAME.len()).position(|bytes| bytes == NAME) {
        types[at + NAME.len() - 1] = b'?';
    }
    let changed = folder.file("types");
    fs::write(&changed, types).unwrap();
    let without_tasklets = |arguments: &str| {
        let script = format!(
            "mount --bind {changed} /sys/kernel/btf/vmlinux; exec {} {arguments}",
            env!("CARGO_BIN_EXE_lockmeter")
        );
        let mut command = std::process::Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", &script]);
        run(command)
    };
    let all = without_tasklets("latency -d 300ms");
    let said = text(&all.stderr);
    assert!(all.status.success() && said.contains("tasklets") && said.contains("Linux 6.4"), "{}{said}", all.status);
    assert!(text(&all.stdout).contains("LOC"), "the rest did not go on:\n{}", text(&all.stdout));
    let only = without_tasklets("latency --tasklet -d 300ms");
    assert_eq!(only.status.code(), Some(3), "{}", text(&only.stderr));
    assert_eq!(text(&only.stderr).lines().count(), 1, "{}", text(&only.stderr));
}

fn refuses(arguments: &[&str], status: i32, parts: &[&str]) {
    let mut command = lockmeter([]);
    command.args(arguments);
    let output = run(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}");
    let sentences = said.lines().filter(|line| line.starts_with("lockmeter: ") || line.starts_with("error: ")).count();
    assert_eq!(sentences, 1, "{arguments:?} did not say one sentence:\n{said}");
    for part in parts {
        assert!(said.contains(part), "{arguments:?} did not say `{part}`:\n{said}");
    }
}
