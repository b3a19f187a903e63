//! Reports and intervals made by hand, for every format to show.
#![allow(dead_code, reason = "each test program uses some of them")]

use std::sync::Arc;

use lockmeter_profile::{
    About, BlockerSource, Bucket, Dimension, Goroutines, Happened, Kind, Loss, Losses, Mode, Naming, Overhead,
    RecordingKind, Report, Row, RowBlocker, RowTask, Spinning, StateTime, Swaps, SwitchedOff, ThreadState,
    ThreadsReport, Unnamed, Value, Worst,
};
use lockmeter_render::Exporter;

/// What an exporter writes.
pub fn written(exporter: &impl Exporter, report: &Report) -> String {
    let mut out = Vec::new();
    exporter.write(report, &mut out).expect("memory takes every write");
    String::from_utf8(out).expect("every format but pprof is text")
}

pub fn value(count: u64, total_ns: u64, max_ns: u64, spin_ns: u64) -> Value {
    Value { count, total_ns, max_ns, spin_ns }
}

pub fn about() -> About {
    About {
        lockmeter_version: "0.1.0".into(),
        kernel_release: "6.18.0".into(),
        machine: "x86_64".into(),
        cpus: 2,
        scope: "whole machine".into(),
        command_line: vec!["lockmeter".into(), "record".into(), "-a".into()],
        start_unix_ns: 1_793_707_200_000_000_000,
        stack_budget_ppm: Some(10_000),
        recorder_tgid: 99,
        rules: vec![lockmeter_profile::rules::RuleSet {
            name: "lockmeter".into(),
            version: "1".into(),
            checksum: 0x1a2b,
        }],
        kind: Some(RecordingKind::Locks),
        reason: String::new(),
    }
}

/// Three threads at rest that run now and then.
pub fn idle_threads() -> ThreadsReport {
    let time = |state, total_ns| StateTime { state, total_ns, error_ns: 0 };
    ThreadsReport {
        total_ns: 30_000_000_000,
        watched_ns: 10_000_000_000,
        rest_ns: 29_700_000_000,
        states: vec![time(ThreadState::Running, 200_000_000), time(ThreadState::Woken, 100_000_000)],
        sleeps: Vec::new(),
        open_waits: Vec::new(),
        cut_waits: Vec::new(),
        spins: Vec::new(),
        run_samples: 0,
    }
}

/// Ten seconds in which nothing happened.
pub fn empty() -> Report {
    Report {
        by: vec![Dimension::Lock],
        leaves_locks_out: false,
        about: about(),
        start_unix_ns: 1_793_707_200_000_000_000,
        duration_ns: 10_000_000_000,
        intervals: 10,
        waits: Value::default(),
        user_waits: Value::default(),
        spinning: Spinning::default(),
        goroutines: Goroutines::default(),
        own_waits: Value::default(),
        named_ns: 0,
        worst: None,
        timed_out: None,
        holds: 0,
        untimed_holds: 0,
        rows: Vec::new(),
        slow_holds: Vec::new(),
        threads: Some(idle_threads()),
        losses: Losses::default(),
        swaps: Swaps::default(),
        off: SwitchedOff::default(),
        overhead: Overhead { own_cpu_ns: 12_000_000, ..Overhead::default() },
    }
}

/// A row without anything that only some views have.
pub fn row(lock: &str, kind: Kind, mode: Mode, value: Value) -> Row {
    Row {
        happened: Happened::Wait,
        lock: Some(lock.to_owned()),
        naming: Some(Naming::SlabField),
        naming_detail: Some("".into()),
        kind: Some(kind),
        mode: Some(mode),
        instance: None,
        object: None,
        filesystem: None,
        task: None,
        cgroup: None,
        context: None,
        cpu: None,
        caller: None,
        blocker: None,
        root: None,
        value,
        contended: None,
        basis: None,
        run_delay_ns: None,
        holder: None,
        off_ns: 0,
        p50_ns: value.mean_ns() / 2,
        p99_ns: value.max_ns / 2,
        stacks: 0,
        estimated: false,
        own: false,
        sampled_spin: None,
        parked: None,
        histogram: vec![
            (Bucket::of(value.mean_ns()), value.count - 1, value.total_ns - value.max_ns),
            (Bucket::of(value.max_ns), 1, value.max_ns),
        ],
    }
}

