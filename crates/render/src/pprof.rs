//! A profile that Google's pprof opens: `go tool pprof -sample_index=blame out.pb.gz`.
//!
//! Sample types are `contentions/count`, `wait/nanoseconds` (the default) and `blame/nanoseconds`. A wait enters twice: under the stack
//! that waited, with its count and its wait, and under the stack that made it wait, with its wait as blame. So `-sample_index=wait` shows
//! who waits, `-sample_index=blame` who makes others wait, and both add up to all waited time. The innermost frame is the lock, as in
//! [folded stacks](crate::Folded). Where there is no stack, a frame in brackets says why.
//!
//! Labels: `happened`, `lock`, `kind`, `mode`, `filesystem` and `context` (in a report by these), `task` (of the waiter, in a report by task; with blame, of the releaser), `blocker` (how it
//! is known), and `own` on the waits of lockmeter itself.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use lockmeter_profile::{Dimension, Report, Row};
use prost::Message;

use crate::escape::escaped;
use crate::folded::is_waited;
use crate::pprof_proto::{Function, Label, Line, Location, Mapping, Profile, Sample, ValueType};
use crate::stacks::{NO_STACK, source_words};

/// The number of `Profile.sample` in profile.proto.
const SAMPLE_FIELD: u32 = 2;

/// Two reports of one recording as a profile: who waited, and who made them wait. Their numbers are those of the reports.
#[derive(Debug, Clone, Copy)]
pub struct Pprof<'a> {
    /// Grouped by [`WAITS`](Self::WAITS) at least.
    pub waits: &'a Report,
    /// Grouped by [`BLAME`](Self::BLAME) at least.
    pub blame: &'a Report,
}

impl Pprof<'_> {
    /// What the report of who waited is grouped by.
    pub const WAITS: [Dimension; 2] = [Dimension::Lock, Dimension::Caller];
    /// What the report of who made them wait is grouped by.
    pub const BLAME: [Dimension; 2] = [Dimension::Lock, Dimension::Blocker];

    /// Writes the profile, gzipped.
    pub fn write(&self, out: &mut dyn io::Write) -> io::Result<()> {
        let mut gzip = GzEncoder::new(out, Compression::default());
        let mut tables = Tables::new(&self.waits.about.scope);
        for row in self.waits.rows.iter().filter(is_waited) {
            let stack = row.caller.as_deref().unwrap_or_default();
            let value = [row.value.count, row.value.total_ns, 0];
            let task = row.task.as_ref().map(|task| task.comm.as_str());
            write_sample(&tables.sample(row, stack, NO_STACK, task, value), &mut gzip)?;
        }
        for row in self.blame.rows.iter().filter(is_waited) {
            let blocker = row.blocker.as_ref();
            let stack = blocker.map_or(&[][..], |blocker| &blocker.stack);
            let reason =
                blocker.map_or_else(|| NO_STACK.to_owned(), |known| format!("[{}]", source_words(known.source)));
            let task = blocker.and_then(|blocker| blocker.task.as_deref());
            write_sample(&tables.sample(row, stack, &reason, task, [0, 0, row.value.total_ns]), &mut gzip)?;
        }
        io::Write::write_all(&mut gzip, &tables.into_profile(self.waits).encode_to_vec())?;
        gzip.finish()?;
        Ok(())
    }
}

/// Fields may come in any order, so samples are written one by one and never held together.
fn write_sample(sample: &Sample, out: &mut dyn io::Write) -> io::Result<()> {
    let mut encoded = Vec::new();
    prost::encoding::message::encode(SAMPLE_FIELD, sample, &mut encoded);
    out.write_all(&encoded)
}

/// A profile's strings, functions and locations, each stored once. Ids start at 1; string 0 is empty, as pprof demands.
#[derive(Debug)]
struct Tables {
    strings: HashMap<String, i64>,
    /// The location of each function: the same number as the function's own.
    functions: HashMap<i64, u64>,
    profile: Profile,
}

impl Tables {
    fn new(program: &str) -> Self {
        let mut tables = Self { strings: HashMap::new(), functions: HashMap::new(), profile: Profile::default() };
        tables.string("");
        // pprof heads its tables with the name of the first binary.
        let filename = tables.string(program);
        tables.profile.mapping.push(Mapping { id: 1, filename, has_functions: true });
        tables
    }

