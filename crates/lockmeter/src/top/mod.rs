//! `lockmeter top`: contention as it happens, or as it was recorded.
//!
//! On a terminal it is a screen that one can drive; where the output goes elsewhere, tables or JSON objects, one each refresh. Metering
//! and showing are apart: the recorder hands each step through [`feed`] to the thread of [`interface`], which keeps them in [`history`](crate::history).
//! What a key means is in [`keys`], what it changes in [`state`], what is asked of the steps in [`locks`], and what that looks like in
//! [`panes`].

mod canvas;
mod feed;
mod interface;
mod keys;
mod latency;
mod layout;
mod lines;
mod locks;
mod overlays;
mod panes;
mod playback;
mod screen;
mod state;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_cli::ResultFormat;
use lockmeter_cli::progress::Working;
use lockmeter_kernel::contention::{Scope, StackBudget};
use lockmeter_kernel::latency::{LatencySource, Options as LatencyOptions, RUNNERS};
use lockmeter_profile::{About, RecordingKind, Source};
use lockmeter_recorder::target::{self, Target};
use lockmeter_recorder::{Ended, LockSources, Recorder, StopSignals, Woken};

use self::feed::{Message, Messenger, StepSink};
use self::interface::Interface;
use self::latency::LatencyView;
use self::lines::{Lines, Subject};
use self::locks::{DEFAULT_SORT, LocksView};
use self::playback::Playback;
use self::screen::Screen;
use self::state::{Feed, State, View};
use crate::arguments::TopArguments;
use crate::input::{is_standard_input, kind, open};
use crate::{latency as latency_command, query, scope};

/// Waits for the end are cut into pieces of this, for no reason but that they must have a length.
const A_LONG_TIME: Duration = Duration::from_secs(3_600);

pub fn run(arguments: &TopArguments) -> Result<()> {
    if let Some(recording) = &arguments.recording {
        return replay(arguments, recording);
    }
    if arguments.latency {
        let subject = latency_subject(arguments)?;
        let signals = StopSignals::catch().context("cannot catch signals")?;
        let kinds = arguments.query.kind.map_or_else(|| RUNNERS.to_vec(), |kind| vec![kind]);
        let source = LatencySource::start(&LatencyOptions { runners: kinds, threshold: None, every: false })?;
        let about = lockmeter_recorder::describe(RecordingKind::Latency, "whole machine", StackBudget::DEFAULT);
        return watch(arguments, source, signals, &Target::None, &about, subject);
    }
    let (scope, words) = match scope::from_flags(&arguments.scope, &[])? {
        Some(scope) => scope,
        None => (Scope::Machine, "whole machine".to_owned()),
    };
    let subject = locks_subject(arguments)?;
    let signals = StopSignals::catch().context("cannot catch signals")?;
    let target = target::watch(&scope)?;
    let options = arguments.lock_options(scope);
    let about = lockmeter_recorder::describe(RecordingKind::Locks, &words, options.stacks);
    arguments.names.prepare()?;
    let source = {
        let _working = Working::on("preparing to meter and loading symbols");
        LockSources::start(&options)?
    };
    watch(arguments, source, signals, &target, &about, subject)
}

fn locks_subject(arguments: &TopArguments) -> Result<Subject> {
    let query = query::from_flags(&arguments.query, None);
    let sort = query::sort_key(&arguments.sort, &query.by)?;
    Ok(Subject::Locks(query, sort))
}

fn latency_subject(arguments: &TopArguments) -> Result<Subject> {
    let query = latency_command::query(&arguments.query);
    // The order that fits locks is only the default.
    let column = if arguments.sort == DEFAULT_SORT { latency_command::DEFAULT_SORT } else { &arguments.sort };
    Ok(Subject::Latency(query, latency_command::sort_key(column)?))
}

/// Whether there is a screen; lines otherwise.
fn has_screen(arguments: &TopArguments) -> bool {
    arguments.format == ResultFormat::Table && Screen::is_possible()
}

