//! A profile that Google's pprof opens: `go tool pprof -sample_index=blame out.pb.gz`.
//!
//! Sample types are `contentions/count`, `wait/nanoseconds` (the default) and `blame/nanoseconds`. A wait enters twice:
//! under the stack that waited, with its count and its wait, and under the stack that made it wait, with its wait as
//! blame. So `-sample_index=wait` shows who waits, `-sample_index=blame` who makes others wait, and both add up to all
//! waited time. Where there is no stack, a frame in brackets says why.
//!
//! Labels: `happened`, `lock`, `kind`, `mode`, `task` (the waiter's, or with blame the releaser's), `blocker` (how it is
//! known), and `own` on the waits of lockmeter itself.

mod proto;
mod tables;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use lockmeter_profile::{
    About, BlockerSource, Frame, FrameId, Happened, Interval, Key, Kind, Limits, Mode, Sampled, StackId, TaskId,
    TooLarge, Value, lock_functions,
};
use prost::Message;

use self::proto::{Label, Profile, Sample, ValueType};
use self::tables::Tables;
use crate::stacks::{NO_STACK, source_words};

/// Stands where a stack was taken and then lost.
const STACK_LOST: &str = "[stack lost]";

/// The number of `Profile.sample` in profile.proto.
const SAMPLE_FIELD: u32 = 2;

/// What a sample takes: in its group, and scaled.
const SAMPLE_BYTES: usize = 100;
/// What a stack takes, and a lock or group.
const STACK_BYTES: usize = 96;
const GROUP_BYTES: usize = 300;

/// Collects intervals into a profile.
///
/// Like a report, a profile agrees with the exact totals: the estimates of each lock, kind and mode are scaled to them,
/// and what no stack stands for is shown as `[no stack taken]`. Waits only: a hold or a run is not a wait.
#[derive(Debug)]
pub struct PprofBuilder {
    tables: Tables,
    locks: HashMap<LockIdentity, u32>,
    /// Stacks by the number that groups know them by, and the other way round.
    stacks: Vec<Arc<[u64]>>,
    stack_numbers: HashMap<Arc<[u64]>, u32>,
    /// What samples and stacks take, about.
    memory_bytes: usize,
    groups: BTreeMap<Group, Estimates>,
    comments: Vec<String>,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
}

/// By what a report tells locks apart: the same lock may be named in more than one way.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LockIdentity {
    name: String,
    object: Option<String>,
}

/// What estimates are scaled by: a total of this is exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Group {
    /// Number of the lock, in the order of their first appearance.
    lock: u32,
    kind: Kind,
    mode: Mode,
    own: bool,
}

/// What is known of one group.
#[derive(Debug, Default)]
struct Estimates {
    exact: Value,
    /// String of the lock's name.
    lock_name: i64,
    /// Count and total by stack.
    waits: BTreeMap<Stack, (u64, u64)>,
    /// Total by the stack that is to blame.
    blame: BTreeMap<Stack, (u64, u64)>,
}

/// What is known of an interval's stacks and frames, which many samples share.
#[derive(Debug, Default)]
struct Known {
    /// The number of each stack.
    stacks: HashMap<StackId, u32>,
    /// The location of each frame.
    frames: HashMap<FrameId, u64>,
}

/// A stack with what tells samples apart, as indices into the profile's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Stack {
    /// Number of the list of locations.
    locations: u32,
    /// String of the task's name; 0 where there is none.
    task: i64,
    blocker: Option<BlockerSource>,
}

impl PprofBuilder {
    /// An empty profile of this recording.
    pub fn new(about: &About) -> Self {
        let comments = vec![
            format!("lockmeter {}: {} on Linux {}", about.lockmeter_version, about.scope, about.kernel_release),
            format!("recorded by: {}", about.command_line.join(" ")),
        ];
        Self {
            tables: Tables::new(),
            locks: HashMap::new(),
            stacks: Vec::new(),
            stack_numbers: HashMap::new(),
            memory_bytes: 0,
            groups: BTreeMap::new(),
            comments,
            start_unix_ns: None,
            duration_ns: 0,
        }
    }

    /// Adds what was measured in one interval.
    pub fn add(&mut self, interval: &Interval) {
        // Nothing is too large for no limits.
        let _ = self.add_within(interval, &Limits::NONE);
    }

