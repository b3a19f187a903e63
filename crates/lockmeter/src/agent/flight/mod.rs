//! The flight recorder: the last minutes in all detail, in bounded memory, and a recording of them when something goes wrong.
//!
//! In memory, not on a disk: nothing is written for as long as nothing happens, and a disk that hangs is one of the things to be recorded.
//! Intervals are kept as a recording holds them, a fraction of their size.

mod folder;
mod triggers;
mod writer;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lockmeter_agent::server::{Shared, locked};
use lockmeter_profile::recording::PackedInterval;
use lockmeter_profile::{About, Interval, Report};

pub use self::folder::Room;
pub use self::triggers::Thresholds;
use self::triggers::{Pulled, Trigger, Triggers};
use self::writer::{Job, Kept, Writer};
use crate::history::History;

/// How the flight recorder is configured.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Where recordings go.
    pub folder: PathBuf,
    /// How much is kept, the newest interval apart.
    pub keep: Duration,
    pub memory_bytes: usize,
    /// How long a recording goes on after its trigger.
    pub after: Duration,
    /// What pulls a trigger sooner than this after the recording before is counted only. A signal is never too soon.
    pub apart: Duration,
    pub room: Room,
    pub thresholds: Thresholds,
}

/// Keeps what was metered, and has it written.
pub struct FlightRecorder {
    settings: Settings,
    history: History<PackedInterval>,
    triggers: Triggers,
    writer: Writer,
    store: Shared,
    /// Until when what is metered belongs to the recording that was begun last.
    until: Option<Instant>,
    begun: Option<Instant>,
    /// How far the wall clock is ahead of the intervals.
    stepped_ns: i64,
}

impl FlightRecorder {
    pub fn start(settings: Settings, store: Shared) -> io::Result<Self> {
        let history = History::within(nanoseconds(settings.keep), settings.memory_bytes);
        let writer = Writer::start(Arc::clone(&store))?;
        let triggers = Triggers::default();
        Ok(Self { settings, history, triggers, writer, store, until: None, begun: None, stepped_ns: 0 })
    }

    pub fn configure(&mut self, settings: Settings) {
        self.history.keep_within(nanoseconds(settings.keep), settings.memory_bytes);
        self.settings = settings;
    }

    /// For how long, in nanoseconds, and in how many bytes.
    pub const fn kept(&self) -> (u64, u64) {
        (self.history.duration_ns(), self.history.memory_bytes() as u64)
    }

    /// Keeps an interval, whose report is by lock, and looks whether it pulls a trigger. The wall clock is so far ahead of the intervals.
    pub fn take(&mut self, about: &About, interval: &Interval, report: &Report, stepped_ns: i64) {
        self.stepped_ns = stepped_ns;
        self.history.push(vec![PackedInterval::of(interval)]);
        self.go_on();
        for pulled in self.triggers.look(&self.settings.thresholds, report) {
            self.pull(about, pulled);
        }
    }

    /// Somebody asks for a recording.
    pub fn asked(&mut self, about: &About) {
        self.pull(about, Pulled { trigger: Trigger::Signal, reason: "SIGUSR1".to_owned(), wait: None });
    }

    /// Hands the newest interval to the recording that goes on, if one does.
    fn go_on(&mut self) {
        let Some(until) = self.until else { return };
        if let Some(newest) = self.history.all().last() {
            self.writer.more(newest);
        }
        if Instant::now() >= until {
            self.writer.end();
            self.until = None;
        }
    }

    fn pull(&mut self, about: &About, pulled: Pulled) {
        let now = Instant::now();
        let is_too_soon = self.begun.is_some_and(|begun| now < begun + self.settings.apart);
        if self.writer.is_busy() || (is_too_soon && pulled.trigger != Trigger::Signal) {
            return locked(&self.store).count_recording(pulled.trigger.name(), "suppressed", None, None);
        }
        let before: Vec<Kept> = self.history.all().cloned().collect();
        let stepped_ns = self.stepped_ns;
        let ends_at = |step: &Kept| step.start_unix_ns().saturating_add(step.duration_ns());
        let unix_ns = before.last().map_or(about.start_unix_ns, ends_at).saturating_add_signed(stepped_ns);
        let starts_at = |step: &Kept| step.start_unix_ns().saturating_add_signed(stepped_ns);
        let start_unix_ns = before.first().map_or(unix_ns, starts_at);
        let about = About { reason: pulled.reason.clone(), start_unix_ns, ..about.clone() };
        let Settings { folder, room, .. } = &self.settings;
        self.writer.begin(Job { about, folder: folder.clone(), room: *room, pulled, unix_ns, stepped_ns, before });
        (self.begun, self.until) = (Some(now), Some(now + self.settings.after));
    }

    /// Ends the recording that goes on, if one does.
    pub fn finish(self) {
        self.writer.finish();
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
