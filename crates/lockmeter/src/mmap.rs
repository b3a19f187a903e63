//! `lockmeter mmap`: how long `mmap_lock` is waited for and held.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_kernel::contention::{ContentionSource, MMAP_LOCK, Metered, Options, Scope};
use lockmeter_profile::recording::{PipeWait, RecordingError, RecordingWriter};
use lockmeter_profile::view::{NamePattern, Query, ReportBuilder};
use lockmeter_profile::{Dimension, Happened, Interval, Report, Source};
use lockmeter_render::{Csv, Exporter, Histograms, Json, Table};

use crate::arguments::mmap::{MmapArguments, MmapBy, MmapFormat};
use crate::exit::{Failure, Status};
use crate::messages::{explain, say};
use crate::output;
use crate::signals::{StopSignals, Woken};
use crate::target::{self, CommandOutput, Target};
use crate::warnings::Warning;

/// How often to take in, and write, what was metered.
const INTERVAL: Duration = Duration::from_secs(1);

/// How often to look whether tables fill.
const TICK: Duration = Duration::from_millis(100);

const EXPLANATION: &str = "\
lockmeter mmap meters how long mmap_lock, the lock of an address space, is waited for and held. Say whose:

  lockmeter mmap -a -d 10s                 the whole machine, for ten seconds
  lockmeter mmap -p PID                    a process, until Ctrl-C
  lockmeter mmap -a --by cgroup -d 1m      by memory control group
  lockmeter mmap --by caller -- COMMAND    a command and its children, by the callers that wait and release

`lockmeter mmap --help` lists all options.";

pub fn run(arguments: &MmapArguments) -> Result<ExitCode> {
    let Some((scope, words)) = target::scope(&arguments.scope, &arguments.command)? else {
        explain(EXPLANATION);
        return Ok(Status::Usage.into());
    };
    if arguments.file.is_given() && arguments.record.is_none() {
        let sentence =
            "--mode and --kernel-addresses are about the recording; name one with --record FILE, or leave them out";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let starts_command = scope == Scope::Children;
    let options =
        Options { scope, stacks: arguments.stacks.budget(), metered: Metered::MmapLock { holds: !arguments.no_hold } };
    let about = crate::about::describe(&words, options.stacks);
    let mut source = ContentionSource::start(&options)?;
    let writer = match &arguments.record {
        Some(path) => {
            let file = arguments.file.options(&signals).context("cannot catch signals")?;
            Some(RecordingWriter::create_with(path, &about, file).map_err(cannot_write)?)
        }
        None => None,
    };
    let stdout_is_taken = writer.as_ref().is_some_and(RecordingWriter::is_standard_output);
    let stdout = if stdout_is_taken { CommandOutput::ToStderr } else { CommandOutput::Inherited };
    let target = if starts_command { target::start(&arguments.command, &[], stdout)? } else { watched };
    if starts_command {
        source.leave_own_process_out()?;
    }
    announce(arguments, &words);
    let query = asked(arguments);
    let mut meter = Meter { builder: ReportBuilder::new(&about, &query), writer, query: &query };
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    meter.until_end(&mut source, &mut signals, &target, end)?;
    meter.add(source.stop()?)?;
    let status = match target {
        Target::Command(mut child, _) => Some(target::shell_status(&mut child).context("cannot wait for the command")?),
        Target::None | Target::Process(_) => None,
    };
    let report = meter.finish()?;
    let place = match arguments.output.as_deref() {
        None if stdout_is_taken => Place::Stderr,
        path => Place::File(path, signals.pipe_wait()?),
    };
    print(&report, arguments, place)?;
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
}

fn asked(arguments: &MmapArguments) -> Query {
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

/// Takes intervals in: into the report, and into a recording where one is asked for.
struct Meter<'a> {
    builder: ReportBuilder,
    writer: Option<RecordingWriter>,
    query: &'a Query,
}

impl Meter<'_> {
    fn until_end(
        &mut self,
        source: &mut ContentionSource,
        signals: &mut StopSignals,
        target: &Target,
        end: Option<Instant>,
    ) -> Result<()> {
        let mut next_drain = Instant::now() + INTERVAL;
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let until = end.map_or(next_drain, |end| end.min(next_drain));
            match signals.wait(until.saturating_duration_since(now).min(TICK), target.end(), None)? {
                Woken::Timeout | Woken::News => {}
                // A terminal sends Ctrl-C to the command, too: its end is ours.
                Woken::Signal(signal) if matches!(target, Target::Command(..)) => {
                    if let Target::Command(command, _) = target
                        && signal != signal_hook::consts::SIGINT
                    {
                        target::pass_on(signal, command);
                    }
                }
                Woken::Signal(_) => {
                    signals.write_no_longer_than_needed();
                    return Ok(());
                }
                Woken::Exited => return Ok(()),
            }
            if source.tick() || Instant::now() >= next_drain {
                self.add(source.drain()?)?;
                next_drain = Instant::now() + INTERVAL;
            }
        }
    }

    /// Another object may have a lock at the offset of `mmap_lock`: only its name tells.
    fn add(&mut self, mut interval: Interval) -> Result<()> {
        Query { include_own: true, ..self.query.clone() }.narrow(&mut interval);
        self.builder.add(&interval);
        match &mut self.writer {
            Some(writer) => writer.append(&interval).map_err(cannot_write),
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<Report> {
        if let Some(writer) = self.writer {
            writer.finish().map_err(cannot_write)?;
        }
        Ok(self.builder.finish())
    }
}

fn cannot_write(error: RecordingError) -> anyhow::Error {
    Failure::error(Status::NoOutput, error.to_string())
}

fn announce(arguments: &MmapArguments, words: &str) {
    if arguments.format != MmapFormat::Histogram && !io::stderr().is_terminal() {
        return;
    }
    let length = match arguments.duration {
        Some(duration) => format!(" for {}", humantime::format_duration(duration)),
        None if arguments.command.is_empty() => " until Ctrl-C".to_owned(),
        None => String::new(),
    };
    let what = if arguments.no_hold { "waits for mmap_lock" } else { "waits for mmap_lock and its holds" };
    say(format_args!("lockmeter: metering {what} of {words}{length}"));
}

/// Where the report goes.
enum Place<'a> {
    /// Standard output is taken by the recording.
    Stderr,
    /// A file, or standard output.
    File(Option<&'a Path>, Box<dyn PipeWait>),
}

fn print(report: &Report, arguments: &MmapArguments, place: Place<'_>) -> Result<()> {
    let (limit, frames) = (arguments.limit, arguments.frames);
    let (mut out, table): (Box<dyn Write>, Table) = match place {
        Place::Stderr => (Box::new(io::stderr()), output::table_for(&io::stderr(), limit, frames)),
        Place::File(path, wait) => (output::open_until(path, wait)?, output::table_into(path, limit, frames)),
    };
    let written = match arguments.format {
        MmapFormat::Histogram => Histograms { table }.write(report, &mut out),
        MmapFormat::Table => table.write(report, &mut out),
        MmapFormat::Json => Json.write(report, &mut out),
        MmapFormat::Csv => Csv.write(report, &mut out),
    };
    written.and_then(|()| out.flush()).map_err(|error| output::failed(arguments.output.as_deref(), error))?;
    let held = report.rows.iter().any(|row| row.happened == Happened::Hold);
    for warning in Warning::about(report, true) {
        // Holds are worth showing when nobody waited.
        if !(held && warning == Warning::NothingContended) {
            say(warning);
        }
    }
    Ok(())
}
