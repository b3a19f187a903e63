//! `lockmeter record`: from the kernel source to the recording, until the time is up, the target ends or Ctrl-C.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_kernel::contention::{Options, Scope};
use lockmeter_profile::recording::{RecordingError, RecordingReader, RecordingWriter};
use lockmeter_profile::view::Query;
use lockmeter_profile::{Dimension, Interval};

use crate::arguments::RecordArguments;
use crate::exit::{Failure, Status};
use crate::messages::{be_quiet, explain, inform, say};
use crate::signals::{StopSignals, Woken};
use crate::sources::Sources;
use crate::target::{self, CommandOutput, Target};
use crate::{holds, left_behind, output, report};

/// How often the recorder looks whether tables fill: a burst of new tasks fills one in a few hundred milliseconds.
const TICK: Duration = Duration::from_millis(100);

/// Waits are cut into pieces of this, for no reason but that they must have a length.
const A_LONG_TIME: Duration = Duration::from_secs(3600);

/// Rows of the summary at the end.
const SUMMARY_ROWS: usize = 10;

const EXPLANATION: &str = "\
lockmeter record meters contention of locks and writes a recording. Say whose waits to meter:

  lockmeter record -a -d 10s          the whole machine, for ten seconds
  lockmeter record -a                 the whole machine, until Ctrl-C
  lockmeter record -p PID             a process, its threads and its new children: its own locks, too
  lockmeter record --cgroup PATH      a control group
  lockmeter record -- COMMAND ARGS    a command and its children, until it ends: its own locks, too

Then: lockmeter report --by lock,caller. `lockmeter record --help` lists all options.";

pub fn run(arguments: &RecordArguments) -> Result<ExitCode> {
    if arguments.swap.is_some() && arguments.command.is_empty() {
        let sentence = "--swap replaces a program's locks from its start on, for those of a running one are in use; give `-- COMMAND`";
        return Err(Failure::error(Status::Usage, sentence));
    }
    let Some((scope, words)) = target::scope(&arguments.scope, &arguments.command)? else {
        explain(EXPLANATION);
        return Ok(Status::Usage.into());
    };
    if arguments.quiet {
        be_quiet();
    }
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let watched = target::watch(&scope)?;
    let options = Options { scope, stacks: arguments.stacks.budget(), metered: holds::metered(arguments)? };
    let about = crate::about::describe(&words, options.stacks);
    let mut sources = Sources::start(arguments, &options)?;
    let file = arguments.file.options(&signals).context("cannot catch signals")?;
    let mut writer = RecordingWriter::create_with(&arguments.output, &about, file).map_err(cannot_write)?;
    let target = match options.scope {
        Scope::Children => {
            let stdout = if writer.is_standard_output() { CommandOutput::ToStderr } else { CommandOutput::Inherited };
            let target = target::start(&arguments.command, &sources.environment(), stdout)?;
            sources.leave_own_process_out()?;
            target
        }
        _ => watched,
    };
    announce(arguments, sources.words(), &words);
    let mut session = Session {
        arguments,
        writer: &mut writer,
        asked_to_stop: 0,
        progress: Progress::new(arguments),
        named: holds::Named::default(),
    };
    let recorded = session.meter(&mut sources, &mut signals, &target);
    let environment = sources.environment();
    let last = sources.stop();
    let written = recorded.and_then(|()| session.append(last?));
    session.progress.clear();
    let complaint = session.named.complaint(arguments);
    let finished = written.and_then(|()| writer.finish().map_err(cannot_write));
    let summarised = match &finished {
        Ok(written) if !arguments.quiet => summarise(&arguments.output, written.as_ref()),
        _ => Ok(()),
    };
    if !arguments.quiet {
        // A command may go on for days after the time that it is metered for.
        if target.command_goes_on() {
            say(
                "lockmeter: metering has ended; the command goes on, and lockmeter waits for it (SIGTERM is passed on)",
            );
        } else {
            left_behind::say_what_is(&environment);
        }
    }
    let status = wait_for_command(target, &mut signals)?;
    finished.and(summarised)?;
    if let Some(complaint) = complaint {
        say(complaint);
    }
    Ok(status.map_or(ExitCode::SUCCESS, ExitCode::from))
}

/// One recording from attach to detach.
struct Session<'a> {
    arguments: &'a RecordArguments,
    writer: &'a mut RecordingWriter,
    asked_to_stop: u32,
    progress: Progress,
    named: holds::Named,
}

