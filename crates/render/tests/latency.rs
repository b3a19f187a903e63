//! What ran, as people read it: whole outputs.

use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery, LatencyReport};
use lockmeter_profile::{
    About, Bucket, Happened, Interval, Key, Kind, Lock, LongRun, Mode, Naming, RunWait, Task, Total, Value,
};
use lockmeter_render::latency::{LatencyHeadline, LatencyTable};
use lockmeter_render::{Csv, Exporter, Json, Table};

const START_NS: u64 = 1_795_284_000_000_000_000;

fn interval(rows: &[(Happened, Kind, &str, &str, u64, u64)]) -> Interval {
    let mut interval = Interval { start_unix_ns: START_NS, duration_ns: 1_000_000_000, ..Interval::default() };
    for (happened, kind, name, detail, count, each_ns) in rows {
        let lock = interval.tables.intern_lock(Lock {
            name: (*name).to_owned(),
            object: None,
            naming: Naming::Symbol,
            detail: (*detail).to_owned(),
        });
        let bucket = Bucket::of(*each_ns);
        let key = Key {
            happened: *happened,
            lock,
            kind: *kind,
            mode: Mode::Exclusive,
            task: None,
            cgroup: None,
            context: None,
            cpu: None,
            bucket,
        };
        let total_ns = count * each_ns;
        // Softirqs of timers call what is counted by itself.
        let spin_ns = if *name == "TIMER" { total_ns / 10 } else { total_ns };
        interval.totals.push(Total { key, value: Value { count: *count, total_ns, max_ns: *each_ns, spin_ns } });
    }
    interval
}

fn add_long_run(interval: &mut Interval) {
    let lock = |name: &str| Lock { name: name.into(), object: None, naming: Naming::Symbol, detail: String::new() };
    let ran = interval.tables.intern_lock(lock("tcp_write_timer"));
    let waited = interval.tables.intern_lock(lock("rtnl_mutex"));
    let task = interval.tables.intern_task(Task { tgid: 42, comm: "memcached".into(), own: false });
    interval.long_runs.push(LongRun {
        begin_unix_ns: START_NS + 123_456_789,
        cpu: 1,
        lock: ran,
        kind: Kind::Timer,
        run_ns: 1_900_000,
        asleep_ns: 0,
        delay_ns: Some(4_000_000),
        task: Some(task),
        waits: vec![RunWait {
            lock: waited,
            site: None,
            kind: Kind::Mutex,
            mode: Mode::Exclusive,
            count: 2,
            total_ns: 400_000,
        }],
    });
}

fn report(interval: &Interval) -> LatencyReport {
    let about = About {
        lockmeter_version: "0.1.0".into(),
        kernel_release: "6.12.1".into(),
        machine: "x86_64".into(),
        cpus: 4,
        scope: "whole machine".into(),
        start_unix_ns: START_NS,
        ..About::default()
    };
    let mut builder = LatencyBuilder::new(&about, &LatencyQuery::default());
    builder.add(interval);
    builder.report()
}

fn busy() -> LatencyReport {
    let mut interval = interval(&[
        (Happened::Run, Kind::Irq, "36 virtio1-req.0", "vring_interrupt", 200, 12_000),
        (Happened::Run, Kind::Softirq, "TIMER", "", 250, 8_000),
        (Happened::Run, Kind::Softirq, "TIMER", "", 1, 2_100_000),
        (Happened::Delay, Kind::Softirq, "TIMER", "", 250, 40_000),
        (Happened::Run, Kind::Timer, "tcp_write_timer", "", 1, 1_900_000),
        (Happened::Delay, Kind::Timer, "tcp_write_timer", "", 1, 4_000_000),
        (Happened::Run, Kind::Work, "nvme_reset_work", "nvme", 3, 700_000),
        (Happened::Idle, Kind::Work, "nvme_reset_work", "nvme", 3, 50_000_000),
        (Happened::Delay, Kind::Work, "nvme_reset_work", "nvme", 3, 9_000),
    ]);
    add_long_run(&mut interval);
    report(&interval)
}

fn written(exporter: &impl Exporter<LatencyReport>, report: &LatencyReport) -> String {
    let mut out = Vec::new();
    exporter.write(report, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_head_line_names_what_kept_a_cpu_longest_and_what_it_called() {
    let head = LatencyHeadline::of(&busy()).to_string();
    insta::assert_snapshot!(head);
}

#[test]
fn a_softirq_without_a_long_callee_blames_none() {
    let report = report(&interval(&[
        (Happened::Run, Kind::Softirq, "TIMER", "", 1, 2_100_000),
        (Happened::Run, Kind::Timer, "tcp_write_timer", "", 1, 100_000),
    ]));
    let head = LatencyHeadline::of(&report).to_string();
    assert!(head.starts_with("softirq TIMER kept a CPU longest: 2.10 ms in one run;"), "{head}");
    assert!(!head.contains("tcp_write_timer"), "{head}");
}

#[test]
fn an_empty_report_says_that_nothing_ran() {
    assert_eq!(LatencyHeadline::of(&report(&interval(&[]))).to_string(), "nothing that is metered ran in 1.00 s");
}

#[test]
fn what_keeps_the_cpu_and_work_items_have_tables_of_their_own() {
    insta::assert_snapshot!(written(&LatencyTable::default(), &busy()));
}

#[test]
fn a_terminal_of_80_columns_gets_lines_of_80_columns() {
    let table = LatencyTable { table: Table { width: Some(80), ..Table::default() }, histograms: true };
    let text = written(&table, &busy());
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn json_and_csv_of_what_ran() {
    insta::assert_snapshot!(written(&Json, &busy()));
    insta::assert_snapshot!(written(&Csv, &busy()).replace("\r\n", "\n"));
}