    /// Every string of the profile passes here, and is escaped: pprof prints them as they are.
    fn string(&mut self, text: &str) -> i64 {
        let text = &*escaped(text);
        if let Some(at) = self.strings.get(text) {
            return *at;
        }
        let at = i64::try_from(self.profile.string_table.len()).expect("a profile has fewer than 2^63 strings");
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), at);
        at
    }

    fn location(&mut self, function: &str) -> u64 {
        let name = self.string(function);
        let (functions, locations) = (&mut self.profile.function, &mut self.profile.location);
        *self.functions.entry(name).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(Function { id, name, system_name: name });
            locations.push(Location { id, mapping_id: 1, line: vec![Line { function_id: id }] });
            id
        })
    }

    /// A row as a sample; `none` stands for a stack that is not known.
    fn sample(&mut self, row: &Row, stack: &[Arc<str>], none: &str, task: Option<&str>, value: [u64; 3]) -> Sample {
        let mut location_id = vec![self.location(&lock_frame(row))];
        match stack {
            [] => location_id.push(self.location(none)),
            stack => location_id.extend(stack.iter().map(|function| self.location(function))),
        }
        let labels = [
            ("happened", Some(row.happened.name())),
            ("lock", row.lock.as_deref()),
            ("kind", row.kind.map(|kind| kind.name())),
            ("mode", row.mode.map(|mode| mode.name())),
            ("filesystem", row.filesystem.as_deref()),
            ("context", row.context.map(|context| context.name())),
            ("task", task),
            ("blocker", row.blocker.as_ref().map(|blocker| blocker.source.name())),
            ("own", row.own.then_some("yes")),
        ];
        let known = labels.into_iter().filter_map(|(key, word)| Some((key, word?)));
        let label = known.map(|(key, word)| Label { key: self.string(key), str: self.string(word) }).collect();
        Sample { location_id, value: value.map(signed).to_vec(), label }
    }

    /// The profile but its samples.
    fn into_profile(mut self, report: &Report) -> Profile {
        let about = &report.about;
        let comments = [
            format!("lockmeter {}: {} on Linux {}", about.lockmeter_version, about.scope, about.kernel_release),
            format!("recorded by: {}", about.command_line.join(" ")),
        ];
        let comment = comments.iter().map(|comment| self.string(comment)).collect();
        let mut value_type = |r#type, unit| ValueType { r#type: self.string(r#type), unit: self.string(unit) };
        let contentions = value_type("contentions", "count");
        let wait = value_type("wait", "nanoseconds");
        let blame = value_type("blame", "nanoseconds");
        Profile {
            default_sample_type: wait.r#type,
            // One contention is the period: everything was counted.
            period_type: Some(contentions.clone()),
            period: 1,
            sample_type: vec![contentions, wait, blame],
            time_nanos: signed(report.start_unix_ns),
            duration_nanos: signed(report.duration_ns),
            comment,
            ..self.profile
        }
    }
}

