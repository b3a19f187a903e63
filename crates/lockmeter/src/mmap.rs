//! `lockmeter mmap`: how long `mmap_lock` is waited for and held.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::{explain, notice_once, say};
use lockmeter_cli::output::{self, cannot_write};
use lockmeter_kernel::contention::{ContentionSource, MMAP_LOCK, Metered, Options};
use lockmeter_profile::recording::{PipeWait, RecordingWriter};
use lockmeter_profile::view::{NamePattern, Query, ReportBuilder};
use lockmeter_profile::{Dimension, Happened, Interval, RecordingKind, Report, Source};
use lockmeter_recorder::target::{self, CommandOutput};
use lockmeter_recorder::{Ended, Recorder, Sink, StopSignals};
use lockmeter_render::{Csv, Exporter, Histograms, Json, Table};

use crate::arguments::mmap::{MmapArguments, MmapBy, MmapFormat};
use crate::record::{is_stopped_before, length_in_words, say_that_command_goes_on};
use crate::scope;
use crate::warnings::Warning;

/// How often to take in, and write, what was metered.
const INTERVAL: Duration = Duration::from_secs(1);

const EXPLANATION: &str = "\
lockmeter mmap meters how long mmap_lock, the lock of an address space, is waited for and held. Say whose:

  lockmeter mmap -a -d 10s                 the whole machine, for ten seconds
  lockmeter mmap -p PID                    a process, until Ctrl-C
  lockmeter mmap -a --by cgroup -d 1m      by memory control group
  lockmeter mmap --by caller -- COMMAND    a command and its children, by the callers that wait and release

`lockmeter mmap --help` lists all options.";

pub fn run(arguments: &MmapArguments) -> Result<ExitCode> {
    let Some((scope, words)) = scope::from_flags(&arguments.scope, &arguments.command)? else {
        explain(EXPLANATION);
        return Ok(Status::Usage.into());
    };
    if arguments.file.is_given() && arguments.output.is_none() {
        let sentence = "--mode and --kernel-addresses apply to a recording; name one with -o FILE, or leave them out";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let starts_command = !arguments.command.is_empty();
    let options =
        Options { scope, stacks: arguments.stacks.budget(), metered: Metered::MmapLock { holds: !arguments.no_hold } };
    let about = lockmeter_recorder::describe(RecordingKind::Mmap, &words, options.stacks);
    let mut source = ContentionSource::start(&options)?;
    let writer = arguments.output.as_ref().map(|path| arguments.file.create(path, &about, &signals)).transpose()?;
    if let Some(status) = is_stopped_before(&arguments.command, &mut signals)? {
        return Ok(status);
    }
    let stdout_is_taken = writer.as_ref().is_some_and(RecordingWriter::is_standard_output);
    let stdout = if stdout_is_taken { CommandOutput::ToStderr } else { CommandOutput::Inherited };
    let target = if starts_command { target::start(&arguments.command, &[], stdout)? } else { watched };
    if starts_command {
        source.command_started()?;
    }
    announce(arguments, &words);
    let query = query(arguments);
    let builder = ReportBuilder::new(&about, &query);
    let mut sink = ReportSink { builder, writer, query: &query, next_due: Instant::now() + INTERVAL };
    let recorder = Recorder { signals: &mut signals, target: &target, duration: arguments.duration };
    let metered: Result<Ended> = recorder.run(source, &mut sink);
    metered?;
    let report = sink.finish()?;
    let wait = if stdout_is_taken { None } else { Some(signals.pipe_wait()?) };
    let printed = print(&report, arguments, wait);
    say_that_command_goes_on(&target);
    // The command is waited for also if nobody reads the report.
    let status = target.wait(&mut signals)?;
    printed?;
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn query(arguments: &MmapArguments) -> Query {
    let by = match arguments.by {
        None => Dimension::Lock,
        Some(MmapBy::Cgroup) => Dimension::Cgroup,
        Some(MmapBy::Process) => Dimension::Task,
        Some(MmapBy::Caller) => Dimension::Caller,
    };
    let mut by = vec![Dimension::Lock, by];
    by.dedup();
    Query { lock: Some(NamePattern::exactly(MMAP_LOCK)), ..Query::by(by) }
}

/// Takes what is metered into the report, and into a recording where one is asked for.
struct ReportSink<'a> {
    builder: ReportBuilder,
    writer: Option<RecordingWriter>,
    query: &'a Query,
    next_due: Instant,
}

impl ReportSink<'_> {
    fn finish(self) -> Result<Report> {
        if let Some(writer) = self.writer {
            writer.finish().map_err(cannot_write)?;
        }
        Ok(self.builder.finish())
    }
}

impl Sink for ReportSink<'_> {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    /// Another object may have a lock at the offset of `mmap_lock`: only its name tells them apart.
    fn take(&mut self, mut interval: Interval) -> Result<()> {
        Query { include_own: true, ..self.query.clone() }.narrow(&mut interval);
        self.builder.add(&interval);
        match &mut self.writer {
            Some(writer) => writer.append(&interval).map_err(cannot_write),
            None => Ok(()),
        }
    }

    fn due(&mut self) -> Result<()> {
        self.next_due = Instant::now() + INTERVAL;
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        notice_once(sentence);
    }
}

fn announce(arguments: &MmapArguments, words: &str) {
    if arguments.format != MmapFormat::Histogram && !io::stderr().is_terminal() {
        return;
    }
    let length = length_in_words(arguments.duration, &arguments.command);
    let what = if arguments.no_hold { "waits for mmap_lock" } else { "waits for mmap_lock and its holds" };
    say(format_args!("lockmeter: metering {what} of {words}{length}"));
}

/// Prints to standard output, waiting for its reader; to standard error where the recording has taken that.
fn print(report: &Report, arguments: &MmapArguments, wait: Option<Box<dyn PipeWait>>) -> Result<()> {
    let (limit, frames) = (arguments.limit, arguments.frames);
    let (mut out, table): (Box<dyn Write>, Table) = match wait {
        None => (Box::new(io::stderr()), output::table_for(&io::stderr(), limit, frames)),
        Some(wait) => (output::open_until(None, wait)?, output::table_into(None, limit, frames)),
    };
    let written = match arguments.format {
        MmapFormat::Histogram => Histograms { table }.write(report, &mut out),
        MmapFormat::Table => table.write(report, &mut out),
        MmapFormat::Json => Json.write(report, &mut out),
        MmapFormat::Csv => Csv.write(report, &mut out),
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(None, error))?;
    let held = report.rows.iter().any(|row| row.happened == Happened::Hold);
    for warning in Warning::about(report, true) {
        // Holds are worth showing when nobody waited.
        if !(held && warning == Warning::NothingContended) {
            say(warning);
        }
    }
    Ok(())
}