/// The report of the example: 3.1 % of two CPUs, 1.4 tasks asleep, `mmap_lock` at 71 %.
pub fn by_lock() -> Report {
    let mmap_lock =
        row("mm_struct.mmap_lock", Kind::Rwsem, Mode::Write, value(12_345, 10_380_000_000, 45_600_000, 210_000_000));
    let mut zone = row("zone.lock", Kind::Spin, Mode::Exclusive, value(2_345_678, 410_000_000, 89_000, 410_000_000));
    zone.naming = Some(Naming::Symbol);
    let mut pipe =
        row("pipe_inode_info.mutex", Kind::Mutex, Mode::Exclusive, value(910, 3_600_000_000, 12_000_000, 1_000_000));
    pipe.naming = Some(Naming::InferredType);
    pipe.naming_detail = Some("kmalloc-192+0x10".into());
    let mut unnamed =
        row("kmalloc-64+0x8", Kind::Spin, Mode::Exclusive, value(7, 240_000_000, 100_000_000, 240_000_000));
    unnamed.naming = Some(Naming::Unnamed(Unnamed::AmbiguousType));
    unnamed.naming_detail = Some("pwq, or \"io_wq\"".into());
    let mut own = row("bpf_ringbuf.spinlock", Kind::Spin, Mode::Exclusive, value(3, 9_000, 4_000, 9_000));
    own.own = true;
    let mut losses = Losses::default();
    losses.add(Loss::TaskFolded, 12);
    losses.add(Loss::StacksFull, 1_234);
    Report {
        waits: value(2_358_940, 14_630_000_000, 100_000_000, 861_000_000 - 241_000_000),
        own_waits: own.value,
        named_ns: 14_390_000_000,
        worst: Some(Worst {
            lock: "mm_struct.mmap_lock".into(),
            kind: Kind::Rwsem,
            mode: Mode::Write,
            value: mmap_lock.value,
            blocker_function: Some("do_munmap".into()),
            handover_ppm: 0,
            blocker_ppm: 900_000,
            stacks: 100,
            holder_state: None,
            root: None,
            blocker_task: Some("stress-ng".into()),
            caller_function: Some("do_user_addr_fault".into()),
        }),
        rows: vec![mmap_lock, pipe, zone, unnamed, own],
        losses,
        swaps: Swaps::default(),
        overhead: Overhead {
            own_cpu_ns: 12_000_000,
            program_run_ns: 28_000_000,
            program_runs: 123_456,
            stack_ns: 20_000_000,
            stacks: 6_789,
            sampling_period_ns: 12_000,
        },
        ..empty()
    }
}

fn names(frames: &[&str]) -> Arc<[Arc<str>]> {
    frames.iter().map(|frame| Arc::from(*frame)).collect()
}

/// The two heaviest locks, by everything that rests on stacks, and by task.
pub fn by_stacks() -> Report {
    let mut report = by_lock();
    report.by = vec![Dimension::Lock, Dimension::Caller, Dimension::Blocker, Dimension::Task];
    report.rows.drain(2..4);
    for row in &mut report.rows {
        row.estimated = true;
        row.stacks = 1_000;
        row.task = Some(RowTask { tgid: Some(42), comm: "stress-ng".into() });
        row.caller = Some(names(&["do_user_addr_fault", "exc_page_fault", "asm_exc_page_fault"]));
        row.blocker = Some(Box::new(RowBlocker {
            source: BlockerSource::NeverSlept,
            stack: names(&[]),
            task: None,
            by_task: None,
            state: None,
        }));
    }
    report.rows[0].blocker = Some(Box::new(RowBlocker {
        source: BlockerSource::Releaser,
        stack: names(&["vms_complete_munmap_vmas", "do_vmi_munmap", "__vm_munmap", "x64_sys_munmap", "do_syscall_64"]),
        task: Some("stress-ng".into()),
        by_task: None,
        state: Some(lockmeter_profile::HolderState::of(lockmeter_profile::ThreadState::DiskIo)),
    }));
    report.rows[1].task = Some(RowTask { tgid: None, comm: "(unknown)".into() });
    report.rows[1].caller = Some(names(&[]));
    report
}

/// Names longer than any terminal, and one that would clear the screen.
pub fn with_long_names() -> Report {
    let mut report = by_stacks();
    report.rows.truncate(2);
    report.rows[0].lock = Some(format!("an_{}_info.vfs_inode.i_rwsem", "extraordinarily_".repeat(12)));
    report.rows[0].caller = Some(names(&[&*"a_function_with_a_name_of_forty_letters_".repeat(3); 6]));
    report.rows[1].lock = Some("short".into());
    report.rows[1].task = Some(RowTask { tgid: Some(7), comm: "\x1b[2Jevil;\"name\",".into() });
    report
}
