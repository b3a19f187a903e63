//! Between the model and the messages of `proto/recording.proto`.

use prost::Message;

use super::chunk::MAX_ENTRIES;
use super::costs::{self, MAX_FRAMES, MAX_STACK_FRAMES, Weight};
use crate::filesystem::{Filesystem, OfFilesystem};
use crate::interval::{
    Basis, Blocker, BlockerSource, Cgroup, CgroupId, FilesystemId, Frame, FrameId, Interval, LockId, LongRun, Overhead,
    Root, RunWait, Sampled, StackId, Tables, Task, TaskId, Total,
};
use crate::lock::{Lock, Naming, Unnamed};
use crate::loss::{Loss, Losses};
use crate::report::{About, RecordingKind};
use crate::rules::RuleSet;
use crate::sample::{Bucket, Context, Happened, HoldBasis, Key, Kind, Mode, Value};
use crate::slow_hold::{HolderTime, NextLock, SlowHold};
use crate::swap::{Swap, Swaps};
use crate::switched_off::SwitchedOff;
use crate::system_call::SystemCall;
use crate::thread_time::{HolderState, ThreadActivity, ThreadState};

mod threads;

#[allow(clippy::all, clippy::pedantic, missing_docs)]
pub(super) mod proto {
    include!(concat!(env!("OUT_DIR"), "/lockmeter.recording.rs"));
}

/// The message that describes the recording.
pub(super) fn encode_about(about: &About) -> Vec<u8> {
    proto::About {
        lockmeter_version: about.lockmeter_version.clone(),
        kernel_release: about.kernel_release.clone(),
        machine: about.machine.clone(),
        cpus: about.cpus,
        scope: about.scope.clone(),
        command_line: about.command_line.clone(),
        start_unix_ns: about.start_unix_ns,
        stack_budget_ppm: about.stack_budget_ppm,
        recorder_tgid: about.recorder_tgid,
        kind: about.kind.map_or(0, |kind| kind.code().into()),
        rules: about.rules.iter().map(encode_rule_set).collect(),
        reason: about.reason.clone(),
    }
    .encode_to_vec()
}

/// `None` if the bytes are no such message.
pub(super) fn decode_about(message: &[u8]) -> Option<About> {
    let about = decode_bounded::<proto::About>(message)?;
    Some(About {
        lockmeter_version: about.lockmeter_version,
        kernel_release: about.kernel_release,
        machine: about.machine,
        cpus: about.cpus,
        scope: about.scope,
        command_line: about.command_line,
        start_unix_ns: about.start_unix_ns,
        stack_budget_ppm: about.stack_budget_ppm,
        recorder_tgid: about.recorder_tgid,
        // Recordings did not say it before there were others.
        kind: RecordingKind::from_code(u8::try_from(about.kind.max(1)).unwrap_or(0)),
        rules: about.rules.into_iter().take(MOST_RULE_SETS).map(decode_rule_set).collect(),
        reason: about.reason,
    })
}

/// No recorder reads more files of rules.
const MOST_RULE_SETS: usize = 256;

fn encode_rule_set(set: &RuleSet) -> proto::RuleSet {
    proto::RuleSet { name: set.name.clone(), version: set.version.clone(), checksum: set.checksum }
}

fn decode_rule_set(set: proto::RuleSet) -> RuleSet {
    RuleSet { name: set.name, version: set.version, checksum: set.checksum }
}

/// The message that ends a recording.
pub(super) fn encode_end(intervals: u64) -> Vec<u8> {
    proto::End { intervals }.encode_to_vec()
}

/// How many intervals the recorder says it wrote; `None` if the bytes are no such message.
pub(super) fn decode_end(message: &[u8]) -> Option<u64> {
    Some(decode_bounded::<proto::End>(message)?.intervals)
}