    /// Adds an interval of a file that may be anybody's. After an error the profile is of no use.
    pub fn add_within(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        let start_unix_ns = self.start_unix_ns.unwrap_or(u64::MAX).min(interval.start_unix_ns);
        self.start_unix_ns = Some(start_unix_ns);
        self.duration_ns = self.duration_ns.saturating_add(interval.duration_ns);
        for total in &interval.totals {
            if let Some(group) = self.group(interval, &total.key) {
                group.exact.merge(&total.value);
            }
            limits.check(self.memory_bytes())?;
        }
        let mut known = Known::default();
        for sampled in &interval.sampled {
            self.add_sampled(interval, sampled, &mut known);
            limits.check(self.memory_bytes())?;
        }
        Ok(())
    }

    /// What the profile takes so far, about.
    fn memory_bytes(&self) -> usize {
        self.tables.memory_bytes() + self.memory_bytes + (self.locks.len() + self.groups.len()) * GROUP_BYTES
    }

    /// The group of a wait whose lock is known.
    fn group(&mut self, interval: &Interval, key: &Key) -> Option<&mut Estimates> {
        let lock = interval.tables.lock(key.lock).filter(|_| key.happened == Happened::Wait)?;
        let next = u32::try_from(self.locks.len()).ok()?;
        let identity = LockIdentity { name: lock.name.clone(), object: lock.object.clone() };
        let number = *self.locks.entry(identity).or_insert(next);
        let own = key.task.and_then(|task| interval.tables.task(task)).is_some_and(|task| task.own);
        let group = self.groups.entry(Group { lock: number, kind: key.kind, mode: key.mode, own }).or_default();
        group.lock_name = self.tables.string(&lock.name);
        Some(group)
    }

    fn add_sampled(&mut self, interval: &Interval, sampled: &Sampled, known: &mut Known) {
        let source = sampled.blocker.source;
        let mut number = |stack: Option<StackId>, none: &str| match stack.and_then(|stack| known.stacks.get(&stack)) {
            Some(number) => *number,
            None => {
                let locations = self.stack(interval, stack, none, known);
                let number = self.stack_number(locations);
                known.stacks.extend(stack.map(|stack| (stack, number)));
                number
            }
        };
        let site = number(sampled.site, STACK_LOST);
        let blamed = number(sampled.blocker.stack, &format!("[{}]", source_words(source)));
        let waits = Stack { locations: site, task: self.task(interval, sampled.key.task), blocker: Some(source) };
        let blame = Stack { locations: blamed, task: self.task(interval, sampled.blocker.task), blocker: Some(source) };
        let mut added_bytes = 0;
        let Some(group) = self.group(interval, &sampled.key) else { return };
        for (stack, stacks) in [(waits, &mut group.waits), (blame, &mut group.blame)] {
            let (count, total_ns) = stacks.entry(stack).or_insert_with(|| {
                added_bytes += SAMPLE_BYTES;
                (0, 0)
            });
            *count = count.saturating_add(sampled.estimate.count);
            *total_ns = total_ns.saturating_add(sampled.estimate.total_ns);
        }
        self.memory_bytes += added_bytes;
    }

    fn task(&mut self, interval: &Interval, task: Option<TaskId>) -> i64 {
        let task = task.and_then(|task| interval.tables.task(task));
        task.map_or(0, |task| self.tables.string(&task.comm))
    }

    fn stack_number(&mut self, locations: Vec<u64>) -> u32 {
        if let Some(number) = self.stack_numbers.get(locations.as_slice()) {
            return *number;
        }
        let locations: Arc<[u64]> = locations.into();
        let number = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        self.memory_bytes += STACK_BYTES + size_of_val(&*locations);
        self.stacks.push(Arc::clone(&locations));
        self.stack_numbers.insert(locations, number);
        number
    }

    /// The locations of a stack, innermost first, or of the one frame that says why there is none.
    fn stack(&mut self, interval: &Interval, stack: Option<StackId>, none: &str, known: &mut Known) -> Vec<u64> {
        let ids = stack.and_then(|stack| interval.tables.stack(stack)).map_or(&[][..], Vec::as_slice);
        let (ids, frames): (Vec<FrameId>, Vec<&Frame>) =
            ids.iter().filter_map(|id| Some((*id, interval.tables.frame(*id)?))).unzip();
        let kept = without_metering(&frames);
        if kept.is_empty() {
            return vec![self.tables.synthetic(none)];
        }
        let outer = ids.iter().zip(&frames).skip(frames.len() - kept.len());
        let mut location = |(id, frame): (&FrameId, &&Frame)| {
            let location = *known.frames.entry(*id).or_insert_with(|| self.tables.frame(frame));
            self.tables.count(location);
            location
        };
        outer.map(&mut location).collect()
    }

