//! Where threads' time went and who waits still, for people and as JSON.

mod reports;

use std::sync::Arc;

use lockmeter_profile::{
    Happened, Kind, Mode, OpenWaitRow, Report, RowHolder, RowTask, RowWaker, SampledSpin, SleepRow, SpinLoop, SpinRow,
    Spinning, StateTime, ThreadState, ThreadsReport, Value,
};
use lockmeter_render::{Headline, Json, Table, head_sentences};
use reports::{by_lock, empty, idle_threads, row, value, written};

fn stack(functions: &[&str]) -> Arc<[Arc<str>]> {
    functions.iter().map(|function| Arc::from(*function)).collect()
}

fn task(comm: &str) -> RowTask {
    RowTask { tgid: Some(40), comm: comm.to_owned() }
}

/// A thread that waits for a lock which another one has.
fn wait(comm: &str, tid: u32, lock: &str, holder: (&str, u32)) -> OpenWaitRow {
    OpenWaitRow {
        task: task(comm),
        tid,
        is_kernel: false,
        lock: lock.to_owned(),
        kind: Kind::Mutex,
        mode: Mode::Exclusive,
        instance: Some(0x4040),
        stack: stack(&["transfer", "main"]),
        age_ns: 4_000_000_000,
        is_older: true,
        is_timed: false,
        holder: Some(RowHolder {
            task: task(holder.0),
            tid: holder.1,
            state: Some(ThreadState::UserLock),
            stack: stack(&["transfer", "main"]),
        }),
        ended_holder: None,
        deadlock: None,
    }
}

fn report(threads: ThreadsReport) -> Report {
    Report { threads: Some(threads), ..empty() }
}

fn deadlock() -> Report {
    let in_circle = |wait| OpenWaitRow { deadlock: Some(0), ..wait };
    let open_waits = vec![
        in_circle(wait("payer", 41, "bank:credit_lock", ("payee", 42))),
        in_circle(wait("payee", 42, "bank:debit_lock", ("payer", 41))),
        wait("audit", 43, "bank:debit_lock", ("payer", 41)),
    ];
    let states = vec![StateTime { state: ThreadState::UserLock, total_ns: 30_000_000_000, error_ns: 0 }];
    let total_ns = 30_000_000_000;
    report(ThreadsReport { total_ns, rest_ns: 0, states, sleeps: Vec::new(), open_waits, ..idle_threads() })
}

#[test]
fn a_deadlock_comes_first() {
    insta::assert_snapshot!(written(&Table::default(), &deadlock()));
    insta::assert_snapshot!(written(&Json, &deadlock()));
}

#[test]
fn a_deadlock_that_has_ended_is_told_as_one_that_was() {
    let mut ended = deadlock();
    if let Some(threads) = &mut ended.threads {
        threads.cut_waits = std::mem::take(&mut threads.open_waits);
    }
    insta::assert_snapshot!(written(&Table::default(), &ended));
}

#[test]
fn waits_of_a_kernel_lock_are_told_together_whatever_the_process() {
    let writer = |tid: u32| OpenWaitRow {
        task: RowTask { tgid: Some(tid), comm: "dd".to_owned() },
        is_kernel: true,
        kind: Kind::PercpuRwsem,
        mode: Mode::Read,
        holder: None,
        is_timed: tid > 60,
        ..wait("dd", tid, "super_block.s_writers", ("", 0))
    };
    let open_waits = vec![writer(60), writer(61)];
    insta::assert_snapshot!(written(&Table::default(), &report(ThreadsReport { open_waits, ..idle_threads() })));
}