/// `None` if the interval has more entries than a reader would accept.
pub(super) fn encode_interval(interval: &Interval) -> Option<Vec<u8>> {
    let tables = &interval.tables;
    let message = proto::Interval {
        start_unix_ns: interval.start_unix_ns,
        duration_ns: interval.duration_ns,
        locks: tables.locks().iter().map(lock_to_proto).collect(),
        tasks: tables.tasks().iter().map(task_to_proto).collect(),
        cgroups: tables.cgroups().iter().map(|c| proto::Cgroup { id: c.id, path: c.path.clone() }).collect(),
        filesystems: tables.filesystems().iter().map(filesystem_to_proto).collect(),
        frames: tables.frames().iter().map(frame_to_proto).collect(),
        stacks: tables.stacks().iter().map(|s| proto::Stack { frames: s.iter().map(|f| f.0).collect() }).collect(),
        totals: interval.totals.iter().map(total_to_proto).collect(),
        sampled: interval.sampled.iter().map(sampled_to_proto).collect(),
        slow_holds: interval.slow_holds.iter().map(slow_hold_to_proto).collect(),
        thread_times: interval.threads.times.iter().map(threads::time_to_proto).collect(),
        sleeps: interval.threads.sleeps.iter().map(threads::sleep_to_proto).collect(),
        open_waits: interval.threads.open_waits.iter().map(threads::open_wait_to_proto).collect(),
        spins: interval.threads.spins.iter().map(threads::spin_to_proto).collect(),
        run_samples: interval.threads.run_samples,
        parked: interval.threads.parked.iter().map(threads::parked_to_proto).collect(),
        goroutine_looks: interval.threads.goroutine_looks,
        watched_ns: interval.threads.watched_ns,
        losses: interval.losses.iter().map(|(l, count)| proto::Lost { loss: l.code().into(), count }).collect(),
        overhead: Some(overhead_to_proto(&interval.overhead)),
        long_runs: interval.long_runs.iter().map(long_run_to_proto).collect(),
        bases: interval.bases.iter().map(basis_to_proto).collect(),
        swaps: interval.swaps.iter().map(|(s, count)| proto::Swapped { swap: s.code().into(), count }).collect(),
        all_off_ns: interval.off.all_ns,
        off: interval.off.processes.iter().map(|(tgid, off_ns)| proto::Off { tgid: *tgid, off_ns: *off_ns }).collect(),
        holds_off: interval.off.holds.iter().map(holds_off_to_proto).collect(),
    };
    let entries = message.locks.len()
        + message.tasks.len()
        + message.cgroups.len()
        + message.filesystems.len()
        + message.frames.len()
        + message.stacks.len()
        + message.totals.len()
        + message.sampled.len()
        + message.slow_holds.len()
        + message.long_runs.len()
        + message.bases.len()
        + message.thread_times.iter().map(|time| 1 + time.spent.len()).sum::<usize>()
        + message.sleeps.len()
        + 2 * message.open_waits.len()
        + message.spins.len()
        + message.parked.len()
        + message.off.len();
    let frames: usize = message.stacks.iter().map(|stack| stack.frames.len()).sum();
    let deepest = message.stacks.iter().map(|stack| stack.frames.len()).max().unwrap_or(0);
    // The few fields that occur once, the losses, and what long runs and holds list, fit into the slack.
    let fits = entries <= MAX_ENTRIES - 1000 && frames <= MAX_FRAMES / 2 && deepest <= MAX_STACK_FRAMES;
    fits.then(|| message.encode_to_vec())
}