/// `[mm_struct.mmap_lock, read]`: pprof takes what stands in parentheses for a function's parameters, and leaves it out.
fn lock_frame(row: &Row) -> String {
    let lock = row.lock.as_deref().unwrap_or("unknown lock");
    let mode = row.mode.map(|mode| format!(", {mode}")).unwrap_or_default();
    let own = if row.own { ", lockmeter's own" } else { "" };
    format!("[{lock}{mode}{own}]")
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lockmeter_profile::view::{Query, report};
    use lockmeter_profile::{
        About, Blocker, BlockerSource, Bucket, Frame, Happened, Interval, Key, Kind, Lock, Mode, Naming, OfFilesystem,
        Sampled, Task, Total, Value,
    };

    use super::*;

    /// Adds a wait of this task, once to the exact totals and once, as half of it, to the samples.
    fn add_wait(interval: &mut Interval, name: &str, total_ns: u64, own: bool) {
        let lock = Lock { name: name.into(), object: None, naming: Naming::Symbol, detail: String::new() };
        let lock = interval.tables.intern_lock(lock);
        let task = interval.tables.intern_task(Task { tgid: 1, comm: "task".into(), own });
        let (kind, mode, bucket) = (Kind::Spin, Mode::Exclusive, Bucket::of(total_ns));
        let key = Key {
            happened: Happened::Wait,
            lock,
            kind,
            mode,
            task: Some(task),
            cgroup: None,
            context: None,
            cpu: None,
            bucket,
        };
        let value = Value { count: 3, total_ns, max_ns: total_ns, spin_ns: total_ns };
        let estimate = Value { count: 1, total_ns: total_ns / 2, ..value };
        let blocker = Blocker::unknown(BlockerSource::NeverSlept);
        interval.totals.push(Total { key, value });
        interval.sampled.push(Sampled {
            key,
            instance: None,
            filesystem: OfFilesystem::NotLookedUp,
            site: None,
            blocker,
            stacks: 1,
            estimate,
        });
    }

    /// The profile of these intervals, encoded and decoded.
    fn profile(about: &About, intervals: &[&Interval]) -> Profile {
        let by = |dimensions: [Dimension; 2]| {
            let query = Query { include_own: true, ..Query::by(dimensions) };
            report(about, intervals.iter().map(|interval| (*interval).clone()), &query)
        };
        let mut gzipped = Vec::new();
        Pprof { waits: &by(Pprof::WAITS), blame: &by(Pprof::BLAME) }.write(&mut gzipped).unwrap();
        let mut encoded = Vec::new();
        flate2::read::GzDecoder::new(gzipped.as_slice()).read_to_end(&mut encoded).unwrap();
        Profile::decode(encoded.as_slice()).unwrap()
    }

    fn text(profile: &Profile, string: i64) -> &str {
        &profile.string_table[usize::try_from(string).unwrap()]
    }

    /// Makes sure that pprof, which prints strings as they are, gets none that a terminal obeys: of locks, tasks, functions, files or
    /// comments.
    #[test]
    fn no_string_of_a_profile_steers_a_terminal() {
        let name = || "a\x1b[31m\u{9b}\u{202e}\u{200b}\n\x7f".to_owned();
        let about = About {
            lockmeter_version: name(),
            scope: name(),
            kernel_release: name(),
            command_line: vec![name()],
            ..About::default()
        };
        let mut interval = Interval::default();
        add_wait(&mut interval, &name(), 1_001, false);
        let frame =
            interval.tables.intern_frame(Frame { address: 1, function: Some(name()), offset: 0, module: Some(name()) });
        let stack = interval.tables.intern_stack(vec![frame]);
        let task = interval.tables.intern_task(Task { tgid: 1, comm: name(), own: false });
        interval.sampled[0].site = Some(stack);
        interval.sampled[0].key.task = Some(task);
        let strings = profile(&about, &[&interval]).string_table;
        let escaped = strings.iter().filter(|string| string.contains("\\u{1b}[31m\\u{9b}\\u{202e}\\u{200b}\\n\\u{7f}"));
        // The name itself, the lock's frame, and two comments that hold it.
        assert_eq!(escaped.count(), 4, "{strings:?}");
        assert!(
            !strings.iter().any(|string| string.contains(['\x1b', '\u{9b}', '\u{202e}', '\u{200b}', '\n', '\x7f']))
        );
    }

    #[test]
    fn wait_and_blame_each_add_up_to_the_exact_totals() {
        let mut interval = Interval { duration_ns: 5, start_unix_ns: 9, ..Interval::default() };
        add_wait(&mut interval, "a", 1_001, false);
        add_wait(&mut interval, "b", 333, false);
        add_wait(&mut interval, "b", 7, true);
        let profile = profile(&About::default(), &[&interval, &interval]);
        let sum = |at: usize| profile.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        assert_eq!([sum(0), sum(1), sum(2)], [18, 2 * 1_341, 2 * 1_341]);
        assert_eq!((profile.duration_nanos, profile.time_nanos), (10, 9));
        assert_eq!(text(&profile, profile.default_sample_type), "wait");
        let labels = profile.sample.iter().flat_map(|sample| &sample.label);
        assert_eq!(labels.filter(|label| text(&profile, label.key) == "own").count(), 2, "own waits stay apart");
    }

    #[test]
    fn the_innermost_frame_is_the_lock() {
        let mut interval = Interval::default();
        add_wait(&mut interval, "a", 1_001, false);
        let profile = profile(&About::default(), &[&interval]);
        let leaf = |sample: &Sample| {
            let location = &profile.location[usize::try_from(sample.location_id[0]).unwrap() - 1];
            let function = &profile.function[usize::try_from(location.line[0].function_id).unwrap() - 1];
            text(&profile, function.name)
        };
        assert_eq!(profile.sample.iter().map(leaf).collect::<Vec<_>>(), ["[a, exclusive]"; 2]);
    }
}
