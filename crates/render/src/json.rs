//! JSON: a contract that other programs parse, explained in `docs/reference/json.md`.

use std::collections::BTreeMap;
use std::io;

use lockmeter_profile::rules::RuleSet;
use lockmeter_profile::{About, Losses, Overhead, RecordingKind, Report, Swaps, SwitchedOff, TimedOut, Value, Worst};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::Formatter;

use crate::columns::{Cell, Column, Whole, columns};
use crate::escape::{Escaping, Form};
use crate::headline::Headline;
use crate::slow_holds::SlowHoldsJson;
use crate::threads::{self, ThreadsJson};
use crate::{Exporter, foot};

/// Version of the JSON contract. It grows when a field is removed, renamed or changes its meaning; not when one is added.
pub const JSON_SCHEMA: u32 = 1;

/// A report as one JSON object, ended by a line break. Rows are written one at a time, each on a line of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Json;

impl Exporter for Json {
    fn form(&self) -> Form {
        Form::JSON
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        write_object(&Top(report), out)
    }
}

/// The same object in one line, for a stream of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JsonLine;

impl Exporter for JsonLine {
    fn form(&self) -> Form {
        Form::JSON
    }

    fn export(&self, report: &Report, out: &mut dyn io::Write) -> io::Result<()> {
        write_line(&Top(report), out)
    }
}

/// Writes one object in one line.
pub(crate) fn write_line(object: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    out.write_all(b"\n")
}

/// Writes any value as indented JSON, ended by a line break: for what is no [`Exporter`]'s.
pub fn write_json(value: &impl Serialize, out: impl io::Write) -> io::Result<()> {
    let mut out = Escaping::new(out, Form::JSON);
    serde_json::to_writer_pretty(&mut out, value)?;
    io::Write::write_all(&mut out, b"\n")
}

/// Writes one object, with its fields and the objects in its arrays on lines of their own.
pub(crate) fn write_object(object: &impl Serialize, out: &mut dyn io::Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Lines::default());
    object.serialize(&mut serializer)?;
    out.write_all(b"\n")
}

/// Serializes one object from the names and values of its fields, in that order.
macro_rules! object {
    ($serializer:expr, { $($key:literal: $value:expr,)+ }) => {{
        let mut map = $serializer.serialize_map(None)?;
        $(map.serialize_entry($key, &$value)?;)+
        map.end()
    }};
}
pub(crate) use object;

struct Top<'a>(&'a Report);

impl Serialize for Top<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report) = self;
        let by: Vec<&str> = report.by.iter().map(|by| by.name()).collect();
        object!(serializer, {
            "schema": JSON_SCHEMA,
            "lockmeter": report.about.lockmeter_version,
            "kernel": report.about.kernel_release,
            "machine": report.about.machine,
            "recorded": report.about.kind.map(RecordingKind::name),
            "scope": report.about.scope,
            "reason": reason(&report.about),
            "rules": RuleSets(&report.about.rules),
            "by": by,
            "start_unix_ns": report.start_unix_ns,
            "duration_ns": report.duration_ns,
            "intervals": report.intervals,
            "cpus": report.about.cpus,
            "lost": Lost(&report.losses),
            "swapped": Swapped(&report.swaps),
            "off": Off(&report.off),
            "overhead": Cost(&report.overhead, report.duration_ns),
            "sampling": Sampling(&report.about, &report.overhead),
            "head": Head(report),
            "threads": report.threads.as_ref().map(|threads| ThreadsJson(report, threads)),
            "slow_holds": SlowHoldsJson(&report.slow_holds),
            "rows": Rows { columns: columns(&report.by).collect(), rows: &report.rows, whole: Whole::from(*report) },
        })
    }
}

/// By which rules waits of programs were told apart.
struct RuleSets<'a>(&'a [RuleSet]);

impl Serialize for RuleSets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|set| {
            let checksum = format!("{:08x}", set.checksum);
            BTreeMap::from([("name", set.name.clone()), ("version", set.version.clone()), ("checksum", checksum)])
        }))
    }
}

/// What was lost, each cause under its name.
pub(crate) struct Lost<'a>(pub &'a Losses);

impl Serialize for Lost<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(loss, lost)| (loss.name(), lost)))
    }
}

/// What became of locks that were to be swapped, each outcome under its name.
struct Swapped<'a>(&'a Swaps);

impl Serialize for Swapped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(swap, count)| (swap.name(), count)))
    }
}

/// Why a flight recorder kept the recording; `None` if somebody asked for it.
pub(crate) fn reason(about: &About) -> Option<&str> {
    (!about.reason.is_empty()).then_some(about.reason.as_str())
}

/// For how long programs were not metered, nor holds of kernel locks.
struct Off<'a>(&'a SwitchedOff);

impl Serialize for Off<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(off) = self;
        let holds: BTreeMap<&str, u64> = off.holds.iter().map(|(kind, off_ns)| (kind.name(), *off_ns)).collect();
        object!(serializer, { "all_ns": off.all_ns, "processes": &off.processes, "holds": holds, })
    }
}

/// What metering cost, over a duration.
pub(crate) struct Cost<'a>(pub &'a Overhead, pub u64);

impl Serialize for Cost<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(overhead, duration_ns) = self;
        object!(serializer, {
            "own_cpu_ns": overhead.own_cpu_ns,
            "program_run_ns": overhead.program_run_ns,
            "program_runs": overhead.program_runs,
            "stack_ns": overhead.stack_ns,
            "one_cpu_ppm": foot::used_ppm(overhead, *duration_ns),
        })
    }
}

struct Sampling<'a>(&'a About, &'a Overhead);

impl Serialize for Sampling<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(about, overhead) = self;
        object!(serializer, {
            "stacks": overhead.stacks,
            "period_ns": overhead.sampling_period_ns,
            "budget_ppm": about.stack_budget_ppm,
        })
    }
}