/// `None` if the bytes are no such message. What a newer lockmeter wrote and this one does not know is skipped and counted
/// in the interval's losses.
pub(super) fn decode_interval(message: &[u8], weight: &Weight) -> Option<Interval> {
    let message = is_bounded(weight).then(|| proto::Interval::decode(message).ok()).flatten()?;
    let mut unknown = Unknown::default();
    let tables = Tables::from_entries(
        message.locks.into_iter().map(|lock| unknown.lock(lock)).collect(),
        message.tasks.into_iter().map(|t| Task { tgid: t.tgid, comm: t.comm, own: t.own }).collect(),
        message.cgroups.into_iter().map(|c| Cgroup { id: c.id, path: c.path }).collect(),
        message.filesystems.into_iter().map(|f| Filesystem { kind: f.kind, device: f.device }).collect(),
        message.frames.into_iter().map(frame_from_proto).collect(),
        message.stacks.into_iter().map(|s| s.frames.into_iter().map(FrameId).collect()).collect(),
    );
    let totals = message.totals.into_iter().filter_map(|total| unknown.count(total_from_proto(total))).collect();
    let sampled = message.sampled.into_iter().filter_map(|sample| unknown.count(sampled_from_proto(sample))).collect();
    let long_runs = message.long_runs.into_iter().filter_map(|run| unknown.count(long_run_from_proto(run))).collect();
    let bases = message.bases.into_iter().filter_map(|basis| unknown.count(basis_from_proto(&basis))).collect();
    let swaps = unknown.swaps(&message.swaps);
    let slow_holds = message.slow_holds.iter().filter_map(|hold| unknown.count(slow_hold_from_proto(hold))).collect();
    let processes = message.off.iter().map(|off| (off.tgid, off.off_ns)).collect();
    let holds = message.holds_off.iter().filter_map(|off| unknown.count(holds_off_from_proto(off))).collect();
    let threads = ThreadActivity {
        times: message.thread_times.iter().filter_map(|time| unknown.count(threads::time_from_proto(time))).collect(),
        sleeps: message.sleeps.iter().filter_map(|sleep| unknown.count(threads::sleep_from_proto(sleep))).collect(),
        open_waits: message
            .open_waits
            .iter()
            .filter_map(|wait| unknown.count(threads::open_wait_from_proto(wait)))
            .collect(),
        spins: message.spins.iter().filter_map(|spin| unknown.count(threads::spin_from_proto(spin))).collect(),
        run_samples: message.run_samples,
        parked: message.parked.iter().filter_map(|parked| unknown.count(threads::parked_from_proto(parked))).collect(),
        goroutine_looks: message.goroutine_looks,
        watched_ns: message.watched_ns,
    };
    let mut losses = losses_from_proto(&message.losses);
    losses.add(Loss::UnknownCode, unknown.codes);
    Some(Interval {
        start_unix_ns: message.start_unix_ns,
        duration_ns: message.duration_ns,
        tables,
        totals,
        bases,
        sampled,
        slow_holds,
        long_runs,
        threads,
        losses,
        swaps,
        off: SwitchedOff { all_ns: message.all_off_ns, processes, holds },
        overhead: message.overhead.map(overhead_from_proto).unwrap_or_default(),
    })
}

/// Decodes a message only after its fields were counted, so that millions of empty entries allocate nothing.
fn decode_bounded<M: Message + Default>(message: &[u8]) -> Option<M> {
    let weight = costs::weigh(message)?;
    is_bounded(&weight).then(|| M::decode(message).ok()).flatten()
}

fn is_bounded(weight: &Weight) -> bool {
    weight.fields <= MAX_ENTRIES && weight.listed <= MAX_FRAMES && weight.deepest <= MAX_STACK_FRAMES
}

/// Counts what has a code that this version does not know.
#[derive(Default)]
struct Unknown {
    codes: u64,
}

impl Unknown {
    fn count<T>(&mut self, item: Option<T>) -> Option<T> {
        self.codes += u64::from(item.is_none());
        item
    }

    fn swaps(&mut self, swapped: &[proto::Swapped]) -> Swaps {
        let mut swaps = Swaps::default();
        for swapped in swapped {
            if let Some(swap) = self.count(u8::try_from(swapped.swap).ok().and_then(Swap::from_code)) {
                swaps.add(swap, swapped.count);
            }
        }
        swaps
    }

