//! Made-up intervals of any size, the same for the same seed.

#![allow(dead_code, reason = "each test uses a part")]

use fastrand::Rng;
use lockmeter_profile::{
    About, Blocker, BlockerSource, Bucket, Cgroup, Context, Filesystem, Frame, Happened, Interval, Key, Kind, Lock,
    Loss, Mode, Naming, OfFilesystem, Overhead, Parked, RecordingKind, Sampled, SampledWait, Spin, SpinLoop, StackId,
    Task, TaskId, Total, Unnamed, Value,
};

pub const SECOND_NS: u64 = 1_000_000_000;
pub const START_UNIX_NS: u64 = 1_790_000_000 * SECOND_NS;

/// How much an interval holds.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    pub locks: u64,
    pub stacks: u64,
    pub frames_per_stack: u64,
    pub totals: u64,
}

pub const SMALL: Size = Size { locks: 2, stacks: 2, frames_per_stack: 3, totals: 4 };
/// What a busy machine gives in a second.
pub const REALISTIC: Size = Size { locks: 60, stacks: 200, frames_per_stack: 20, totals: 300 };

pub fn about() -> About {
    About {
        lockmeter_version: "0.1.0".into(),
        kernel_release: "6.18.0-test".into(),
        machine: "x86_64".into(),
        cpus: 2,
        scope: "whole machine".into(),
        command_line: vec!["lockmeter".into(), "record".into(), "-a".into()],
        start_unix_ns: START_UNIX_NS,
        stack_budget_ppm: Some(10_000),
        recorder_tgid: 4242,
        rules: vec![lockmeter_profile::rules::RuleSet {
            name: "lockmeter".into(),
            version: "1".into(),
            checksum: 0x1a2b,
        }],
        kind: Some(RecordingKind::Locks),
        reason: "a wait of 12 s".into(),
    }
}

/// The `nth` second of a recording.
pub fn interval(nth: u64, size: Size) -> Interval {
    let mut numbers = Rng::with_seed(nth);
    let mut interval = Interval {
        start_unix_ns: START_UNIX_NS + nth * SECOND_NS,
        duration_ns: SECOND_NS,
        overhead: Overhead { own_cpu_ns: 5_000_000, program_runs: 10_000, stacks: size.stacks, ..Overhead::default() },
        ..Interval::default()
    };
    interval.losses.add(Loss::OverBudget, nth);
    interval.off.add(100, nth);
    interval.off.all_ns = nth / 2;
    interval.off.holds.insert(Kind::Rwsem, nth / 3);
    let kinds = [(Kind::Spin, Mode::Exclusive), (Kind::Rwsem, Mode::Write), (Kind::Mutex, Mode::Exclusive)];
    for at in 0..size.totals {
        let (kind, mode) = kinds[(at % size.locks % 3) as usize];
        let key = key(&mut interval, &mut numbers, at % size.locks, kind, mode);
        let bucket = Bucket(10 + numbers.u64(..12) as u8);
        let value = value(&mut numbers, bucket, kind, 50);
        interval.totals.push(Total { key: Key { bucket, ..key }, value });
        if at < size.stacks {
            let sampled = sampled(&mut interval, &mut numbers, size, Key { bucket, ..key });
            interval.sampled.push(sampled);
            if let Some(task) = key.task.filter(|_| at % 3 == 0) {
                interval.threads.spins.push(spin(&mut numbers, task, key, sampled.site));
                interval.threads.parked.push(parked(&mut numbers, task, key, sampled.site));
            }
        }
    }
    interval
}

fn parked(numbers: &mut Rng, task: TaskId, key: Key, site: Option<StackId>) -> Parked {
    let Key { happened, lock, kind, mode, cgroup, .. } = key;
    let instance = Some(0xc000_0000_0000 + numbers.u64(..16) * 64);
    let wait = SampledWait { happened, lock, kind, mode, instance };
    let looks = 1 + numbers.u64(..10);
    Parked { task, cgroup, wait, site, looks, estimate_ns: looks * 101_010_101, variance_ns2: looks as f64 * 1e15 }
}