    /// Writes the profile, gzipped.
    pub fn write(mut self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut gzip = GzEncoder::new(out, Compression::default());
        for (group, estimates) in std::mem::take(&mut self.groups) {
            self.write_samples_of(group, &estimates, &mut gzip)?;
        }
        io::Write::write_all(&mut gzip, &self.rest().encode_to_vec())?;
        gzip.finish()?;
        Ok(())
    }

    /// The profile but its samples.
    fn rest(mut self) -> Profile {
        let tables = &mut self.tables;
        let mut value_type = |r#type, unit| ValueType { r#type: tables.string(r#type), unit: tables.string(unit) };
        let contentions = value_type("contentions", "count");
        let wait = value_type("wait", "nanoseconds");
        let blame = value_type("blame", "nanoseconds");
        let comment = self.comments.iter().map(|comment| tables.string(comment)).collect();
        Profile {
            default_sample_type: wait.r#type,
            // One contention is the period: everything was counted.
            period_type: Some(contentions.clone()),
            period: 1,
            sample_type: vec![contentions, wait, blame],
            time_nanos: signed(self.start_unix_ns.unwrap_or(0)),
            duration_nanos: signed(self.duration_ns),
            comment,
            ..self.tables.into_profile()
        }
    }

    /// Fields may come in any order, so samples are written one by one and never held together.
    fn write_samples_of(&mut self, group: Group, estimates: &Estimates, out: &mut dyn io::Write) -> io::Result<()> {
        let mut encoded = Vec::new();
        let mut write = |sample: &Sample| {
            encoded.clear();
            prost::encoding::message::encode(SAMPLE_FIELD, sample, &mut encoded);
            out.write_all(&encoded)
        };
        let exact = (estimates.exact.count, estimates.exact.total_ns);
        let none = vec![self.tables.synthetic(NO_STACK)];
        let none = Stack { locations: self.stack_number(none), task: 0, blocker: None };
        for (stack, count, total_ns) in scaled(&estimates.waits, exact, &none) {
            let value = vec![signed(count), signed(total_ns), 0];
            write(&self.sample(group, estimates.lock_name, &stack, value))?;
        }
        for (stack, _, total_ns) in scaled(&estimates.blame, exact, &none) {
            let value = vec![0, 0, signed(total_ns)];
            write(&self.sample(group, estimates.lock_name, &stack, value))?;
        }
        Ok(())
    }

    fn sample(&mut self, group: Group, lock_name: i64, stack: &Stack, value: Vec<i64>) -> Sample {
        let tables = &mut self.tables;
        let mut label = |key: &str, str: i64| Label { key: tables.string(key), str };
        let mut labels = vec![label("lock", lock_name)];
        if stack.task != 0 {
            labels.push(label("task", stack.task));
        }
        let words = [
            Some(("happened", Happened::Wait.name())),
            Some(("kind", group.kind.name())),
            Some(("mode", group.mode.name())),
            stack.blocker.map(|source| ("blocker", source.name())),
            group.own.then_some(("own", "yes")),
        ];
        labels.extend(words.into_iter().flatten().map(|(key, word)| {
            let str = tables.string(word);
            Label { key: tables.string(key), str }
        }));
        let location_id = self.stacks.get(stack.locations as usize).map(|locations| locations.to_vec());
        Sample { location_id: location_id.unwrap_or_default(), value, label: labels }
    }
}

/// The estimates, scaled so that they add up to the exact count and total; what no estimate stands for goes to `none`.
fn scaled(estimates: &BTreeMap<Stack, (u64, u64)>, exact: (u64, u64), none: &Stack) -> Vec<(Stack, u64, u64)> {
    let mut counts = Shares::new(estimates.values().map(|(count, _)| *count), exact.0);
    let mut totals = Shares::new(estimates.values().map(|(_, total_ns)| *total_ns), exact.1);
    let mut shared: Vec<_> = estimates
        .iter()
        .map(|(stack, (count, total_ns))| (*stack, counts.next(*count), totals.next(*total_ns)))
        .collect();
    shared.push((*none, counts.rest(), totals.rest()));
    shared.retain(|(_, count, total_ns)| (*count, *total_ns) != (0, 0));
    shared
}

/// Divides an exact total in proportion to estimates, without losing anything to rounding: each share is the difference
/// between two rounded running sums.
struct Shares {
    exact: u128,
    estimated: u128,
    sum: u128,
    given: u128,
}

impl Shares {
    fn new(estimates: impl Iterator<Item = u64>, exact: u64) -> Self {
        Self { exact: exact.into(), estimated: estimates.map(u128::from).sum(), sum: 0, given: 0 }
    }