    /// A lock is kept even when it is not known how it got its name, for samples point to it by its place.
    fn lock(&mut self, lock: proto::Lock) -> Lock {
        let naming = self.count(code(lock.naming).and_then(Naming::from_code));
        Lock {
            name: lock.name,
            object: lock.object,
            naming: naming.unwrap_or(Naming::Unnamed(Unnamed::NewerReason)),
            detail: lock.detail,
        }
    }
}

fn code(number: i32) -> Option<u8> {
    u8::try_from(number).ok()
}

fn lock_to_proto(lock: &Lock) -> proto::Lock {
    proto::Lock {
        name: lock.name.clone(),
        object: lock.object.clone(),
        naming: lock.naming.code().into(),
        detail: lock.detail.clone(),
    }
}

fn task_to_proto(task: &Task) -> proto::Task {
    proto::Task { tgid: task.tgid, comm: task.comm.clone(), own: task.own }
}

fn filesystem_to_proto(filesystem: &Filesystem) -> proto::Filesystem {
    proto::Filesystem { kind: filesystem.kind.clone(), device: filesystem.device.clone() }
}

/// The first code that stands for a file system's place in its table.
const FIRST_FILESYSTEM: u32 = 3;

const fn of_filesystem_to_proto(of: OfFilesystem<FilesystemId>) -> u32 {
    match of {
        OfFilesystem::NotLookedUp => 0,
        OfFilesystem::None => 1,
        OfFilesystem::Unreadable => 2,
        OfFilesystem::Known(id) => id.0.saturating_add(FIRST_FILESYSTEM),
    }
}

const fn of_filesystem_from_proto(code: u32) -> OfFilesystem<FilesystemId> {
    match code {
        0 => OfFilesystem::NotLookedUp,
        1 => OfFilesystem::None,
        2 => OfFilesystem::Unreadable,
        _ => OfFilesystem::Known(FilesystemId(code - FIRST_FILESYSTEM)),
    }
}

fn frame_to_proto(frame: &Frame) -> proto::Frame {
    proto::Frame {
        address: frame.address,
        function: frame.function.clone(),
        offset: frame.offset,
        module: frame.module.clone(),
    }
}

fn frame_from_proto(frame: proto::Frame) -> Frame {
    Frame { address: frame.address, function: frame.function, offset: frame.offset, module: frame.module }
}

fn key_to_proto(key: &Key) -> proto::Key {
    proto::Key {
        happened: key.happened.code().into(),
        lock: key.lock.0,
        kind: key.kind.code().into(),
        mode: key.mode.code().into(),
        task: key.task.map(|id| id.0),
        cgroup: key.cgroup.map(|id| id.0),
        bucket: key.bucket.0.into(),
        context: key.context.map_or(0, |context| context.code().into()),
        cpu: key.cpu,
    }
}

fn key_from_proto(key: &proto::Key) -> Option<Key> {
    Some(Key {
        happened: code(key.happened).and_then(Happened::from_code)?,
        lock: LockId(key.lock),
        kind: code(key.kind).and_then(Kind::from_code)?,
        mode: code(key.mode).and_then(Mode::from_code)?,
        task: key.task.map(TaskId),
        cgroup: key.cgroup.map(CgroupId),
        context: match key.context {
            0 => None,
            number => Some(code(number).and_then(Context::from_code)?),
        },
        cpu: key.cpu,
        bucket: u8::try_from(key.bucket).ok().filter(|bucket| *bucket < 64).map(Bucket)?,
    })
}

fn value_to_proto(value: &Value) -> proto::Value {
    proto::Value { count: value.count, total_ns: value.total_ns, max_ns: value.max_ns, spin_ns: value.spin_ns }
}

fn value_from_proto(value: Option<proto::Value>) -> Value {
    let value = value.unwrap_or_default();
    Value { count: value.count, total_ns: value.total_ns, max_ns: value.max_ns, spin_ns: value.spin_ns }
}

