//! A recording, hour by hour.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lockmeter_profile::recording::RecordingReader;
use lockmeter_profile::view::{Query, ReportBuilder};
use lockmeter_profile::{About, Dimension, Happened, Interval, Limits, RecordingKind, Report, Row, TooLarge};
use sha2::{Digest, Sha256};

use crate::failure::{Failure, say};
use crate::sample::{largest, samples};
use crate::store::{HOUR_NS, Place, Store};
use crate::tables::{self, Slice};
use crate::workload::{WorkloadBy, Workloads};

/// What is exported as whose, and to where.
pub struct Options {
    /// The tables.
    pub to: Store,
    /// The machine that was recorded.
    pub host: String,
    /// What a workload is.
    pub workload_by: WorkloadBy,
    /// How many rows an hour has in full detail.
    pub most_rows: usize,
}

/// Twelve weeks: a small file of intervals that lie hours apart could fill a disk with small files.
const MOST_SLICES: usize = 2_000;

/// How far this machine's clock and that of a recorder may differ before somebody should know.
const CLOCKS_DIFFER_NS: u64 = 24 * HOUR_NS;

/// No lockmeter is older (2026-01-01).
const FIRST_YEAR_UNIX_NS: u64 = 1_767_225_600_000_000_000;

/// What became of a recording.
#[derive(Default)]
pub struct Written {
    slices: usize,
    rows: usize,
    bytes: u64,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { slices, rows, bytes } = self;
        let plural = |number: usize| if number == 1 { "" } else { "s" };
        write!(f, "{rows} row{} of {slices} hour{}, {bytes} bytes of Parquet", plural(*rows), plural(*slices))
    }
}

/// Exports a recording. After an error, what was written is whole, and exporting again replaces it.
pub fn export(path: &Path, options: &Options) -> Result<Written, Failure> {
    let mut reader = RecordingReader::open(path)?;
    refuse_others(path, reader.about())?;
    let mut export = Export::new(options);
    let mut of_hour: Option<Hour> = None;
    while let Some(interval) = reader.next_interval()? {
        let id = export.id.get_or_insert_with(|| recording_id(reader.about(), interval.start_unix_ns)).clone();
        let hour = interval.start_unix_ns / HOUR_NS;
        if let Some(ended) = of_hour.take_if(|of| of.hour != hour) {
            let hour = ended.hour;
            let report = ended.report(&reader.limits()).map_err(|error| reader.too_large(error))?;
            export.write(path, &id, hour, report)?;
        }
        let of_hour = of_hour.get_or_insert_with(|| Hour::new(hour, reader.about(), options.workload_by));
        of_hour.add(&interval, &reader.limits()).map_err(|error| reader.too_large(error))?;
    }
    let (Some(mut last), Some(id)) = (of_hour, export.id.clone()) else {
        say(format_args!("{} holds no interval: nothing to export", path.display()));
        return Ok(export.written);
    };
    last.waits.add_losses(reader.losses());
    let hour = last.hour;
    let report = last.report(&reader.limits()).map_err(|error| reader.too_large(error))?;
    export.write(path, &id, hour, report)?;
    Ok(export.written)
}

/// What intervals of one hour hold.
struct Hour {
    hour: u64,
    waits: ReportBuilder,
    /// A report by who is to blame has only what somebody can be blamed for.
    others: ReportBuilder,
}

impl Hour {
    fn new(hour: u64, about: &About, by: WorkloadBy) -> Self {
        let by_caller = [Dimension::Lock, Dimension::Kind, Dimension::Mode, by.dimension(), Dimension::Caller];
        let by_blame = by_caller.into_iter().chain([Dimension::Blocker, Dimension::Root]).collect::<Vec<_>>();
        let [waits, others] =
            [Query::by(by_blame), Query::by(by_caller)].map(|query| ReportBuilder::new(about, &query));
        Self { hour, waits, others }
    }

    fn add(&mut self, interval: &Interval, limits: &Limits) -> Result<(), TooLarge> {
        let limits = limits.shared_by(2);
        self.waits.add_within(interval, &limits)?;
        self.others.add_within(interval, &limits)
    }

