//! Long work shows on a terminal how much of it is done and how long is left. Where nobody watches, it says nothing.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::{OnceLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use lockmeter_render::escape::escaped;

use crate::messages::is_quiet;

/// Work that may end soon shows nothing before.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often the line is drawn again, a second.
const DRAWN_HZ: u8 = 4;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Of a file.
    Bytes,
    /// Of the clock; Ctrl-C ends it early.
    Milliseconds,
    /// Milliseconds that may pass at most.
    Limit,
    /// Of anything that is done one after the other.
    Steps,
    /// Nothing is counted.
    Unknown,
    /// Of an experiment; Ctrl-C shows what there is.
    Runs,
}

/// A line on standard error, taken away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    unit: Unit,
    begin: Instant,
    is_shown: bool,
}

impl Progress {
    /// What is done, with names in it as they are, and how long it is, where that is known.
    pub fn of(what: impl Display, unit: Unit, length: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
        let template = match (unit, length) {
            (Unit::Bytes, Some(_)) => "{prefix} {bar:24} {bytes} of {total_bytes}, {eta} left",
            (Unit::Bytes, None) => "{prefix}, {bytes} in {elapsed}",
            (Unit::Steps, Some(_)) => "{prefix} {bar:24} {pos} of {len}, {eta} left",
            (Unit::Runs, _) => "{prefix} {bar:24} {pos} of {len}, {eta} left; Ctrl-C shows what there is",
            (Unit::Steps, None) => "{prefix}, {pos} in {elapsed}",
            (Unit::Milliseconds, Some(_)) => "{prefix} {bar:24} {msg}; Ctrl-C ends it and reports",
            (Unit::Limit, _) => "{prefix} {bar:24} {msg}",
            (Unit::Unknown, _) => "{prefix} for {elapsed}",
            (Unit::Milliseconds, None) => "{prefix} for {elapsed}; Ctrl-C ends it and reports",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("##-"));
        bar.set_prefix(escaped(&what.to_string()).into_owned());
        Self { bar, unit, begin: Instant::now(), is_shown: false }
    }

    /// Says what is done now.
    pub fn rename(&self, what: impl Display) {
        self.bar.set_prefix(escaped(&what.to_string()).into_owned());
    }

    /// How long it is, as far as that is known now.
    pub fn set_length(&self, length: u64) {
        self.bar.set_length(length);
    }

    /// So much is done.
    pub fn reach(&mut self, done: u64) {
        let is_long = matches!(self.unit, Unit::Milliseconds | Unit::Runs);
        if !self.is_shown && (is_long || self.begin.elapsed() >= PATIENCE) && !is_quiet() {
            self.bar = all().add(self.bar.clone());
            self.is_shown = true;
        }
        if let Some(length) = self.bar.length() {
            let [done, length] = [done.min(length), length].map(|milliseconds| milliseconds / 1_000);
            match self.unit {
                Unit::Milliseconds => {
                    self.bar.set_message(format!("{done} s of {length} s, {} s left", length - done));
                }
                Unit::Limit => self.bar.set_message(format!("{done} s of at most {length} s")),
                Unit::Bytes | Unit::Steps | Unit::Runs | Unit::Unknown => {}
            }
        }
        self.bar.set_position(done);
        if self.unit == Unit::Unknown {
            self.bar.tick();
        }
    }

    /// The time since it began, as [`Unit::Milliseconds`] has it.
    pub fn reach_now(&mut self) {
        self.reach(u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX));
    }

    /// Says something on standard error, with the line out of the way.
    pub fn aside(&self, say: impl FnOnce()) {
        all().suspend(say);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
        all().remove(&self.bar);
    }
}

/// A line for work of which nothing can be counted: what is done, and for how long already. Taken away when this is dropped.
#[derive(Debug)]
pub struct Working {
    end: Option<mpsc::Sender<()>>,
    shows: Option<JoinHandle<()>>,
}

impl Working {
    /// What is done, with names in it as they are.
    pub fn on(what: impl Display) -> Self {
        if is_quiet() || !io::stderr().is_terminal() {
            return Self { end: None, shows: None };
        }
        let (end, ended) = mpsc::channel();
        let mut line = Progress::of(what, Unit::Unknown, None);
        let show = move || {
            let mut pause = PATIENCE;
            while ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                line.reach(0);
                pause = Duration::from_secs(1) / u32::from(DRAWN_HZ);
            }
        };
        // Work goes on without the line.
        let shows = thread::Builder::new().name("progress".into()).spawn(show).ok();
        Self { end: Some(end), shows }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(shows) = self.shows.take() {
            let _ = shows.join();
        }
    }
}

/// All lines that are shown: one may begin while another is there. Where no terminal is, nothing is drawn.
fn all() -> &'static MultiProgress {
    static ALL: OnceLock<MultiProgress> = OnceLock::new();
    ALL.get_or_init(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(DRAWN_HZ)))
}