fn total_to_proto(total: &Total) -> proto::Total {
    proto::Total { key: Some(key_to_proto(&total.key)), value: Some(value_to_proto(&total.value)) }
}

fn total_from_proto(total: proto::Total) -> Option<Total> {
    Some(Total { key: key_from_proto(&total.key?)?, value: value_from_proto(total.value) })
}

fn basis_to_proto(basis: &Basis) -> proto::Basis {
    let HoldBasis { untimed, watched, moved, variance_ns2 } = basis.value;
    let (instance, site) = (basis.instance, basis.site.map(|id| id.0));
    proto::Basis { key: Some(key_to_proto(&basis.key)), untimed, watched, moved, instance, site, variance_ns2 }
}

fn holds_off_to_proto((kind, off_ns): (&Kind, &u64)) -> proto::HoldsOff {
    proto::HoldsOff { kind: kind.code().into(), off_ns: *off_ns }
}

fn holds_off_from_proto(off: &proto::HoldsOff) -> Option<(Kind, u64)> {
    Some((code(off.kind).and_then(Kind::from_code)?, off.off_ns))
}

fn basis_from_proto(basis: &proto::Basis) -> Option<Basis> {
    // Anybody may have written the file.
    let variance_ns2 = Some(basis.variance_ns2).filter(|variance| variance.is_finite() && *variance >= 0.0)?;
    let value = HoldBasis { untimed: basis.untimed, watched: basis.watched, moved: basis.moved, variance_ns2 };
    let (key, site) = (key_from_proto(basis.key.as_ref()?)?, basis.site.map(StackId));
    Some(Basis { key, instance: basis.instance, site, value })
}

fn did_to_proto(did: Option<HolderState>) -> (i32, Option<u32>) {
    let call = did.and_then(|did| did.call).map(|call| call.0.into());
    (did.map_or(0, |did| did.state.code().into()), call)
}

fn did_from_proto(state: i32, call: Option<u32>) -> Option<HolderState> {
    let call = call.and_then(|call| call.try_into().ok()).map(SystemCall);
    Some(HolderState { state: code(state).and_then(ThreadState::from_code)?, call })
}

fn sampled_to_proto(sampled: &Sampled) -> proto::Sampled {
    let blocker = &sampled.blocker;
    let (state, call) = did_to_proto(blocker.state);
    proto::Sampled {
        key: Some(key_to_proto(&sampled.key)),
        instance: sampled.instance,
        filesystem: of_filesystem_to_proto(sampled.filesystem),
        site: sampled.site.map(|id| id.0),
        blocker: Some(proto::Blocker {
            source: blocker.source.code().into(),
            stack: blocker.stack.map(|id| id.0),
            task: blocker.task.map(|id| id.0),
            owner_hint: blocker.owner_hint.map(|id| id.0),
            root: blocker.root.map(|root| {
                let (state, call) = did_to_proto(root.state);
                let (stack, task) = (root.stack.map(|id| id.0), root.task.map(|id| id.0));
                proto::Root { lock: root.lock.0, stack, task, state, call }
            }),
            state,
            call,
        }),
        stacks: sampled.stacks,
        estimate: Some(value_to_proto(&sampled.estimate)),
    }
}

fn sampled_from_proto(sampled: proto::Sampled) -> Option<Sampled> {
    let blocker = sampled.blocker?;
    Some(Sampled {
        key: key_from_proto(&sampled.key?)?,
        instance: sampled.instance,
        filesystem: of_filesystem_from_proto(sampled.filesystem),
        site: sampled.site.map(StackId),
        blocker: Blocker {
            source: code(blocker.source).and_then(BlockerSource::from_code)?,
            stack: blocker.stack.map(StackId),
            task: blocker.task.map(TaskId),
            owner_hint: blocker.owner_hint.map(TaskId),
            root: blocker.root.map(|root| Root {
                lock: LockId(root.lock),
                stack: root.stack.map(StackId),
                task: root.task.map(TaskId),
                state: did_from_proto(root.state, root.call),
            }),
            state: did_from_proto(blocker.state, blocker.call),
        },
        stacks: sampled.stacks,
        estimate: value_from_proto(sampled.estimate),
    })
}