struct Head<'a>(&'a Report);

impl Serialize for Head<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(report) = self;
        let head = Headline::of(report);
        object!(serializer, {
            "alarm": report.threads.as_ref().and_then(threads::alarm),
            "sentence": head.to_string(),
            "waits": Totals(&report.waits),
            "named_ns": report.named_ns,
            "cpu_ppm": head.cpu_share_ppm(),
            "spin_error_ns": report.spinning.sampled_error_ns(),
            "spin_samples": report.spinning.sampled.samples,
            "preempted_ns": report.spinning.preempted_ns,
            "asleep": head.mean_asleep_thousandths().map(decimal),
            "goroutines": decimal(head.mean_goroutines_thousandths()),
            "goroutines_error": decimal(head.goroutines_error_thousandths()),
            "own_waits": Totals(&report.own_waits),
            "worst": report.worst.as_ref().map(|worst| Blamed(worst, head.worst_share_ppm(worst))),
            "timed_out": report.timed_out.as_ref().map(GaveUp),
        })
    }
}

/// A value by itself.
struct Totals<'a>(&'a Value);

impl Serialize for Totals<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(value) = self;
        object!(serializer, {
            "count": value.count,
            "total_ns": value.total_ns,
            "max_ns": value.max_ns,
            "spin_ns": value.spin_ns,
            "sleep_ns": value.sleep_ns(),
        })
    }
}

struct Blamed<'a>(&'a Worst, u64);

impl Serialize for Blamed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(worst, share_ppm) = self;
        object!(serializer, {
            "lock": worst.lock,
            "kind": worst.kind.name(),
            "mode": worst.mode.name(),
            "waits": Totals(&worst.value),
            "share_ppm": share_ppm,
            "blocker_function": worst.blocker_function,
            "blocker_task": worst.blocker_task,
            "holder_state": worst.holder_state.map(|did| did.state.name()),
            "holder_call": worst.holder_state.and_then(|did| did.call?.name()),
            "root_lock": worst.root.as_ref().map(|(lock, _)| lock),
            "root_function": worst.root.as_ref().and_then(|(_, function)| function.as_ref()),
            "caller_function": worst.caller_function,
        })
    }
}

struct GaveUp<'a>(&'a TimedOut);

impl Serialize for GaveUp<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(timed_out) = self;
        object!(serializer, {
            "all": Totals(&timed_out.all),
            "lock": timed_out.lock,
            "kind": timed_out.kind.name(),
            "mode": timed_out.mode.name(),
            "waits": Totals(&timed_out.value),
            "blocker_function": timed_out.blocker_function,
            "blocker_task": timed_out.blocker_task,
        })
    }
}

/// Rows, each an object of what its columns say.
pub(crate) struct Rows<'a, R: 'static, W: 'static> {
    pub columns: Vec<&'static Column<R, W>>,
    pub rows: &'a [R],
    pub whole: W,
}

impl<R, W> Serialize for Rows<'_, R, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.rows.iter().map(|row| Record { row, of: self }))
    }
}

struct Record<'a, R: 'static, W: 'static> {
    row: &'a R,
    of: &'a Rows<'a, R, W>,
}

impl<R, W> Serialize for Record<'_, R, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.of.columns.len()))?;
        for column in &self.of.columns {
            map.serialize_entry(column.key, &column.cell(self.row, &self.of.whole))?;
        }
        map.end()
    }
}

impl Serialize for Cell<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Missing => serializer.serialize_none(),
            Self::Flag(yes) => serializer.serialize_bool(yes),
            Self::Count(number) | Self::Nanoseconds(number) | Self::Millionths(number) => {
                serializer.serialize_u64(number)
            }
            Self::Thousandths(number) => serializer.serialize_f64(decimal(number)),
            Self::SignedNanoseconds(change_ns) => serializer.serialize_i64(change_ns),
            Self::Name(name) => serializer.serialize_str(name),
            Self::Id(id) => serializer.serialize_u32(id),
            Self::Address(address) => serializer.collect_str(&format_args!("{address:#018x}")),
            Self::Frames(frames) => frames.serialize(serializer),
            Self::Histogram(buckets) => {
                let mut seq = serializer.serialize_seq(Some(buckets.len()))?;
                for (bucket, count, total_ns) in buckets {
                    seq.serialize_element(&[bucket.lower_ns(), *count, *total_ns])?;
                }
                seq.end()
            }
        }
    }
}

/// Thousandths as a number with a point.
pub(crate) fn decimal(thousandths: u64) -> f64 {
    thousandths as f64 / 1_000.0
}

/// Puts the fields of the top object, and the objects in its arrays, on lines of their own, and everything else on those
/// lines: a row is a line, so that `grep` and `diff` work on it.
#[derive(Default)]
struct Lines {
    /// What the value being written lies in, outermost first.
    within: Vec<Nest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Nest {
    Object,
    Array,
    /// An array that holds objects.
    Rows,
}

impl Formatter for Lines {
    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        if let [Nest::Object, list @ (Nest::Array | Nest::Rows)] = self.within.as_mut_slice() {
            *list = Nest::Rows;
            writer.write_all(b"\n    ")?;
        }
        self.within.push(Nest::Object);
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.within.pop();
        writer.write_all(if self.within.is_empty() { b"\n}" } else { b"}" })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        writer.write_all(match (first, self.within.len()) {
            (true, 1) => b"\n  ",
            (false, 1) => b",\n  ",
            (true, _) => b"",
            (false, _) => b", ",
        })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.within.push(Nest::Array);
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(if self.within.pop() == Some(Nest::Rows) { b"\n  ]" } else { b"]" })
    }
}
