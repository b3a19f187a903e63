//! Plays a recording: its intervals come as they came when they were recorded, faster, or one by one.

use std::time::{Duration, Instant};

use lockmeter_profile::recording::RecordingReader;

use super::state::{Feed, State};
use crate::warnings::Warning;

pub struct Playback {
    reader: RecordingReader,
    /// When the next interval is due; `None` while it is paused.
    next_due: Option<Instant>,
}

impl Playback {
    /// Begins at once.
    pub fn new(reader: RecordingReader) -> Self {
        Self { reader, next_due: Some(Instant::now()) }
    }

    /// How long until something is to be read; `None` where nothing is.
    pub fn due_in(&mut self, state: &State) -> Option<Duration> {
        let Feed::Replay { speed } = state.feed else { return None };
        if state.at.is_some() {
            self.next_due = None;
            return None;
        }
        let shown_ns = state.steps_before(1).first().map_or(0, |step| step.duration_ns());
        let length = Duration::from_nanos(shown_ns / u64::from(speed.max(1)));
        let due = self.next_due.get_or_insert_with(|| Instant::now() + length);
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Reads the interval that is due, if its time has come.
    pub fn play(&mut self, state: &mut State) -> bool {
        let is_due = self.due_in(state) == Some(Duration::ZERO);
        if is_due {
            self.read(state);
            self.next_due = None;
        }
        is_due
    }

    /// Reads this many intervals, and stays at the last of them.
    pub fn step(&mut self, state: &mut State, steps: u64) {
        for _ in 0..steps {
            state.at = None;
            if !self.read(state) {
                break;
            }
        }
        state.at = state.shown();
    }

    /// Reads the next interval. `false` where there is none.
    fn read(&mut self, state: &mut State) -> bool {
        let Feed::Replay { speed } = state.feed else { return false };
        let read = self.reader.next_interval();
        state.set_file(self.reader.losses(), self.reader.limits());
        match read {
            Ok(Some(interval)) => {
                state.push(vec![interval]);
                return true;
            }
            Ok(None) if self.reader.ended_cleanly() => state.say("the recording ends here"),
            Ok(None) => state.warn(Warning::RecorderDied.to_string()),
            Err(error) => state.warn(error.to_string()),
        }
        state.feed = Feed::ReplayedAll { speed };
        false
    }
}