fn long_run_to_proto(run: &LongRun) -> proto::LongRun {
    let wait = |wait: &RunWait| proto::RunWait {
        lock: wait.lock.0,
        kind: wait.kind.code().into(),
        mode: wait.mode.code().into(),
        count: wait.count,
        total_ns: wait.total_ns,
        site: wait.site.map(|id| id.0),
    };
    proto::LongRun {
        begin_unix_ns: run.begin_unix_ns,
        cpu: run.cpu,
        lock: run.lock.0,
        kind: run.kind.code().into(),
        run_ns: run.run_ns,
        asleep_ns: run.asleep_ns,
        delay_ns: run.delay_ns,
        task: run.task.map(|id| id.0),
        waits: run.waits.iter().map(wait).collect(),
    }
}

fn long_run_from_proto(run: proto::LongRun) -> Option<LongRun> {
    let wait = |wait: proto::RunWait| {
        Some(RunWait {
            lock: LockId(wait.lock),
            kind: code(wait.kind).and_then(Kind::from_code)?,
            mode: code(wait.mode).and_then(Mode::from_code)?,
            count: wait.count,
            total_ns: wait.total_ns,
            site: wait.site.map(StackId),
        })
    };
    Some(LongRun {
        begin_unix_ns: run.begin_unix_ns,
        cpu: run.cpu,
        lock: LockId(run.lock),
        kind: code(run.kind).and_then(Kind::from_code)?,
        run_ns: run.run_ns,
        asleep_ns: run.asleep_ns,
        delay_ns: run.delay_ns,
        task: run.task.map(TaskId),
        waits: run.waits.into_iter().map(wait).collect::<Option<_>>()?,
    })
}

fn slow_hold_to_proto(hold: &SlowHold) -> proto::SlowHold {
    proto::SlowHold {
        end_unix_ns: hold.end_unix_ns,
        total_ns: hold.total_ns,
        lock: hold.lock.0,
        kind: hold.kind.code().into(),
        mode: hold.mode.code().into(),
        task: hold.task.0,
        tid: hold.tid,
        site: hold.site.map(|id| id.0),
        holder_ns: hold.holder.parts().to_vec(),
        next: hold.next.map(|next| proto::NextLock {
            lock: next.lock.0,
            kind: next.kind.code().into(),
            mode: next.mode.code().into(),
            waited_ns: next.waited_ns,
            task: next.task.map(|id| id.0),
            tid: next.tid,
        }),
    }
}

fn slow_hold_from_proto(hold: &proto::SlowHold) -> Option<SlowHold> {
    let next = hold.next.as_ref().map(|next| {
        Some(NextLock {
            lock: LockId(next.lock),
            kind: code(next.kind).and_then(Kind::from_code)?,
            mode: code(next.mode).and_then(Mode::from_code)?,
            waited_ns: next.waited_ns,
            task: next.task.map(TaskId),
            tid: next.tid,
        })
    });
    let mut parts = [0; HolderTime::PARTS.len()];
    for (part, spent_ns) in parts.iter_mut().zip(&hold.holder_ns) {
        *part = *spent_ns;
    }
    Some(SlowHold {
        end_unix_ns: hold.end_unix_ns,
        total_ns: hold.total_ns,
        lock: LockId(hold.lock),
        kind: code(hold.kind).and_then(Kind::from_code)?,
        mode: code(hold.mode).and_then(Mode::from_code)?,
        task: TaskId(hold.task),
        tid: hold.tid,
        site: hold.site.map(StackId),
        holder: HolderTime::from_parts(parts),
        next: next.flatten(),
    })
}

