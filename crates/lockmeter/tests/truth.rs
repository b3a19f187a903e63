//! What lockmeter counts is what the kernel's own tracing sees in the same run.
//!
//! The second witness is tracing with filters on the workload's command name: it counts every event of those threads and
//! nobody else's, so that a busy machine changes nothing. One wait can begin twice (a mutex first spins, then sleeps) but
//! ends once, so mutexes are counted by their ends: those that are of no other kind.

mod support;

use std::collections::HashMap;

use support::recorder::Recorder;
use support::report::{Report, report, sum};
use support::witness::{Event, Witness};
use support::{Folder, machine, run_workload, say, skip, too_busy};

/// The tolerance, in percent.
const TOLERANCE_PERCENT: f64 = 2.0;

/// Kinds and modes as the flags of `contention_begin` tell them (include/trace/events/lock.h).
const KINDS: [(&str, &str, u32); 7] = [
    ("spin", "exclusive", 1),
    ("rwlock", "read", 3),
    ("rwlock", "write", 5),
    ("rwsem", "read", 2),
    ("rwsem", "write", 4),
    ("percpu-rwsem", "read", 18),
    ("percpu-rwsem", "write", 20),
];

/// Fewer waits of a kind than this are side effects of a workload; two per cent of them is less than one.
const ENOUGH: u64 = 200;

/// Whether two numbers agree, in percent of the second.
fn agree(ours: u64, theirs: u64) -> bool {
    (ours as f64 - theirs as f64).abs() <= theirs as f64 * TOLERANCE_PERCENT / 100.0
}

/// Events of one workload's threads, as tracing counted them.
struct Counted {
    /// In the order of [`KINDS`].
    begins: Vec<u64>,
    ends: u64,
}

/// Runs a workload under both witnesses, which begin before it and end after it; lockmeter's report for each mode, for a row
/// by kind may hold several. `None` if something is not possible here.
fn both(test: &str, workload: &str, arguments: &[&str]) -> Option<(Counted, Vec<(&'static str, Report)>)> {
    let mut witness = Witness::come().map_err(|why| skip(test, &why)).ok()?;
    let folder = Folder::new();
    let counters: Vec<usize> = KINDS
        .iter()
        .map(|(_, _, kind)| {
            witness.watch("lock/contention_begin", &format!("flags == {kind} && comm == \"{workload}\""))
        })
        .collect();
    let ends = witness.watch("lock/contention_end", &format!("comm == \"{workload}\""));
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    run_workload(workload, arguments).map_err(|why| skip(test, &why)).ok()?;
    let recording = recorder.stop().recording();
    let counted =
        Counted { begins: counters.iter().map(|counter| witness.count(*counter)).collect(), ends: witness.count(ends) };
    let reports = ["exclusive", "read", "write"].map(|mode| {
        let report = report(&recording, &["--by", "kind,task", "--task", workload, "--mode", mode, "-n", "8"]);
        assert!(!report.lost.contains_key("task_folded"), "waits lost their task: whose were they?\n{}", report.shown);
        (mode, report)
    });
    Some((counted, reports.into()))
}

/// Makes sure that a kind is counted as often as the witness saw it, and that the workload contends on that kind at all.
fn counts_agree(workload: &str, arguments: &[&str], kind: &str) {
    let test = format!("events of {workload}");
    let Some(_machine) = machine(&test) else { return };
    let Some((witness, reports)) = both(&test, workload, arguments) else { return };
    let shown: String = reports.iter().map(|(_, report)| report.shown.as_str()).collect();
    let rows = |kind: &str, mode: &str| {
        let rows = reports.iter().filter(|(of, _)| *of == mode).flat_map(|(_, report)| &report.rows);
        sum(rows.filter(|row| row.task() == workload && row.kind.as_deref() == Some(kind))).0
    };
    // The slow path of a rwlock takes a spinlock inside it, which is part of the same wait to lockmeter.
    let rwlocks: u64 = KINDS.iter().zip(&witness.begins).filter(|(k, _)| k.0 == "rwlock").map(|(_, n)| n).sum();
    let mut lines = Vec::new();
    let mut wrong = false;
    let mut tested = 0;
    let mut compare = |name: &str, mode: &str, theirs: u64| {
        let ours = rows(name, mode);
        if ours + theirs > 0 {
            lines.push(format!("{workload}: {name} {mode}: lockmeter {ours}, witness {theirs}"));
        }
        wrong |= theirs >= ENOUGH && !agree(ours, theirs);
        tested += if name == kind { theirs } else { 0 };
    };
    for ((name, mode, _), theirs) in KINDS.iter().zip(&witness.begins) {
        if rwlocks < ENOUGH || *name != "spin" {
            compare(name, mode, *theirs);
        }
    }
    if rwlocks < ENOUGH {
        let others: u64 = witness.begins.iter().sum();
        compare("mutex", "exclusive", witness.ends.saturating_sub(others));
    }
    lines.iter().for_each(|line| say(line));
    assert!(!wrong, "the two differ by more than {TOLERANCE_PERCENT} %:\n{}\n{shown}", lines.join("\n"));
    if tested < ENOUGH {
        too_busy(&test, &format!("the witness saw {tested} waits of kind {kind}"));
    }
}

/// Makes sure that each wait on a mutex is counted once, though it may begin twice.
#[test]
fn mutexes_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("file-pos", &["--seconds", "2"], "mutex");
}