    fn next(&mut self, estimate: u64) -> u64 {
        self.sum += u128::from(estimate);
        // Saturating: a damaged file may hold anything.
        let product = self.exact.saturating_mul(self.sum).saturating_add(self.estimated / 2);
        let due = product.checked_div(self.estimated).unwrap_or(0).clamp(self.given, self.exact);
        let share = due - self.given;
        self.given = due;
        u64::try_from(share).unwrap_or(u64::MAX)
    }

    fn rest(&self) -> u64 {
        u64::try_from(self.exact - self.given).unwrap_or(u64::MAX)
    }
}

/// A stack without the frames of metering itself.
fn without_metering<'a, 'f>(frames: &'a [&'f Frame]) -> &'a [&'f Frame] {
    &frames[lock_functions::metering_frames(frames.iter().map(|frame| frame.function.as_deref()))..]
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lockmeter_profile::{Blocker, Bucket, Lock, Naming, Task, Total};

    use super::*;

    #[test]
    fn shares_add_up_to_the_exact_total_whatever_the_estimates() {
        for (estimates, exact) in [(vec![1, 1, 1], 100), (vec![7, 0, 3], u64::MAX), (vec![u64::MAX, 1], 3), (vec![], 5)]
        {
            let mut shares = Shares::new(estimates.iter().copied(), exact);
            let given: u128 = estimates.iter().map(|estimate| u128::from(shares.next(*estimate))).sum();
            assert_eq!(given + u128::from(shares.rest()), u128::from(exact), "{estimates:?}");
        }
    }

    #[test]
    fn the_frames_of_metering_are_stripped_and_lock_functions_are_kept() {
        let frame = |function: Option<&str>| Frame {
            address: 1,
            function: function.map(str::to_owned),
            offset: 0,
            module: None,
        };
        let names =
            [None, Some("bpf_trace_run2"), Some("__traceiter_contention_begin"), Some("down_write"), Some("bpf_x")];
        let frames: Vec<Frame> = names.into_iter().map(frame).collect();
        let frames: Vec<&Frame> = frames.iter().collect();
        let kept: Vec<_> = without_metering(&frames).iter().map(|frame| frame.function.as_deref()).collect();
        assert_eq!(kept, [Some("down_write"), Some("bpf_x")]);
        let nameless = frame(None);
        assert_eq!(without_metering(&[&nameless]).len(), 1);
    }

    /// Adds a wait of this task, once to the exact totals and once, as half of it, to the samples.
    fn add_wait(interval: &mut Interval, name: &str, total_ns: u64, own: bool) {
        let lock = Lock { name: name.into(), object: None, naming: Naming::Symbol, detail: String::new() };
        let lock = interval.tables.intern_lock(lock);
        let task = interval.tables.intern_task(Task { tgid: 1, comm: "task".into(), own });
        let (kind, mode, bucket) = (Kind::Spin, Mode::Exclusive, Bucket::of(total_ns));
        let key = Key { happened: Happened::Wait, lock, kind, mode, task: Some(task), cgroup: None, bucket };
        let value = Value { count: 3, total_ns, max_ns: total_ns, spin_ns: total_ns };
        let estimate = Value { count: 1, total_ns: total_ns / 2, ..value };
        let blocker = Blocker::unknown(BlockerSource::NeverSlept);
        interval.totals.push(Total { key, value });
        interval.sampled.push(Sampled { key, instance: None, site: None, blocker, stacks: 1, estimate });
    }

    #[test]
    fn wait_and_blame_each_add_up_to_the_exact_totals() {
        let mut interval = Interval { duration_ns: 5, start_unix_ns: 9, ..Interval::default() };
        add_wait(&mut interval, "a", 1_001, false);
        add_wait(&mut interval, "b", 333, false);
        add_wait(&mut interval, "b", 7, true);
        let mut builder = PprofBuilder::new(&About::default());
        builder.add(&interval);
        builder.add(&interval);
        let mut gzipped = Vec::new();
        builder.write(&mut gzipped).unwrap();
        let mut encoded = Vec::new();
        flate2::read::GzDecoder::new(gzipped.as_slice()).read_to_end(&mut encoded).unwrap();
        let profile = Profile::decode(encoded.as_slice()).unwrap();
        let sum = |at: usize| profile.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        assert_eq!([sum(0), sum(1), sum(2)], [18, 2 * 1_341, 2 * 1_341]);
        assert_eq!((profile.duration_nanos, profile.time_nanos), (10, 9));
        let text = |string: i64| profile.string_table[usize::try_from(string).unwrap()].as_str();
        assert_eq!(text(profile.default_sample_type), "wait");
        let labels = profile.sample.iter().flat_map(|sample| &sample.label);
        assert_eq!(labels.filter(|label| text(label.key) == "own").count(), 2, "own waits stay apart");
    }
}
