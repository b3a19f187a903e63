//! The loop that has the terminal: waits for keys, for what was measured and for the terminal's signals, all in one call, and draws what
//! has changed.
//!
//! It has a thread of its own: a source is drained, and its names are looked up, for longer than a key may wait.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lockmeter_profile::About;
use lockmeter_profile::recording::{RecordingError, RecordingWriter};
use lockmeter_render::units::{counted, duration};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGCONT, SIGTSTP, SIGWINCH};

use super::feed::{Inbox, Message, Messenger};
use super::keys::{Decoder, Input, action};
use super::panes;
use super::playback::Playback;
use super::screen::Screen;
use super::state::{Effect, Feed, State};
use crate::history::Step;

/// How long after an escape the rest of a sequence may come: over a slow line, in pieces.
const REST_OF_SEQUENCE: Duration = Duration::from_millis(50);

pub struct Interface {
    screen: Screen,
    state: State,
    inbox: Inbox,
    /// For threads that have something to say when they are done.
    messenger: Messenger,
    playback: Option<Playback>,
    signals: TerminalSignals,
    decoder: Decoder,
    last_key: Instant,
    sparklines: Sparklines,
    writers: Vec<thread::JoinHandle<()>>,
}

/// How far the sparklines of what is on the screen are reckoned: while nothing else is to do, a step at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sparklines {
    Unknown,
    /// Some were reckoned that are not drawn.
    Partly,
    Done,
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Wait,
    Draw,
    Quit,
}

impl Interface {
    pub fn new(
        screen: Screen,
        state: State,
        (messenger, inbox): (Messenger, Inbox),
        playback: Option<Playback>,
    ) -> Result<Self> {
        let signals = TerminalSignals::catch().context("cannot catch signals")?;
        let (decoder, last_key, sparklines) = (Decoder::default(), Instant::now(), Sparklines::Unknown);
        let writers = Vec::new();
        Ok(Self { screen, state, inbox, messenger, playback, signals, decoder, last_key, sparklines, writers })
    }

    /// Shows it until somebody quits. The terminal is the user's again when this returns.
    pub fn run(mut self) -> Result<()> {
        loop {
            let state = &mut self.state;
            self.screen.draw(|canvas| panes::draw(canvas, state)).context("cannot draw on the terminal")?;
            self.sparklines = Sparklines::Unknown;
            let next = loop {
                match self.turn()? {
                    Next::Wait => {}
                    next => break next,
                }
            };
            if next == Next::Quit {
                break;
            }
        }
        drop(self.screen);
        // A recording is not left without its end.
        self.writers.into_iter().for_each(|writer| drop(writer.join()));
        Ok(())
    }

    fn turn(&mut self) -> Result<Next> {
        let timeout = self.timeout();
        let [keys, inbox, resized, suspended, resumed] = self.wait(timeout)?;
        let mut next = if resized { Next::Draw } else { Next::Wait };
        if resized || suspended || resumed {
            self.signals.forget();
        }
        if suspended {
            self.screen.suspend()?;
            next = Next::Draw;
        } else if resumed {
            self.screen.resume()?;
            next = Next::Draw;
        }
        if inbox {
            for message in self.inbox.receive() {
                if self.receive(message) == Next::Quit {
                    return Ok(Next::Quit);
                }
            }
            next = Next::Draw;
        }
        if keys {
            let Some(inputs) = self.read_keys()? else { return Ok(Next::Quit) };
            for input in inputs {
                if self.act(input) == Next::Quit {
                    return Ok(Next::Quit);
                }
                next = Next::Draw;
            }
        } else if self.decoder.is_in_sequence()
            && self.last_key.elapsed() >= REST_OF_SEQUENCE
            && let Some(input) = self.decoder.give_up()
        {
            self.act(input);
            next = Next::Draw;
        }
        if self.playback.as_mut().is_some_and(|playback| playback.play(&mut self.state)) {
            next = Next::Draw;
        }
        if next == Next::Wait && self.sparklines != Sparklines::Done {
            next = self.reckon_sparklines()?;
        }
        Ok(next)
    }

    /// How long to wait for anything; `None` is for ever.
    fn timeout(&mut self) -> Option<Duration> {
        let sparklines = (self.sparklines != Sparklines::Done).then_some(Duration::ZERO);
        let rest = self.decoder.is_in_sequence().then(|| REST_OF_SEQUENCE.saturating_sub(self.last_key.elapsed()));
        let played = self.playback.as_mut().and_then(|playback| playback.due_in(&self.state));
        [sparklines, rest, played].into_iter().flatten().min()
    }