fn view(arguments: &TopArguments, subject: Subject) -> View {
    match subject {
        Subject::Locks(query, _) => View::Locks(Box::new(LocksView::new(query, &arguments.sort))),
        Subject::Latency(query, sort) => View::Latency(Box::new(LatencyView::new(query, sort))),
    }
}

/// Shows what a source measures.
fn watch<S>(
    arguments: &TopArguments,
    source: S,
    mut signals: StopSignals,
    target: &Target,
    about: &About,
    subject: Subject,
) -> Result<()>
where
    S: Source,
    anyhow::Error: From<S::Error>,
{
    if !has_screen(arguments) {
        let mut lines = Lines::new(arguments, about, subject);
        let recorder = Recorder { signals: &mut signals, target, duration: arguments.duration };
        let ended: Result<Ended> = recorder.run(source, &mut lines);
        ended?;
        // The last of it came after the last refresh.
        return Ok(lines.write()?);
    }
    let state = State::new(about.clone(), view(arguments, subject), Feed::Live);
    let shown = Shown::start(state, None, &mut signals)?;
    let mut sink = StepSink::new(shown.messenger.another()?, arguments.interval);
    let end = arguments.duration.map(|duration| Instant::now() + duration);
    let recorder = Recorder { signals: &mut signals, target, duration: arguments.duration };
    let ended: Result<Ended> = recorder.run(source, &mut sink);
    sink.finish();
    let stays = ended.as_ref().is_ok_and(|ended| !ended.by_signal && end.is_none_or(|end| ended.at < end));
    if stays {
        shown.messenger.tell(Message::Ended(format!("{} has ended", about.scope)));
        wait_for_signal(&mut signals)?;
    }
    let closed = shown.close();
    ended.and(closed)
}

/// Shows a recording.
fn replay(arguments: &TopArguments, recording: &Path) -> Result<()> {
    let mut signals = StopSignals::catch().context("cannot catch signals")?;
    let reader = open(recording)?;
    let subject = match kind(recording, &reader)? {
        RecordingKind::Latency => latency_subject(arguments)?,
        RecordingKind::Locks | RecordingKind::Mmap => locks_subject(arguments)?,
    };
    // Keys cannot come from where the recording comes from.
    if is_standard_input(recording) || !has_screen(arguments) {
        return lines::replay(arguments, reader, subject);
    }
    let state = State::new(reader.about().clone(), view(arguments, subject), Feed::Replay { speed: 1 });
    let shown = Shown::start(state, Some(Playback::new(reader)), &mut signals)?;
    wait_for_signal(&mut signals)?;
    shown.close()
}

/// The thread that has the terminal.
struct Shown {
    messenger: Messenger,
    thread: thread::JoinHandle<Result<()>>,
}

impl Shown {
    /// Takes the terminal. When it is given back, the signals say so.
    fn start(state: State, playback: Option<Playback>, signals: &mut StopSignals) -> Result<Self> {
        let (messenger, inbox) = feed::channel().context("cannot start the screen")?;
        let (stop, stopped) = UnixStream::pair().context("cannot start the screen")?;
        signals.also_stop_by(stopped);
        let screen = Screen::open().context("cannot set the terminal up")?;
        let interface = Interface::new(screen, state, (messenger.another()?, inbox), playback)?;
        let run = move || {
            // Closed however this ends.
            let _stop = stop;
            interface.run()
        };
        let thread = thread::Builder::new().name("screen".into()).spawn(run).context("cannot start the screen")?;
        Ok(Self { messenger, thread })
    }

    fn close(self) -> Result<()> {
        self.messenger.tell(Message::Quit);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

fn wait_for_signal(signals: &mut StopSignals) -> Result<()> {
    while !matches!(signals.wait(A_LONG_TIME, None, None)?, Woken::Signal(_)) {}
    Ok(())
}
