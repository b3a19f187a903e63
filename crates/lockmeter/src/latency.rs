//! `lockmeter latency`: what keeps CPUs from their tasks, until the time is up or Ctrl-C; and the same from a recording.

use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::{notice_once, say};
use lockmeter_cli::output::{self, cannot_write};
use lockmeter_cli::progress::{Progress, Unit};
use lockmeter_kernel::contention::StackBudget;
use lockmeter_kernel::latency::{LatencySource, Options, RUNNERS};
use lockmeter_profile::latency::{LatencyBuilder, LatencyQuery, LatencyReport};
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::{About, Dimension, Interval, RecordingKind, Source};
use lockmeter_recorder::target::Target;
use lockmeter_recorder::{Ended, Recorder, Sink, StopSignals};
use lockmeter_render::html::LatencyPage;
use lockmeter_render::latency::{LatencySortKey, LatencyTable};
use lockmeter_render::{Csv, Exporter, Json, Table};

use crate::arguments::latency::{LatencyArguments, LatencyFormat};
use crate::arguments::{Format, QueryArguments, ReportArguments};
use crate::page;
use crate::warnings::Warning;

/// The column that rows are ordered by: what kept a CPU longest.
pub const DEFAULT_SORT: &str = "max_ns";

/// How often what was metered is taken over and, if asked for, written: a recorder that is killed loses at most this much.
const DRAIN: Duration = Duration::from_secs(1);

pub fn run(arguments: &LatencyArguments) -> Result<()> {
    possible(arguments)?;
    let sort = sort_key(&arguments.sort)?;
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let mut source = LatencySource::start(&Options {
        runners: arguments.runners.kinds(),
        threshold: arguments.threshold,
        every: arguments.every,
    })?;
    let about = lockmeter_recorder::describe(RecordingKind::Latency, "whole machine", StackBudget::DEFAULT);
    let writer = arguments.output.as_ref().map(|path| arguments.file.create(path, &about, &signals)).transpose()?;
    let stdout_is_taken = writer.as_ref().is_some_and(RecordingWriter::is_standard_output);
    let tables = if stdout_is_taken { Tables::Stderr } else { Tables::Stdout };
    source.take_notices().into_iter().for_each(notice_once);
    announce(arguments);
    let now = Instant::now();
    let mut sink = TableSink {
        arguments,
        tables,
        sort,
        writer,
        about: &about,
        whole: empty(&about),
        part: empty(&about),
        next_drain: now + DRAIN,
        next_table: arguments.interval.map(|every| now + every),
    };
    let recorder = Recorder { signals: &mut signals, target: &Target::None, duration: arguments.duration };
    let metered: Result<Ended> = recorder.run(source, &mut sink);
    metered?;
    let whole = sink.whole.report();
    if let Some(writer) = sink.writer {
        writer.finish().map_err(cannot_write)?;
    }
    show(&whole, arguments, tables, sort)?;
    for warning in Warning::about_latency(&whole, true) {
        say(warning);
    }
    Ok(())
}

/// Shows a table each `--interval`, and keeps the whole for the last one and for the recording.
struct TableSink<'a> {
    arguments: &'a LatencyArguments,
    tables: Tables,
    sort: LatencySortKey,
    writer: Option<RecordingWriter>,
    about: &'a About,
    whole: LatencyBuilder,
    /// Since the last table.
    part: LatencyBuilder,
    next_drain: Instant,
    next_table: Option<Instant>,
}

impl Sink for TableSink<'_> {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_table.map_or(self.next_drain, |next_table| next_table.min(self.next_drain))
    }

    fn take(&mut self, interval: Interval) -> Result<()> {
        self.whole.add(&interval);
        self.part.add(&interval);
        match &mut self.writer {
            Some(writer) => writer.append(&interval).map_err(cannot_write),
            None => Ok(()),
        }
    }

    fn due(&mut self) -> Result<()> {
        let now = Instant::now();
        self.next_drain = now + DRAIN;
        if let (Some(every), Some(next_table)) = (self.arguments.interval, self.next_table)
            && now >= next_table
        {
            let part = std::mem::replace(&mut self.part, empty(self.about));
            show(&part.report(), self.arguments, self.tables, self.sort)?;
            self.next_table = Some(now + every);
        }
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        notice_once(sentence);
    }
}

fn empty(about: &About) -> LatencyBuilder {
    LatencyBuilder::new(about, &LatencyQuery::default())
}

/// What makes no sense together, before anything is started.
fn possible(arguments: &LatencyArguments) -> Result<()> {
    let usage = |sentence: &str| Err(Failure::error(Status::Usage, sentence));
    if let (Some(interval), Some(duration)) = (arguments.interval, arguments.duration)
        && interval > duration
    {
        return usage("--interval is longer than -d: no table would come before the summary; leave --interval out");
    }
    if arguments.interval.is_some() && arguments.format == LatencyFormat::Csv {
        return usage(
            "CSV is one table with one heading; leave --interval out, or use --format json, an object for each",
        );
    }
    if arguments.file.is_given() && arguments.output.is_none() {
        return usage("--mode and --kernel-addresses apply to a recording; name one with -o FILE, or leave them out");
    }
    if arguments.histogram && arguments.format != LatencyFormat::Table {
        return usage("--histogram draws in tables; JSON and CSV hold the histograms anyway");
    }
    Ok(())
}