#[test]
fn places_are_shown_with_their_share_and_its_error() {
    let sleep = |state, lock: Option<&str>, functions: &[&str], total_ns, at_rest| SleepRow {
        state,
        lock: lock.map(str::to_owned),
        at_rest,
        comm: "postgres".to_owned(),
        stack: stack(functions),
        total_ns,
        error_ns: total_ns / 20,
        looks: 90,
        woken_by: None,
    };
    let mut sleeps = vec![
        sleep(
            ThreadState::UserLock,
            Some("PostgreSQL heavyweight lock"),
            &["epoll_wait", "ProcSleep"],
            12_000_000_000,
            false,
        ),
        sleep(ThreadState::NetworkOrPoll, None, &["epoll_wait", "main"], 9_000_000_000, true),
        sleep(ThreadState::DiskIo, None, &[], 3_000_000_000, false),
        sleep(ThreadState::PageFault, None, &["memcpy"], 200_000_000, false),
    ];
    let waker = RowWaker { comm: "walwriter".to_owned(), stack: stack(&["SetLatch", "main"]), ppm: 870_000 };
    sleeps[0].woken_by = Some(waker);
    let time = |state, total_ns| StateTime { state, total_ns, error_ns: total_ns / 20 };
    let states = vec![
        time(ThreadState::UserLock, 12_000_000_000),
        time(ThreadState::Running, 5_800_000_000),
        time(ThreadState::DiskIo, 3_000_000_000),
        time(ThreadState::PageFault, 200_000_000),
    ];
    let threads = ThreadsReport { total_ns: 30_000_000_000, rest_ns: 9_000_000_000, states, sleeps, ..idle_threads() };
    insta::assert_snapshot!(written(&Table::default(), &report(threads.clone())));
    insta::assert_snapshot!(written(&Table { width: Some(80), ..Table::default() }, &report(threads.clone())));
    // One wait for it that went on at the end.
    let mut with_a_row = report(threads);
    with_a_row.rows = by_lock().rows;
    with_a_row.rows.truncate(1);
    with_a_row.rows[0].lock = Some("PostgreSQL heavyweight lock".into());
    with_a_row.rows[0].value = value(1, 3_000_000_000, 3_000_000_000, 0);
    let shown = written(&Table::default(), &with_a_row);
    assert!(shown.starts_with("Threads waited most for a PostgreSQL heavyweight lock, 1.2 of them on average; the table of locks has 25 % of that."), "{shown}");
}

/// Four threads that run for most of ten seconds, and spin for a third of it.
fn spinning_threads() -> ThreadsReport {
    let spin = |how, wait: Option<(Happened, Kind, Option<&str>)>, functions: &[&str], samples: u64| SpinRow {
        how,
        happened: wait.map(|(happened, ..)| happened),
        kind: wait.map(|(_, kind, _)| kind),
        lock: wait.and_then(|(.., lock)| lock.map(str::to_owned)),
        comm: "server".to_owned(),
        stack: stack(functions),
        spun: spun(samples),
    };
    let spins = vec![
        spin(
            SpinLoop::Pause,
            Some((Happened::Wait, Kind::Spin, Some("server:queue_lock"))),
            &["next_job", "main"],
            600,
        ),
        spin(SpinLoop::Yield, None, &["take_ticket", "main"], 300),
        spin(SpinLoop::Pause, Some((Happened::Idle, Kind::Barrier, None)), &["step", "main"], 100),
    ];
    let states = vec![StateTime { state: ThreadState::Running, total_ns: 28_000_000_000, error_ns: 0 }];
    ThreadsReport { total_ns: 30_000_000_000, rest_ns: 0, states, spins, run_samples: 2_800, ..idle_threads() }
}

fn spun(samples: u64) -> SampledSpin {
    let total_ns = samples * 10_000_000;
    SampledSpin { samples, total_ns, added_ns: total_ns, variance_ns2: samples as f64 * 1e14 }
}

#[test]
fn spinning_is_shown_with_its_error_and_by_what_it_is_for() {
    let mut shown = report(spinning_threads());
    let value = Value { count: 0, total_ns: 6_000_000_000, max_ns: 0, spin_ns: 6_000_000_000 };
    let mut row = row("server:queue_lock", Kind::Spin, Mode::Exclusive, self::value(2, 2, 1, 2));
    (row.value, row.sampled_spin, row.histogram) = (value, Some(Box::new(spun(600))), Vec::new());
    (shown.rows, shown.waits, shown.user_waits) = (vec![row], value, value);
    shown.spinning = Spinning { preempted_ns: 0, sampled: spun(600) };
    insta::assert_snapshot!(written(&Table::default(), &shown));
    let json: serde_json::Value = serde_json::from_str(&written(&Json, &shown)).unwrap();
    let (row, spin) = (&json["rows"][0], &json["threads"]["spins"][0]);
    assert!(row["count"].is_null() && row["p99_ns"].is_null() && row["mean_ns"].is_null(), "{row:#}");
    assert_eq!((&row["spin_samples"], &row["spin_error_ns"]), (&600.into(), &spin["error_ns"]));
    assert_eq!(json["head"]["spin_error_ns"], spin["error_ns"]);
}