    /// Which of the keyboard, the inbox and the signals of [`TerminalSignals`] have something.
    fn wait(&self, timeout: Option<Duration>) -> io::Result<[bool; 5]> {
        let keyboard = self.screen.keyboard();
        let [resized, suspended, resumed] = &self.signals.streams;
        let mut entries = [keyboard, self.inbox.as_fd(), resized.as_fd(), suspended.as_fd(), resumed.as_fd()]
            .map(|descriptor| PollFd::from_borrowed_fd(descriptor, PollFlags::IN));
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs().cast_signed(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        match poll(&mut entries, timeout.as_ref()) {
            // The handler has put a byte into a stream: the next turn sees it.
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(entries.map(|entry| !entry.revents().is_empty()))
    }

    /// `None` where the terminal is gone.
    fn read_keys(&mut self) -> io::Result<Option<Vec<Input>>> {
        let mut bytes = [0; 4096];
        match rustix::io::read(self.screen.keyboard(), &mut bytes) {
            Ok(0) | Err(rustix::io::Errno::IO) => Ok(None),
            Ok(read) => {
                self.last_key = Instant::now();
                Ok(Some(self.decoder.feed(&bytes[..read])))
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => Ok(Some(Vec::new())),
            Err(error) => Err(error.into()),
        }
    }

    fn act(&mut self, input: Input) -> Next {
        let effect = action(input, self.state.mode()).and_then(|action| self.state.apply(action));
        match effect {
            Some(Effect::Quit) => return Next::Quit,
            Some(Effect::Read(steps)) => {
                if let Some(playback) = &mut self.playback {
                    playback.step(&mut self.state, steps);
                }
            }
            Some(Effect::Write(path)) => self.write(path),
            None => {}
        }
        Next::Draw
    }

    fn receive(&mut self, message: Message) -> Next {
        match message {
            Message::Step(intervals) => self.state.push(intervals),
            Message::Notice(sentence) => {
                self.state.say(sentence.clone());
                self.state.notices.push(sentence);
            }
            Message::Ended(why) => self.state.feed = Feed::Ended(why),
            Message::Written(Ok(sentence)) => self.state.say(sentence),
            Message::Written(Err(sentence)) => self.state.warn(sentence),
            Message::Quit => return Next::Quit,
        }
        Next::Draw
    }

    fn reckon_sparklines(&mut self) -> Result<Next> {
        let width = panes::spark_width(self.screen.width()?);
        // What is too large to show was said where it was drawn.
        if self.state.prepare_sparkline(width.into()).unwrap_or(false) {
            self.sparklines = Sparklines::Partly;
            return Ok(Next::Wait);
        }
        let is_news = self.sparklines == Sparklines::Partly;
        self.sparklines = Sparklines::Done;
        Ok(if is_news { Next::Draw } else { Next::Wait })
    }

    /// Writes what is kept, beside the screen: it may be large.
    fn write(&mut self, path: String) {
        let steps: Vec<Arc<Step>> = self.state.history.all().cloned().collect();
        let (about, dropped) = (self.state.about.clone(), self.state.history.dropped());
        let begun = self.messenger.another().and_then(|messenger| {
            let write = move || messenger.tell(Message::Written(write_recording(&path, &about, &steps, dropped)));
            thread::Builder::new().name("writer".into()).spawn(write)
        });
        match begun {
            Ok(writer) => {
                self.writers.push(writer);
                self.state.say("writing …");
            }
            Err(error) => self.state.warn(format!("cannot write: {error}")),
        }
    }
}

/// Writes a recording as `record -o` does, and says so, or what was wrong.
fn write_recording(path: &str, about: &About, steps: &[Arc<Step>], dropped: u64) -> Result<String, String> {
    let written = || -> Result<(), RecordingError> {
        let mut writer = RecordingWriter::create(path, about)?;
        steps.iter().flat_map(|step| step.read()).try_for_each(|interval| writer.append(&interval))?;
        writer.finish().map(|_| ())
    };
    written().map_err(|error| error.to_string())?;
    let length_ns = steps.iter().map(|step| step.duration_ns()).fold(0, u64::saturating_add);
    let left_out = match dropped {
        0 => String::new(),
        dropped => format!("; {} before them were no longer kept", counted(dropped, "step", "steps")),
    };
    Ok(format!(
        "wrote {path}: {}, {} in all{left_out}",
        counted(steps.len() as u64, "step", "steps"),
        duration(length_ns)
    ))
}

/// What a terminal's user does to this program: a new size, Ctrl-Z, and `fg`.
struct TerminalSignals {
    streams: [UnixStream; SIGNALS.len()],
}

const SIGNALS: [i32; 3] = [SIGWINCH, SIGTSTP, SIGCONT];

impl TerminalSignals {
    fn catch() -> io::Result<Self> {
        let mut streams = Vec::with_capacity(SIGNALS.len());
        for signal in SIGNALS {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, write)?;
            streams.push(read);
        }
        let streams = streams.try_into().map_err(|_| io::Error::other("one stream a signal"))?;
        Ok(Self { streams })
    }

    /// What came until now is done.
    fn forget(&mut self) {
        for stream in &mut self.streams {
            while stream.read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        }
    }
}
