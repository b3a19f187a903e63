//! `lockmeter record`: from the kernel source to the recording, until the time is up, the target ends or Ctrl-C.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::exit::{Failure, Status};
use lockmeter_cli::messages::{be_quiet, explain, inform, notice_once, say};
use lockmeter_cli::output::{self, cannot_write};
use lockmeter_cli::progress::{Progress, Unit, Working};
use lockmeter_kernel::SystemMap;
use lockmeter_profile::recording::{RecordingReader, RecordingWriter};
use lockmeter_profile::view::Query;
use lockmeter_profile::{Dimension, Interval, RecordingKind, Source};
use lockmeter_recorder::target::{self, CommandOutput, Target};
use lockmeter_recorder::{Ended, LockSources, Recorder, Sink, StopSignals, Woken};

use crate::arguments::RecordArguments;
use crate::lock_filter::LockFilter;
use crate::page::Pending;
use crate::{left_behind, report, scope, trusted_file};

/// Rows of the summary at the end.
const SUMMARY_ROWS: usize = 10;

const EXPLANATION: &str = "\
lockmeter record meters contention of locks and writes a recording. Say whose waits to meter:

  lockmeter record -a -d 10s          the whole machine and its programs' own locks, for ten seconds
  lockmeter record -a                 the whole machine, until Ctrl-C
  lockmeter record -a -- COMMAND      the whole machine, while a command runs
  lockmeter record -p PID,PID         processes, their threads and their children: their own locks, too
  lockmeter record --cgroup PATH      a control group
  lockmeter record -- COMMAND ARGS    a command and its children, until it ends: its own locks, too

Then: lockmeter report --by lock,caller. `lockmeter record --help` lists all options.";

/// Larger is no kernel's.
const MOST_MAP_BYTES: usize = 64 << 20;

fn read_system_map(path: &Path) -> Result<SystemMap> {
    let refuse = |what: String| Failure::error(Status::BadInput, format!("{}: {what}", path.display()));
    let text = trusted_file::read(path, "symbols", MOST_MAP_BYTES).map_err(refuse)?;
    Ok(SystemMap { file: path.display().to_string(), text })
}

pub fn run(arguments: &RecordArguments) -> Result<ExitCode> {
    if arguments.swap.is_some() && (arguments.command.is_empty() || arguments.scope.all) {
        let sentence =
            "--swap replaces locks when a program starts, because those of a running one are in use; give `-- COMMAND`";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let Some((scope, words)) = scope::from_flags(&arguments.scope, &arguments.command)? else {
        explain(EXPLANATION);
        return Ok(Status::Usage.into());
    };
    if arguments.quiet {
        be_quiet();
    }
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let mut options = arguments.lock_options(scope);
    options.system_map = arguments.system_map.as_deref().map(read_system_map).transpose()?;
    let about = lockmeter_recorder::describe(RecordingKind::Locks, &words, options.stacks);
    arguments.names.prepare()?;
    let started = {
        let _working = Working::on("preparing to meter and loading symbols");
        LockSources::start(&options)
    };
    if !watched.goes_on() {
        let sentence =
            format!("{words} ended before metering began, which takes a second or two; nothing was recorded");
        return Err(Failure::error(Status::NoTarget, sentence));
    }
    let mut sources = started?;
    let mut writer = arguments.file.create(&arguments.output, &about, &signals)?;
    let page = arguments.html.as_deref().map(|path| begin_page(path, arguments, &writer, &signals)).transpose()?;
    if let Some(status) = is_stopped_before(&arguments.command, &mut signals)? {
        return Ok(status);
    }
    let target = if arguments.command.is_empty() {
        watched
    } else {
        let stdout = if writer.is_standard_output() { CommandOutput::ToStderr } else { CommandOutput::Inherited };
        let target = target::start(&arguments.command, &sources.environment(), stdout)?;
        sources.command_started()?;
        target
    };
    sources.take_notices().into_iter().for_each(notice_once);
    let running = if options.scope.pids().is_empty() { None } else { sources.processes() };
    announce(arguments, sources.words(), &words, running);
    let environment = sources.environment();
    let mut file = RecordingSink::new(arguments, &mut writer);
    let recorder = Recorder { signals: &mut signals, target: &target, duration: arguments.duration };
    let written: Result<Ended> = recorder.run(sources, &mut file);
    (file.progress, file.naming) = (None, None);
    let complaint = file.filter.complaint(arguments);
    let finished = written.and_then(|_| writer.finish().map_err(cannot_write));
    let summarised = match &finished {
        Ok(written) if !arguments.quiet => summarise(&arguments.output, written.as_ref()),
        _ => Ok(()),
    };
    let page_written = match (&finished, page) {
        (Ok(written), Some(page)) => write_page(page, arguments, written.as_ref()),
        _ => Ok(()),
    };
    if !say_that_command_goes_on(&target) && !arguments.quiet {
        left_behind::say_what_is(&environment);
    }
    let status = target.wait(&mut signals)?;
    finished.and(summarised).and(page_written)?;
    if let Some(complaint) = complaint {
        say(complaint);
    }
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// As a shell says it, if somebody has asked to stop while metering was begun: then the command is not started.
pub fn is_stopped_before(command: &[OsString], signals: &mut StopSignals) -> Result<Option<ExitCode>> {
    if command.is_empty() {
        return Ok(None);
    }
    let Woken::Signal(signal) = signals.wait(Duration::ZERO, None, None)? else { return Ok(None) };
    say("lockmeter: stopped before the command was started; nothing was recorded");
    Ok(Some(ExitCode::from(128 + u8::try_from(signal).unwrap_or(0))))
}

/// Says that metering has ended before its command, if it has. A command may go on for days after the time that it is metered for.
pub fn say_that_command_goes_on(target: &Target) -> bool {
    let goes_on = target.command_goes_on();
    if goes_on {
        inform("lockmeter: metering has ended; the command goes on, and lockmeter waits for it (SIGTERM is passed on)");
    }
    goes_on
}

/// Writes what is metered into the recording.
struct RecordingSink<'a> {
    arguments: &'a RecordArguments,
    writer: &'a mut RecordingWriter,
    filter: LockFilter,
    /// `None` where the command may use the terminal itself.
    progress: Option<Progress>,
    /// After the end of the metering.
    naming: Option<Working>,
    next_due: Instant,
}

impl<'a> RecordingSink<'a> {
    fn new(arguments: &'a RecordArguments, writer: &'a mut RecordingWriter) -> Self {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let progress = || Progress::of("metering", Unit::Milliseconds, arguments.duration.map(milliseconds));
        let (filter, progress) = (LockFilter::default(), arguments.command.is_empty().then(progress));
        Self { arguments, writer, filter, progress, naming: None, next_due: Instant::now() + arguments.interval }
    }
}

impl Sink for RecordingSink<'_> {
    type Error = anyhow::Error;

    fn next_due(&self) -> Instant {
        self.next_due
    }

    fn take(&mut self, mut interval: Interval) -> Result<()> {
        self.filter.narrow(self.arguments, &mut interval);
        self.next_due = Instant::now() + self.arguments.interval;
        self.writer.append(&interval).map_err(cannot_write)
    }

    fn due(&mut self) -> Result<()> {
        Ok(())
    }

    fn notice(&mut self, sentence: String) {
        match &self.progress {
            Some(progress) => progress.aside(|| notice_once(sentence)),
            None => notice_once(sentence),
        }
    }

    fn tick(&mut self) {
        if let Some(progress) = &mut self.progress {
            progress.reach_now();
        }
    }

    fn end(&mut self) {
        self.progress = None;
        self.naming = Some(Working::on("reading and naming the last of it"));
    }
}