impl Session<'_> {
    fn meter(&mut self, sources: &mut Sources, signals: &mut StopSignals, target: &Target) -> Result<()> {
        let begin = Instant::now();
        let end = self.arguments.duration.map(|duration| begin + duration);
        let mut next_drain = begin + self.arguments.interval;
        let mut next_tick = begin + TICK;
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| now >= end) {
                return Ok(());
            }
            let until = next_drain.min(end.unwrap_or(next_drain)).min(next_tick);
            match signals.wait(until.saturating_duration_since(now), target.end(), sources.news())? {
                Woken::Exited => {
                    if self.asked_to_stop > 0 {
                        signals.write_no_longer_than_needed();
                    }
                    return Ok(());
                }
                Woken::News => {
                    sources.take_news();
                    if now < until {
                        continue;
                    }
                }
                Woken::Signal(signal) if self.stops(signal, target) => {
                    signals.write_no_longer_than_needed();
                    return Ok(());
                }
                Woken::Signal(_) | Woken::Timeout => {}
            }
            let filling = sources.tick();
            next_tick = Instant::now() + TICK;
            if filling || Instant::now() >= next_drain {
                self.append(sources.drain()?)?;
                next_drain = Instant::now() + self.arguments.interval;
            }
            self.progress.show(begin.elapsed());
        }
    }

    /// A terminal sends Ctrl-C to the command, too, and any other signal is passed on to it: the recording goes on until
    /// it ends, unless asked again.
    fn stops(&mut self, signal: i32, target: &Target) -> bool {
        let Target::Command(command, _) = target else { return true };
        if signal != signal_hook::consts::SIGINT {
            target::pass_on(signal, command);
        }
        self.asked_to_stop += 1;
        self.asked_to_stop > 1
    }

    fn append(&mut self, mut interval: Interval) -> Result<()> {
        self.named.narrow(self.arguments, &mut interval);
        self.writer.append(&interval).map_err(cannot_write)
    }
}

/// The line that says on a terminal that something is happening.
struct Progress {
    shown: bool,
    on: bool,
    last: Option<Instant>,
}

impl Progress {
    /// A command may use the terminal itself, so then there is no line.
    fn new(arguments: &RecordArguments) -> Self {
        let on = std::io::stderr().is_terminal() && !arguments.quiet && arguments.command.is_empty();
        Self { shown: false, on, last: None }
    }

    fn show(&mut self, elapsed: Duration) {
        if self.on && self.last.is_none_or(|last| last.elapsed() >= Duration::from_secs(1)) {
            let _ = write!(std::io::stderr(), "\rmetering for {} s, Ctrl-C ends and reports ", elapsed.as_secs());
            (self.shown, self.last) = (true, Some(Instant::now()));
        }
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

/// A file as the user knows it.
fn shown(output: &Path) -> String {
    if output == Path::new("-") { "standard output".to_owned() } else { output.display().to_string() }
}

fn announce(arguments: &RecordArguments, locks: &str, words: &str) {
    let length = match arguments.duration {
        Some(duration) => format!(" for {}", humantime::format_duration(duration)),
        None if arguments.command.is_empty() => " until Ctrl-C".to_owned(),
        None => String::new(),
    };
    inform(format_args!("lockmeter: metering {locks} of {words}{length}, into {}", shown(&arguments.output)));
}

/// Waits for the command's end and passes on what would have ended the recording.
fn wait_for_command(target: Target, signals: &mut StopSignals) -> Result<Option<u8>> {
    while target.command_goes_on() {
        if let (Woken::Signal(signal), Target::Command(command, _)) =
            (signals.wait(A_LONG_TIME, target.end(), None)?, &target)
            && signal != signal_hook::consts::SIGINT
        {
            target::pass_on(signal, command);
        }
    }
    match target {
        Target::Command(mut child, _) => {
            Ok(Some(target::shell_status(&mut child).context("cannot wait for the command")?))
        }
        Target::None | Target::Process(_) => Ok(None),
    }
}

fn cannot_write(error: RecordingError) -> anyhow::Error {
    Failure::error(Status::NoOutput, error.to_string())
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
    let reader = RecordingReader::from_reader(written.try_clone()?, &name)?;
    let loaded = report::load_whole(reader.into(), &query)?;
    output::print_summary(&loaded.report, SUMMARY_ROWS, lockmeter_render::DEFAULT_FRAMES);
    for warning in loaded.warnings(&query) {
        say(warning);
    }
    say("");
    say(format_args!("lockmeter: wrote {name}; `lockmeter report --by lock,blocker {name}` shows who makes them wait"));
    Ok(())
}