/// Makes sure that no contended spinlock is missed at a million a second.
#[test]
fn spinlocks_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("futex-bucket", &["--seconds", "2"], "spin");
}

/// Makes sure that readers and writers of rwsems are counted, and the spinlocks beside them.
#[test]
fn rwsems_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("mmap-fault", &["--seconds", "2"], "rwsem");
}

/// Makes sure that a rwlock's wait is counted once, not again for the spinlock inside it.
#[test]
fn rwlocks_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("tasklist", &["--seconds", "2"], "rwlock");
}

/// Makes sure that readers and writers of percpu-rwsems are counted.
#[test]
fn percpu_rwsems_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("hw-breakpoint", &["--seconds", "2"], "percpu-rwsem");
}

/// Makes sure that the waits of processes that live for a millisecond are counted.
#[test]
fn waits_of_short_lived_processes_are_counted_as_the_kernels_tracing_counts_them() {
    counts_agree("fork-storm", &["--seconds", "2"], "rwsem");
}

/// Total time between the first begin and the end of each wait in a trace.
fn replay(events: &[Event]) -> (u64, u64) {
    let mut waiting: HashMap<(&str, &str), u64> = HashMap::new();
    let (mut waits, mut total_us) = (0, 0);
    for event in events {
        let key = (event.task.as_str(), event.lock.as_str());
        if !event.is_end {
            waiting.entry(key).or_insert(event.time_us);
        } else if let Some(begin_us) = waiting.remove(&key) {
            waits += 1;
            total_us += event.time_us - begin_us;
        }
    }
    (waits, total_us * 1_000)
}

/// Meters a workload while tracing keeps its events; compares the number of waits and their total time.
fn total_agrees_with_the_replay(workload: &str, arguments: &[&str]) -> Option<(Report, serde_json::Value)> {
    let test = format!("total wait of {workload}");
    let _machine = machine(&test)?;
    let mut witness = Witness::come().map_err(|why| skip(&test, &why)).ok()?;
    let folder = Folder::new();
    witness.keep_events_of(workload);
    let recorder = Recorder::start(&folder, "recording", &["-a"]);
    let said = run_workload(workload, arguments).map_err(|why| skip(&test, &why)).ok()?;
    let recording = recorder.stop().recording();
    let (waits, total_ns) = replay(&witness.events());
    let report = report(&recording, &["--by", "lock,task", "--task", workload]);
    let (our_waits, our_total_ns) = sum(report.rows.iter().filter(|row| row.task() == workload));
    let line = format!("{workload}: {our_waits} waits of {our_total_ns} ns; replayed: {waits} waits of {total_ns} ns");
    say(&line);
    assert!(
        agree(our_waits, waits) && agree(our_total_ns, total_ns) && waits > 0,
        "the total differs from the replay of raw events by more than {TOLERANCE_PERCENT} %: {line}\n{}",
        report.shown
    );
    Some((report, said))
}

/// Makes sure that the waited time is that between the raw events, and lies within the bounds that the program itself
/// measured.
#[test]
fn waits_of_known_length_add_up_to_what_the_program_and_the_raw_events_say() {
    let arguments = ["--seconds", "2", "--threads", "5", "--hold-ns", "2000000"];
    let Some((report, said)) = total_agrees_with_the_replay("known-wait", &arguments) else { return };
    let number = |key: &str| said[key].as_u64().unwrap_or_else(|| panic!("known-wait did not say {key}: {said}"));
    let (count, total_ns) = sum(report.rows.iter().filter(|row| row.lock() == "file.f_pos_lock"));
    assert!(
        number("wait_ns_lower") <= total_ns && total_ns <= number("wait_ns_upper"),
        "{total_ns} ns are not within the program's bounds {said}\n{}",
        report.shown
    );
    // The holder's own lseek() before each round may meet a waiter that has not let go yet.
    assert!(count >= number("waits"), "{count} waits are fewer than the program made: {said}\n{}", report.shown);
    assert!(
        count <= number("waits") + number("rounds"),
        "{count} waits are more than the program made: {said}\n{}",
        report.shown
    );
}

/// Makes sure of the same where readers and writers of a rwsem wait for milliseconds.
#[test]
fn waits_for_a_rwsem_add_up_to_what_the_raw_events_say() {
    total_agrees_with_the_replay("dir-churn", &["--seconds", "2", "--threads", "3"]);
}