fn losses_from_proto(lost: &[proto::Lost]) -> Losses {
    let mut losses = Losses::default();
    for lost in lost {
        let known = u8::try_from(lost.loss).ok().and_then(Loss::from_code);
        losses.add(known.unwrap_or(Loss::UnknownLoss), lost.count);
    }
    losses
}

fn overhead_to_proto(overhead: &Overhead) -> proto::Overhead {
    proto::Overhead {
        own_cpu_ns: overhead.own_cpu_ns,
        program_run_ns: overhead.program_run_ns,
        program_runs: overhead.program_runs,
        stack_ns: overhead.stack_ns,
        stacks: overhead.stacks,
        sampling_period_ns: overhead.sampling_period_ns,
    }
}

fn overhead_from_proto(overhead: proto::Overhead) -> Overhead {
    Overhead {
        own_cpu_ns: overhead.own_cpu_ns,
        program_run_ns: overhead.program_run_ns,
        program_runs: overhead.program_runs,
        stack_ns: overhead.stack_ns,
        stacks: overhead.stacks,
        sampling_period_ns: overhead.sampling_period_ns,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_interval(message: &[u8]) -> Option<Interval> {
        super::decode_interval(message, &costs::weigh(message)?)
    }

    fn key() -> proto::Key {
        proto::Key {
            happened: 1,
            lock: 0,
            kind: 3,
            mode: 1,
            task: None,
            cgroup: None,
            context: 0,
            cpu: None,
            bucket: 10,
        }
    }

    fn total(key: proto::Key) -> proto::Total {
        proto::Total {
            key: Some(key),
            value: Some(proto::Value { count: 1, total_ns: 1500, max_ns: 1500, spin_ns: 0 }),
        }
    }

    #[test]
    fn every_code_of_the_model_has_the_same_number_and_name_in_the_schema() {
        let same = |schema: &str, prefix: &str, model: &str| {
            assert_eq!(schema.strip_prefix(prefix).unwrap().to_lowercase().replace('_', "-"), model);
        };
        for kind in Kind::ALL {
            same(proto::Kind::try_from(i32::from(kind.code())).unwrap().as_str_name(), "KIND_", kind.name());
        }
        for mode in Mode::ALL {
            same(proto::Mode::try_from(i32::from(mode.code())).unwrap().as_str_name(), "MODE_", mode.name());
        }
        for happened in Happened::ALL {
            let schema = proto::Happened::try_from(i32::from(happened.code())).unwrap();
            same(schema.as_str_name(), "HAPPENED_", happened.name());
        }
        for source in BlockerSource::ALL {
            let schema = proto::BlockerSource::try_from(i32::from(source.code())).unwrap();
            same(schema.as_str_name(), "BLOCKER_SOURCE_", source.name());
        }
        for unnamed in Unnamed::ALL {
            let naming = Naming::Unnamed(*unnamed);
            let schema = proto::Naming::try_from(i32::from(naming.code())).unwrap();
            assert!(schema.as_str_name().starts_with("NAMING_UNNAMED_"), "{schema:?} for {naming:?}");
        }
    }

    #[test]
    fn a_sample_with_a_code_that_only_a_newer_version_knows_is_skipped_and_counted() {
        let lock = proto::Lock { name: "rtnl_mutex".into(), naming: 1, ..Default::default() };
        let unnameable = proto::Lock { name: "new".into(), naming: 14, ..Default::default() };
        let message = proto::Interval {
            locks: vec![lock, unnameable],
            totals: vec![
                total(key()),
                total(proto::Key { kind: 99, ..key() }),
                total(proto::Key { mode: 99, ..key() }),
                total(proto::Key { bucket: 64, ..key() }),
                total(proto::Key { happened: -1, ..key() }),
                total(proto::Key { context: 9, ..key() }),
                total(proto::Key { context: 2, ..key() }),
            ],
            losses: vec![proto::Lost { loss: 200, count: 5 }, proto::Lost { loss: 1, count: 6 }],
            ..Default::default()
        };
        let interval = decode_interval(&message.encode_to_vec()).unwrap();
        let contexts: Vec<_> = interval.totals.iter().map(|total| total.key.context).collect();
        assert_eq!(contexts, [None, Some(Context::Softirq)]);
        assert_eq!(interval.losses.get(Loss::UnknownCode), 6, "five samples and one naming");
        assert_eq!(interval.losses.get(Loss::UnknownLoss), 5);
        assert_eq!(interval.losses.get(Loss::TaskFolded), 6);
        assert_eq!(interval.tables.locks()[1].naming, Naming::Unnamed(Unnamed::NewerReason));
    }

    #[test]
    fn a_field_that_only_a_newer_version_knows_is_ignored() {
        let mut message = proto::Interval { duration_ns: 9, ..Default::default() }.encode_to_vec();
        prost::encoding::string::encode(1000, &"from the future".to_owned(), &mut message);
        let interval = decode_interval(&message).unwrap();
        assert_eq!(interval.duration_ns, 9);
        assert!(interval.losses.is_empty());
    }

    /// Makes sure that nothing is known of file systems where an older lockmeter recorded, and that what is known reads back.
    #[test]
    fn the_file_system_of_a_sample_reads_back_and_an_older_recording_says_nothing_of_it() {
        for of in [
            OfFilesystem::NotLookedUp,
            OfFilesystem::None,
            OfFilesystem::Unreadable,
            OfFilesystem::Known(FilesystemId(0)),
            OfFilesystem::Known(FilesystemId(7)),
        ] {
            assert_eq!(of_filesystem_from_proto(of_filesystem_to_proto(of)), of);
        }
        let sampled = |filesystem| {
            let blocker = proto::Blocker { source: 3, ..Default::default() };
            proto::Sampled { key: Some(key()), blocker: Some(blocker), filesystem, ..Default::default() }
        };
        let filesystems = vec![proto::Filesystem { kind: "ext4".into(), device: Some("vda".into()) }];
        let message = proto::Interval { sampled: vec![sampled(0), sampled(3)], filesystems, ..Default::default() };
        let interval = decode_interval(&message.encode_to_vec()).unwrap();
        assert_eq!(interval.sampled[0].filesystem, OfFilesystem::NotLookedUp);
        let OfFilesystem::Known(id) = interval.sampled[1].filesystem else { panic!("{:?}", interval.sampled[1]) };
        assert_eq!(interval.tables.filesystem(id).unwrap().to_string(), "ext4 (vda)");
    }

    #[test]
    fn an_item_stored_twice_does_not_move_those_behind_it() {
        let task = |comm: &str| proto::Task { tgid: 1, comm: comm.into(), own: false };
        let message = proto::Interval { tasks: vec![task("a"), task("a"), task("b")], ..Default::default() };
        let interval = decode_interval(&message.encode_to_vec()).unwrap();
        assert_eq!(interval.tables.task(TaskId(2)).unwrap().comm, "b");
    }

    #[test]
    fn a_message_of_too_many_empty_entries_is_refused_before_it_is_built() {
        let mut message = Vec::new();
        for _ in 0..=MAX_ENTRIES {
            message.extend([8 << 3 | 2, 0]);
        }
        assert_eq!(decode_interval(&message), None);
    }

    #[test]
    fn stacks_of_too_many_frames_are_refused_before_they_are_built() {
        let stack = |frames: usize| proto::Stack { frames: vec![1; frames] };
        let interval = |stacks| proto::Interval { stacks, ..Default::default() }.encode_to_vec();
        assert!(decode_interval(&interval(vec![stack(MAX_STACK_FRAMES)])).is_some());
        assert_eq!(decode_interval(&interval(vec![stack(MAX_STACK_FRAMES + 1)])), None);
        let many = vec![stack(MAX_STACK_FRAMES); MAX_FRAMES / MAX_STACK_FRAMES + 1];
        assert_eq!(decode_interval(&interval(many)), None);
    }
}
