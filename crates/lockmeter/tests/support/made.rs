//! Recordings that no machine made: as large as wanted, with any names in them, and the same in every run.

use lockmeter_profile::recording::RecordingWriter;
use lockmeter_profile::{
    About, Blocker, BlockerSource, Bucket, Frame, Happened, Interval, Key, Kind, Lock, LockId, LongRun, Mode, Naming,
    OfFilesystem, RecordingKind, RunWait, Sampled, StackId, Task, TaskId, Total, Value,
};

/// What a made recording holds.
pub struct Load {
    pub locks: usize,
    pub intervals: usize,
    /// How long each of them is.
    pub each_s: u64,
    /// Call sites of each lock.
    pub callers: usize,
}

/// Numbers that look random, and are the same in every run (Marsaglia, "Xorshift RNGs", 2003).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

const SECOND_NS: u64 = 1_000_000_000;

fn about(kind: RecordingKind, name: &impl Fn(&str, usize) -> String) -> About {
    About {
        lockmeter_version: "0.1.0".into(),
        kernel_release: name("kernel", 0),
        machine: "x86_64".into(),
        cpus: 4,
        kind: Some(kind),
        scope: name("scope", 0),
        command_line: vec!["lockmeter".into(), "record".into(), name("command", 1)],
        start_unix_ns: 1_795_000_000 * SECOND_NS,
        ..About::default()
    }
}

/// Writes a recording like those of real machines: few locks are contended all the time, and most now and then. `name` gives the names of
/// locks, frames and threads.
pub fn write_recording(path: &str, load: &Load, name: impl Fn(&str, usize) -> String) {
    write_with(path, load, name, |_| ());
}

/// The same, and what is added to each interval.
pub fn write_with(path: &str, load: &Load, name: impl Fn(&str, usize) -> String, add: impl Fn(&mut Interval)) {
    let about = about(RecordingKind::Locks, &name);
    let mut numbers = Numbers(88_172_645_463_325_252);
    let mut writer = RecordingWriter::create(path, &about).unwrap();
    let frames = (load.locks * load.callers / 2).clamp(12, 3_000);
    for at in 0..load.intervals as u64 {
        let mut interval = Interval {
            start_unix_ns: about.start_unix_ns + at * load.each_s * SECOND_NS,
            duration_ns: load.each_s * SECOND_NS,
            ..Interval::default()
        };
        for lock in 0..load.locks {
            // The first are contended in each interval, the others more rarely the further down they are.
            if numbers.below(lock as u64 + 1) < 60 {
                add_waits(&mut interval, lock, load, frames, &name, &mut numbers);
            }
        }
        add(&mut interval);
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
}

fn add_waits(
    interval: &mut Interval,
    number: usize,
    load: &Load,
    frames: usize,
    name: &impl Fn(&str, usize) -> String,
    numbers: &mut Numbers,
) {
    let lock = interval.tables.intern_lock(Lock {
        name: name("lock", number),
        object: None,
        naming: Naming::Symbol,
        detail: String::new(),
    });
    let task = interval.tables.intern_task(Task { tgid: 4000, comm: name("thread", number % 3), own: false });
    // The hot ones wait for all kinds of times, the others for about one.
    let buckets = if number < 50 { 8 } else { 2 };
    for bucket in 0..buckets {
        let exponent = 9 + ((number as u64 + bucket) % 16) as u8;
        let each_ns = (1 << exponent) + numbers.below(1 << exponent);
        let number_of_waits = 1 + numbers.below(200);
        let value = Value { count: number_of_waits, total_ns: number_of_waits * each_ns, max_ns: each_ns, spin_ns: 0 };
        let key = key(lock, task, exponent);
        interval.totals.push(Total { key, value });
        // Stacks are taken on a budget.
        if bucket > 1 {
            continue;
        }
        let caller = numbers.below(load.callers as u64) as usize;
        let site = stack(interval, number * load.callers + caller, frames, name);
        let blocker = stack(interval, number * load.callers + caller / 2 + 1, frames, name);
        let blocker = Blocker { stack: Some(blocker), task: Some(task), ..Blocker::unknown(BlockerSource::Releaser) };
        interval.sampled.push(Sampled {
            key,
            instance: None,
            filesystem: OfFilesystem::None,
            site: Some(site),
            blocker,
            stacks: 1,
            estimate: value,
        });
    }
}

fn key(lock: LockId, task: TaskId, exponent: u8) -> Key {
    let (happened, kind, mode) = (Happened::Wait, Kind::Mutex, Mode::Exclusive);
    Key {
        happened,
        lock,
        kind,
        mode,
        task: Some(task),
        cgroup: None,
        context: None,
        cpu: None,
        bucket: Bucket(exponent),
    }
}

/// A stack of ten functions, whose outer ones many have in common.
fn stack(interval: &mut Interval, which: usize, frames: usize, name: &impl Fn(&str, usize) -> String) -> StackId {
    let functions = (0..10).map(|depth| (which >> depth) * (10 - depth) % frames);
    let functions: Vec<_> = functions
        .map(|function| {
            let function_name = Some(name("frame", function));
            interval.tables.intern_frame(Frame {
                address: function as u64,
                function: function_name,
                offset: 0,
                module: None,
            })
        })
        .collect();
    interval.tables.intern_stack(functions)
}

/// Writes a recording of what ran: an interrupt, a softirq, a timer and a work item again and again, with single runs that waited.
pub fn write_latency(path: &str, intervals: u64, name: impl Fn(&str, usize) -> String) {
    let about = about(RecordingKind::Latency, &name);
    let mut writer = RecordingWriter::create(path, &about).unwrap();
    for at in 0..intervals {
        let begin_unix_ns = about.start_unix_ns + at * SECOND_NS;
        let mut interval = Interval { start_unix_ns: begin_unix_ns, duration_ns: SECOND_NS, ..Interval::default() };
        for number in 0..16 {
            let kind = [Kind::Irq, Kind::Softirq, Kind::Timer, Kind::Work][number % 4];
            let lock = interval.tables.intern_lock(Lock {
                name: name("runner", number),
                object: None,
                naming: Naming::Symbol,
                detail: name("detail", number),
            });
            let task = Some(interval.tables.intern_task(Task { tgid: 4000, comm: name("thread", number), own: false }));
            let run_ns = 1 << (10 + number);
            let value = Value {
                count: 1 + number as u64,
                total_ns: run_ns * (1 + number as u64),
                max_ns: run_ns,
                spin_ns: run_ns,
            };
            interval.totals.push(Total {
                key: Key { bucket: Bucket::of(run_ns), ..Key::of(Happened::Run, lock, kind, Mode::Exclusive) },
                value,
            });
            let site = Some(stack(&mut interval, number, 12, &name));
            let waits_for = interval.tables.intern_lock(Lock {
                name: name("lock", number),
                object: None,
                naming: Naming::Symbol,
                detail: String::new(),
            });
            let (mode, count, total_ns) = (Mode::Exclusive, 2, run_ns / 2);
            interval.long_runs.push(LongRun {
                begin_unix_ns,
                cpu: 0,
                lock,
                kind,
                run_ns,
                asleep_ns: 0,
                delay_ns: Some(run_ns),
                task,
                waits: vec![RunWait { lock: waits_for, site, kind: Kind::Spin, mode, count, total_ns }],
            });
        }
        writer.append(&interval).unwrap();
    }
    writer.finish().unwrap();
}