/// Three of four threads wait for a lock of this kind for all of ten seconds, at rest or not.
fn waiting(state: ThreadState, at_rest: bool) -> ThreadsReport {
    let sleep = SleepRow {
        state,
        lock: None,
        at_rest,
        comm: "server".to_owned(),
        stack: stack(&["visit", "start_thread"]),
        total_ns: 30_000_000_000,
        error_ns: 0,
        looks: 300,
        woken_by: None,
    };
    let states = vec![StateTime { state, total_ns: 30_000_000_000, error_ns: 0 }];
    let (states, rest_ns) = if at_rest { (Vec::new(), 30_000_000_000) } else { (states, 0) };
    ThreadsReport { total_ns: 40_000_000_000, rest_ns, states, sleeps: vec![sleep], ..idle_threads() }
}

/// Regression: a spin of some microseconds made "nobody slept" of threads that waited for a file lock all the while.
#[test]
fn what_threads_wait_for_and_no_table_has_is_said_first() {
    let with_a_spin = |threads| {
        let mut report = report(threads);
        let spin = Value { count: 1, total_ns: 7_000, max_ns: 7_000, spin_ns: 7_000 };
        (report.waits, report.worst) = (spin, None);
        report
    };
    let said = |report: &Report| head_sentences(report).join(" ");
    let of_files = said(&with_a_spin(waiting(ThreadState::FileLock, false)));
    assert!(of_files.starts_with("Threads waited most for file locks, 3.0 of them on average; the table of locks has no waits for these. Waiting"), "{of_files}");
    assert!(of_files.contains("; no wait that has ended slept"), "{of_files}");
    let mut of_programs = with_a_spin(waiting(ThreadState::UserLock, false));
    assert!(
        said(&of_programs).starts_with("Threads waited most for locks of programs, 3.0 of them"),
        "{}",
        said(&of_programs)
    );
    of_programs.leaves_locks_out = true;
    assert!(said(&of_programs).starts_with("Waiting"), "{}", said(&of_programs));
    of_programs.leaves_locks_out = false;
    of_programs.user_waits = value(9, 16_000_000_000, 9, 0);
    assert!(said(&of_programs).starts_with("Waiting"), "{}", said(&of_programs));
}

/// Regression: who waits for a lock whose holder reads a slow pipe was "nothing".
#[test]
fn waits_that_count_as_rest_are_no_silent_all_clear() {
    let said = head_sentences(&report(waiting(ThreadState::UserLock, true))).join(" ");
    let begin = "3.0 threads on average waited for a lock whose holder waited for input, mostly in visit < start_thread: they count as at rest";
    assert!(said.starts_with(begin) && said.contains("Nothing else waited for a lock in 10.0 s."), "{said}");
}

/// Regression: a program that spins in a lock of its own all the time was one in which nothing waited.
#[test]
fn spinning_for_what_is_not_known_is_no_all_clear() {
    let mut threads = spinning_threads();
    threads.spins.remove(0);
    let report = report(threads);
    assert!(!Headline::of(&report).is_nothing());
    let head = Headline::of(&report).to_string();
    assert!(head.starts_with("no wait for a lock was seen in 10.0 s, yet threads spun for 3.00 s (± "), "{head}");
    assert!(head.ends_with("), for what is not known, mostly in take_ticket"), "{head}");
}

#[test]
fn without_a_look_at_threads_nothing_is_said_to_be_all_clear() {
    let unseen = Report { threads: None, ..empty() };
    assert!(
        written(&Table::default(), &unseen)
            .starts_with("No wait for a lock ended in 10.0 s; waits that still go on were not looked for.")
    );
    assert!(written(&Table::default(), &empty()).starts_with("Nothing waited for a lock in 10.0 s."));
}

/// Stacks that differ in frames that are not shown would be rows that look the same.
#[test]
fn places_that_look_the_same_are_one_row() {
    let sleep = |functions: &[&str], total_ns| SleepRow {
        state: ThreadState::Condition,
        lock: None,
        at_rest: false,
        comm: "writer".to_owned(),
        stack: stack(functions),
        total_ns,
        error_ns: total_ns / 10,
        looks: 90,
        woken_by: None,
    };
    let sleeps = vec![
        sleep(&["wait", "join_group", "write", "put", "first"], 3_000_000_000),
        sleep(&["wait", "other", "write", "put"], 2_500_000_000),
        sleep(&["wait", "join_group", "write", "put", "second"], 4_000_000_000),
    ];
    let shown = written(&Table::default(), &report(ThreadsReport { sleeps, ..idle_threads() }));
    let rows: Vec<&str> = shown.lines().filter(|line| line.ends_with("writer")).collect();
    assert_eq!(rows.len(), 2, "{shown}");
    // 7 s, and the root of 0.3² + 0.4² s as its error.
    assert!(rows[0].contains("7.00 s") && shown.matches("join_group").count() == 1, "{shown}");
}