/// The column to sort by; checked before any work is done.
pub fn sort_key(column: &str) -> Result<LatencySortKey> {
    LatencySortKey::parse(column).map_err(|error| Failure::error(Status::Usage, error.to_string()))
}

/// What the filters of a report mean for what ran.
pub fn query(arguments: &QueryArguments) -> LatencyQuery {
    LatencyQuery { window: None, kinds: arguments.kind.into_iter().collect(), name: arguments.lock.clone() }
}

fn announce(arguments: &LatencyArguments) {
    let kinds = arguments.runners.kinds();
    let what = if kinds.len() == RUNNERS.len() {
        "interrupts, softirqs, tasklets, timers and work items".to_owned()
    } else {
        kinds.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(", ")
    };
    let length = match arguments.duration {
        Some(duration) => format!("for {}", humantime::format_duration(duration)),
        None => "until Ctrl-C".to_owned(),
    };
    say(format_args!("lockmeter: metering {what} of the whole machine {length}"));
}

/// Where tables go.
#[derive(Debug, Clone, Copy)]
enum Tables {
    Stdout,
    /// Standard output is taken by the recording.
    Stderr,
}

fn show(report: &LatencyReport, arguments: &LatencyArguments, tables: Tables, sort: LatencySortKey) -> Result<()> {
    let mut report = report.clone();
    sort.apply(&mut report);
    let (mut out, table): (Box<dyn Write>, Table) = match tables {
        Tables::Stdout => (Box::new(io::stdout()), output::table_for(&io::stdout(), arguments.limit, 0)),
        Tables::Stderr => (Box::new(io::stderr()), output::table_for(&io::stderr(), arguments.limit, 0)),
    };
    write(&report, arguments.format, LatencyTable { table, histograms: arguments.histogram }, &mut out)
        .and_then(|()| if arguments.interval.is_some() { writeln!(out) } else { Ok(()) })
        .and_then(|()| out.flush())
        .map_err(|error| output::failed(None, error))
}

fn write(report: &LatencyReport, format: LatencyFormat, table: LatencyTable, out: &mut dyn Write) -> io::Result<()> {
    match format {
        LatencyFormat::Table => table.write(report, out),
        LatencyFormat::Json => Json.write(report, out),
        LatencyFormat::Csv => Csv.write(report, out),
    }
}

/// `lockmeter report` of such a recording.
pub fn report(arguments: &ReportArguments, path: &Path, mut reader: RecordingReader) -> Result<()> {
    applicable(arguments, path)?;
    if arguments.format == Format::Html {
        page::refuse_terminal(arguments.output.as_deref())?;
    }
    let column = if arguments.sort == "total_ns" { DEFAULT_SORT } else { &arguments.sort };
    let sort = sort_key(column)?;
    let nanoseconds = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let window = arguments.window.map(|window| (nanoseconds(window.from), window.to.map_or(u64::MAX, nanoseconds)));
    let mut builder = LatencyBuilder::new(reader.about(), &LatencyQuery { window, ..query(&arguments.query) });
    let mut progress = Progress::of(format_args!("reading {}", reader.name()), Unit::Bytes, reader.length_bytes());
    while let Some(interval) = reader.next_interval()? {
        progress.reach(reader.read_bytes());
        builder.add_within(&interval, &reader.limits()).map_err(|error| reader.too_large(error))?;
    }
    drop(progress);
    builder.add_losses(reader.losses());
    let mut report = builder.report();
    sort.apply(&mut report);
    let is_filtered = window.is_some() || arguments.query.kind.is_some() || arguments.query.lock.is_some();
    let mut warnings = Warning::about_latency(&report, reader.ended_cleanly());
    if report.rows.is_empty() && is_filtered {
        warnings.insert(0, Warning::NothingFits);
    }
    let limit = arguments.query.rows();
    let table = output::table_into(arguments.output.as_deref(), limit, 0);
    let mut out = output::open(arguments.output.as_deref())?;
    let written = match arguments.format {
        Format::Html => {
            let (warnings, flags) =
                (warnings.iter().map(ToString::to_string).collect(), page::flags(&arguments.query, window));
            LatencyPage { report: &report, warnings, flags }.write(&mut out)
        }
        Format::Json => write(&report, LatencyFormat::Json, LatencyTable::default(), &mut out),
        Format::Csv => write(&report, LatencyFormat::Csv, LatencyTable::default(), &mut out),
        _ => write(&report, LatencyFormat::Table, LatencyTable { table, histograms: arguments.histogram }, &mut out),
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    warnings.into_iter().for_each(say);
    Ok(())
}

/// Whether all that is asked for can be said of what ran.
fn applicable(arguments: &ReportArguments, path: &Path) -> Result<()> {
    let query = &arguments.query;
    let flags = [
        (query.by.0 != [Dimension::Lock], "--by"),
        (query.mode.is_some(), "--mode"),
        (query.user, "--user"),
        (query.task.is_some(), "--task"),
        (query.own, "--own"),
        (arguments.format == Format::Folded, "--format folded"),
        (arguments.format == Format::Pprof, "--format pprof"),
        (arguments.format == Format::Histogram, "--format histogram"),
    ];
    let Some((_, flag)) = flags.into_iter().find(|(given, _)| *given) else { return Ok(()) };
    let sentence = format!(
        "{} holds interrupts, timers and work items, not waits, so {flag} does not apply to it; use --kind, --lock (a name), \
        --window, --sort, or the formats table, json, csv and html",
        path.display()
    );
    Err(Failure::error(Status::Usage, sentence))
}