    fn report(self, limits: &Limits) -> Result<Report, TooLarge> {
        let limits = limits.shared_by(2);
        let mut report = self.waits.finish_within(&limits)?;
        let others = self.others.finish_within(&limits)?.rows;
        let is_blamed = |row: &Row| matches!(row.happened, Happened::Wait | Happened::TimedOut | Happened::Idle);
        report.rows.extend(others.into_iter().filter(|row| !is_blamed(row)));
        Ok(report)
    }
}

/// Only waits and holds have these columns.
fn refuse_others(path: &Path, about: &About) -> Result<(), Failure> {
    let path = path.display();
    match about.kind {
        Some(RecordingKind::Locks | RecordingKind::Mmap) => Ok(()),
        Some(RecordingKind::Latency) => {
            Err(Failure::input(format!("{path} was recorded by `lockmeter latency` and has no locks to export")))
        }
        None => Err(Failure::input(format!(
            "{path} is of a kind that this version does not know: lockmeter {} recorded it; export with that version or a newer one",
            about.lockmeter_version
        ))),
    }
}

/// What tells a recording from all others, also of another machine of the same name: the recorder's start to the nanosecond, its process,
/// and all else that it says of itself.
fn recording_id(about: &About, first_interval_unix_ns: u64) -> String {
    let mut hash = Sha256::new();
    let mut add = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    for text in [&about.lockmeter_version, &about.kernel_release, &about.machine, &about.scope, &about.reason] {
        add(text.as_bytes());
    }
    about.command_line.iter().for_each(|argument| add(argument.as_bytes()));
    for number in [about.start_unix_ns, first_interval_unix_ns, about.recorder_tgid.into(), about.cpus.into()] {
        add(&number.to_le_bytes());
    }
    hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

struct Export<'a> {
    options: &'a Options,
    workloads: Workloads,
    id: Option<String>,
    /// How often each hour was begun: a clock that was set back begins one again.
    begun: HashMap<u64, u32>,
    written: Written,
}

impl<'a> Export<'a> {
    fn new(options: &'a Options) -> Self {
        let workloads = Workloads::new(options.workload_by);
        Self { options, workloads, id: None, begun: HashMap::new(), written: Written::default() }
    }

    /// Writes the files of one hour: the stacks before the samples that name them, and last that there is such a recording.
    fn write(&mut self, path: &Path, id: &str, hour: u64, mut report: Report) -> Result<(), Failure> {
        if self.written.slices == MOST_SLICES {
            let path = path.display();
            return Err(Failure::input(format!(
                "{path} has intervals in more than {MOST_SLICES} hours, which no recorder writes to one file"
            )));
        }
        let part = self.begun.entry(hour).or_default();
        let place = Place { hour, file: Place::file(&self.options.host, id, *part) };
        *part += 1;
        if self.written.slices == 0 {
            warn_of_clock(path, report.start_unix_ns);
        }
        let all = samples(std::mem::take(&mut report.rows), &mut self.workloads);
        let (samples, merged) = largest(all, self.options.most_rows);
        let Options { host, workload_by, .. } = self.options;
        let slice = Slice { host, recording: id, by: *workload_by, merged, report: &report };
        let store = &self.options.to;
        self.written.bytes += store.write("stacks", &place, tables::stacks(&slice, &samples))?;
        self.written.bytes += store.write("samples", &place, tables::samples(&slice, &samples))?;
        self.written.bytes += store.write("recordings", &place, tables::recordings(&slice))?;
        self.written.slices += 1;
        self.written.rows += samples.len();
        Ok(())
    }
}

/// A wrong clock puts samples where nobody looks for them.
fn warn_of_clock(path: &Path, start_unix_ns: u64) {
    let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
    let is_ahead = u128::from(start_unix_ns) > now_ns + u128::from(CLOCKS_DIFFER_NS);
    let why = match (is_ahead, start_unix_ns < FIRST_YEAR_UNIX_NS) {
        (true, _) => "more than a day in the future",
        (_, true) => "before there was a lockmeter",
        _ => return,
    };
    let path = path.display();
    say(format_args!(
        "{path} begins {why}: a clock is wrong, its own or this machine's; it is exported under its own time"
    ));
}