/// Looks whether the page that is asked for can be made and written.
fn begin_page(
    path: &Path,
    arguments: &RecordArguments,
    writer: &RecordingWriter,
    signals: &StopSignals,
) -> Result<Pending> {
    if !writer.is_file() {
        let sentence = "--html reads the recording when it is complete, and a pipe or a device cannot be read again; name a file with -o";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let wait = signals.pipe_wait().context("cannot catch signals")?;
    Pending::begin(path, &arguments.output, arguments.file.mode(), wait)
}

fn write_page(page: Pending, arguments: &RecordArguments, written: Option<&File>) -> Result<()> {
    let Some(mut written) = written else { return Ok(()) };
    written.seek(SeekFrom::Start(0)).context("cannot read the recording again")?;
    page.write(RecordingReader::from_file(written.try_clone()?, &shown(&arguments.output))?)?;
    if let Some(path) = &arguments.html {
        inform(format_args!("lockmeter: wrote {}, a page for a browser", path.display()));
    }
    Ok(())
}

/// A file as the user knows it.
fn shown(output: &Path) -> String {
    if output == Path::new("-") { "standard output".to_owned() } else { output.display().to_string() }
}

fn announce(arguments: &RecordArguments, locks: &str, words: &str, running: Option<usize>) {
    let length = length_in_words(arguments.duration, &arguments.command);
    let running = match (running, arguments.command.first()) {
        (None, Some(program)) if arguments.scope.all => format!(" while {} runs", program.to_string_lossy()),
        (Some(1), _) => " (1 process now)".to_owned(),
        (Some(count), _) => format!(" ({count} processes now)"),
        (None, _) => String::new(),
    };
    inform(format_args!("lockmeter: metering {locks} of {words}{running}{length}, into {}", shown(&arguments.output)));
}

/// How long metering goes on: nothing is said of a command's end.
pub fn length_in_words(duration: Option<Duration>, command: &[OsString]) -> String {
    match duration {
        Some(duration) => format!(" for {}", humantime::format_duration(duration)),
        None if command.is_empty() => " until Ctrl-C".to_owned(),
        None => String::new(),
    }
}

/// Says what was seen first and what it cost last.
fn summarise(recording: &Path, written: Option<&File>) -> Result<()> {
    let name = shown(recording);
    let Some(written) = written else {
        // A pipe or a device cannot be read back.
        say(format_args!("lockmeter: wrote the recording to {name}"));
        return Ok(());
    };
    let query = Query::by([Dimension::Lock, Dimension::Caller]);
    // What was written, whatever may stand under its name by now.
    let reader = RecordingReader::from_file(written.try_clone()?, &name)?;
    let loaded = report::load_whole(reader, &query)?;
    output::print_summary(&loaded.report, SUMMARY_ROWS, lockmeter_render::DEFAULT_FRAMES);
    for warning in loaded.warnings(&query) {
        say(warning);
    }
    say("");
    say(format_args!("lockmeter: wrote {name}; `lockmeter report --by lock,blocker {name}` shows who makes them wait"));
    Ok(())
}