fn spin(numbers: &mut Rng, task: TaskId, key: Key, site: Option<StackId>) -> Spin {
    let Key { happened, lock, kind, mode, cgroup, .. } = key;
    let instance = Some(0x7fff_0000_0000 + numbers.u64(..16) * 64);
    let wait = (numbers.u64(..4) > 0).then_some(SampledWait { happened, lock, kind, mode, instance });
    let (samples, is_part) = (1 + numbers.u64(..20), numbers.bool());
    let (estimate_ns, variance_ns2) = (samples * 10_101_011, samples as f64 * 1e14);
    Spin { task, cgroup, how: SpinLoop::Pause, wait, is_part, site, samples, estimate_ns, variance_ns2 }
}

fn key(interval: &mut Interval, numbers: &mut Rng, lock: u64, kind: Kind, mode: Mode) -> Key {
    let tables = &mut interval.tables;
    let naming = if lock % 10 == 9 { Naming::Unnamed(Unnamed::AmbiguousType) } else { Naming::SlabField };
    let object = (!lock.is_multiple_of(4)).then(|| format!("object_{}", lock % 7));
    let lock = Lock { name: format!("object_{lock}.lock"), object, naming, detail: "kmalloc-192".into() };
    let tgid = 100 + numbers.u64(..8) as u32;
    let task = Task { tgid, comm: format!("worker-{tgid}"), own: tgid == 107 };
    let cgroup =
        Cgroup { id: u64::from(tgid % 3), path: (!tgid.is_multiple_of(3)).then(|| format!("/unit-{}", tgid % 3)) };
    Key {
        happened: Happened::Wait,
        lock: tables.intern_lock(lock),
        kind,
        mode,
        task: (numbers.u64(..10) > 0).then(|| tables.intern_task(task)),
        cgroup: Some(tables.intern_cgroup(cgroup)),
        context: Context::from_code(numbers.u64(..5) as u8),
        cpu: (numbers.u64(..4) > 0).then(|| numbers.u64(..3) as u32),
        bucket: Bucket(0),
    }
}

fn value(numbers: &mut Rng, bucket: Bucket, kind: Kind, most: u64) -> Value {
    let count = 1 + numbers.u64(..most);
    let mean_ns = bucket.lower_ns() + numbers.u64(..bucket.lower_ns() / 2);
    let total_ns = count * mean_ns;
    let spin_ns = if kind == Kind::Spin { total_ns } else { total_ns / 3 };
    Value { count, total_ns, max_ns: (mean_ns + mean_ns / 4).min(bucket.upper_ns() - 1), spin_ns }
}

fn sampled(interval: &mut Interval, numbers: &mut Rng, size: Size, key: Key) -> Sampled {
    let mut stack = |innermost: &str| {
        let mut frames = Vec::new();
        for depth in 0..size.frames_per_stack {
            let nth = numbers.u64(..size.stacks * 2);
            let function = if depth == 0 { innermost.into() } else { format!("some_kernel_function_{nth}.isra.0") };
            let address = 0xffff_ffff_8100_0000 + nth * 4096 + depth;
            let frame = Frame { address, function: Some(function), offset: nth % 512, module: None };
            frames.push(interval.tables.intern_frame(frame));
        }
        interval.tables.intern_stack(frames)
    };
    let site = stack("rwsem_down_write_slowpath");
    let blocker = if key.kind == Kind::Spin {
        Blocker::unknown(BlockerSource::NeverSlept)
    } else {
        let stack = Some(stack("up_write"));
        Blocker {
            source: BlockerSource::Releaser,
            stack,
            task: key.task,
            owner_hint: key.task,
            root: None,
            state: None,
        }
    };
    let instance = Some(0xffff_8880_0000_0000 + numbers.u64(..16) * 64);
    let estimate = value(numbers, key.bucket, key.kind, 5);
    let device = |nth: u64| nth.is_multiple_of(2).then(|| format!("vd{}", char::from(b'a' + nth as u8)));
    let filesystem = match numbers.u64(..8) {
        0 => OfFilesystem::NotLookedUp,
        1 => OfFilesystem::None,
        2 => OfFilesystem::Unreadable,
        nth => OfFilesystem::Known(
            interval.tables.intern_filesystem(Filesystem { kind: format!("fs{}", nth / 2), device: device(nth) }),
        ),
    };
    Sampled { key, instance, filesystem, site: Some(site), blocker, stacks: 1, estimate }
}
